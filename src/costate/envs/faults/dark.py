"""What a receiver makes of readings that do not arrive, and of sensors that are not there."""

import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool
from costate.envs.faults.base import AbstractFault, Drawn, FaultState, Reading


class Zeros(AbstractFault):
    """Nothing is read as zero, as in the paper."""

    def start(self, batch: int, size: int) -> FaultState:
        return None

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        return reading._replace(
            value=jnp.where(reading.seen, reading.value, jnp.zeros_like(reading.value))
        ), None


class Hold(AbstractFault):
    """The last value that did arrive is read again; zero before there is one."""

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros((batch, size))

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        value = jnp.where(reading.seen, reading.value, jnp.where(is_first[:, None], 0.0, state))
        return reading._replace(value=value), value


class Absent(AbstractFault):
    """Sensors that the robot does not have read zero and are never seen."""

    def __init__(self, absent: np.ndarray) -> None:
        self._present = ~absent

    def start(self, batch: int, size: int) -> FaultState:
        return None

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        present = jnp.broadcast_to(self._present, reading.seen.shape)
        return Reading(jnp.where(present, reading.value, 0.0), reading.seen & present), None
