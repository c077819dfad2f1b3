"""Outages: sensors whose readings do not arrive, all together, in groups, or one by one."""

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool, Key
from costate.envs.faults.base import AbstractFault, Drawn, FaultState, Reading
from costate.envs.faults.bursts import working


class Outage(AbstractFault):
    """Sensors that fail together in units. ``units[i]`` is the number of the unit that sensor i belongs to.

    With one unit, no bursts and readings of zero instead, this is the paper's blackout: ỹ_t = m_t y_t with
    one m_t ~ Bernoulli(1 − p) (Section 5).
    """

    def __init__(self, probability: float, length: float | None, units: np.ndarray) -> None:
        self._probability = probability
        self._length = length
        self._units = units
        self._count = int(units.max()) + 1

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros((batch, self._count), bool)

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        return jax.random.uniform(key, (batch, self._count))

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        works = working(drawn, state, is_first, self._probability, self._length)
        return reading._replace(seen=reading.seen & works[:, self._units]), ~works
