"""Sensors that are not exact: white noise, and a bias that wanders."""

import jax
import jax.numpy as jnp

from costate._types import Array, Bool, Key
from costate.envs.faults.base import AbstractFault, FaultState, Reading


class Noise(AbstractFault):
    """y + σ ε with ε ~ N(0, 1), new in every step for every sensor."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation

    def start(self, batch: int, size: int) -> FaultState:
        return None

    def apply(self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], key: Key[Array, ""]) -> tuple[Reading, FaultState]:
        return reading._replace(value=reading.value + self._deviation * jax.random.normal(key, reading.value.shape)), None


class Drift(AbstractFault):
    """y + b with b_{t+1} = b_t + σ ε: a calibration that is right when an episode starts and lost on the way, with deviation σ √t after t steps."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros((batch, size))

    def apply(self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], key: Key[Array, ""]) -> tuple[Reading, FaultState]:
        bias = jnp.where(is_first[:, None], 0.0, state + self._deviation * jax.random.normal(key, state.shape))
        return reading._replace(value=reading.value + bias), bias
