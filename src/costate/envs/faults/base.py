"""What a sensor fault is: something that readings pass through, one step at a time, inside the compiled loop."""

import abc
from typing import Any, NamedTuple

from costate._base.types import Array, Bool, Float, Key

FaultState = Any
"""What a fault remembers between two steps, as a pytree; None if it remembers nothing."""
Drawn = Any
"""The random numbers that a fault needs in one step, as a pytree; None if it needs none."""


class Reading(NamedTuple):
    """What the sensors of a batch of environments say."""

    value: Float[Array, "B O"]
    seen: Bool[Array, "B O"]
    """Whether a number comes from a sensor, as far as a receiver can tell. Faults that nobody notices leave it true."""


class AbstractFault(abc.ABC):
    """One kind of fault, for a batch of environments. A new episode has new sensors: nothing is remembered from the one before."""

    @abc.abstractmethod
    def start(self, batch: int, size: int) -> FaultState:
        """A state of the right shape for ``batch`` environments with ``size`` sensors; its values do not matter, because every episode's first step
        starts afresh.
        """

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        """What is random in one step. Apart from :meth:`apply`, so that it can be drawn for a whole rollout at once, outside of its loop."""
        return None

    @abc.abstractmethod
    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        """The reading after the fault, and what the fault remembers of it."""
