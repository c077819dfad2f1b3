"""The interface of a sensor fault, which readings pass through step by step inside the compiled loop."""

import abc
from typing import Any, NamedTuple

from costate._base.types import Array, Bool, Float, Key

FaultState = Any
"""What a fault remembers between two steps, as a pytree, or None."""
Drawn = Any
"""The random numbers that a fault needs in one step, as a pytree, or None."""


class Reading(NamedTuple):
    """The sensor readings of a batch of environments."""

    value: Float[Array, "B O"]
    seen: Bool[Array, "B O"]
    """Whether each number comes from a sensor, as far as a receiver can tell.

    Unnoticed faults leave it true.
    """


class AbstractFault(abc.ABC):
    """One kind of fault, for a batch of environments. Nothing carries over from one episode to the next."""

    @abc.abstractmethod
    def start(self, batch: int, size: int) -> FaultState:
        """Return a state of the right shape for ``batch`` environments with ``size`` sensors.

        Its values do not matter, because the first step of every episode ignores them.
        """

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        """Draw the random numbers of one step.

        This is separate from :meth:`apply`, so that a whole rollout can be drawn at once, outside of its
        loop.
        """
        return None

    @abc.abstractmethod
    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        """Return the reading after the fault, and the fault's new state."""
