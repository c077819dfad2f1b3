"""Values that a receiver fills in for readings that do not arrive, and for sensors that do not exist."""

import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool
from costate.envs.faults.base import AbstractFault, Drawn, FaultState, Reading


class Zeros(AbstractFault):
    """Replace missing readings by zero, as in the paper."""

    def start(self, batch: int, size: int) -> FaultState:
        return None

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        return reading._replace(
            value=jnp.where(reading.seen, reading.value, jnp.zeros_like(reading.value))
        ), None


class Hold(AbstractFault):
    """Replace missing readings by the last value that arrived, or by zero before there is one."""

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros((batch, size))

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        value = jnp.where(reading.seen, reading.value, jnp.where(is_first[:, None], 0.0, state))
        return reading._replace(value=value), value


class Absent(AbstractFault):
    """Sensors that the robot does not have. They read zero and count as missing."""

    def __init__(self, absent: np.ndarray) -> None:
        self._present = ~absent

    def start(self, batch: int, size: int) -> FaultState:
        return None

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        present = jnp.broadcast_to(self._present, reading.seen.shape)
        return Reading(jnp.where(present, reading.value, 0.0), reading.seen & present), None
