"""Inexact sensors: white noise, and a drifting bias."""

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Key
from costate.envs.faults.base import AbstractFault, Drawn, FaultState, Reading


class Noise(AbstractFault):
    """Return y + σ ε with ε ~ N(0, 1), drawn anew in every step for every sensor."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation

    def start(self, batch: int, size: int) -> FaultState:
        return None

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        return self._deviation * jax.random.normal(key, (batch, size))

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        return reading._replace(value=reading.value + drawn), None


class Drift(AbstractFault):
    """Return y + b with b_{t+1} = b_t + σ ε: a calibration that drifts during an episode.

    The bias starts at 0 and has deviation σ √t after t steps.
    """

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros((batch, size))

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        return self._deviation * jax.random.normal(key, (batch, size))

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        bias = jnp.where(is_first[:, None], 0.0, state + drawn)
        return reading._replace(value=reading.value + bias), bias
