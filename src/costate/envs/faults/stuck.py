"""Sensors that hold their last value after they fail. The fault is unnoticed: such a reading looks normal."""

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Key
from costate.envs.faults.base import AbstractFault, Drawn, FaultState, Reading
from costate.envs.faults.bursts import working


class Stuck(AbstractFault):
    """Make sensors hold their last value for a time, each independently."""

    def __init__(self, probability: float, length: float) -> None:
        self._probability = probability
        self._length = length

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros((batch, size), bool), jnp.zeros((batch, size))

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        return jax.random.uniform(key, (batch, size))

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        stuck, last = state
        works = working(drawn, stuck, is_first, self._probability, self._length)
        # A sensor that is stuck from the start holds its first value.
        value = jnp.where(works | is_first[:, None], reading.value, last)
        return reading._replace(value=value), (~works, value)
