"""Readings that arrive late."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Int, Key
from costate.envs.faults.base import AbstractFault, Drawn, FaultState, Reading


class _Travelling(NamedTuple):
    """The last D + 1 readings that were sent, newest first."""

    value: Float[Array, "D B O"]
    seen: Bool[Array, "D B O"]
    duration: Int[Array, "D B"]
    """Delay of each reading in steps."""
    sent: Int[Array, " B"]
    """Number of readings sent in this episode."""


class Delay(AbstractFault):
    """Delay every reading by ``fixed`` to ``fixed + jitter`` steps, uniformly, and read the newest arrival.

    A reading that is overtaken is never read. Before the first arrival nothing is.
    """

    def __init__(self, fixed: int, jitter: int) -> None:
        self._fixed = fixed
        self._jitter = jitter

    def start(self, batch: int, size: int) -> FaultState:
        depth = self._fixed + self._jitter + 1
        numbers = jnp.zeros((depth, batch, size))
        return _Travelling(
            numbers, numbers.astype(bool), jnp.zeros((depth, batch), jnp.int32), jnp.zeros(batch, jnp.int32)
        )

    def draw(self, key: Key[Array, ""], batch: int, size: int) -> Drawn:
        return self._fixed + jax.random.randint(key, (batch,), 0, self._jitter + 1)

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        state = _Travelling(
            value=_push(reading.value, state.value),
            seen=_push(reading.seen, state.seen),
            duration=_push(drawn, state.duration),
            sent=jnp.where(is_first, 0, state.sent) + 1,
        )
        age = jnp.arange(state.duration.shape[0])[:, None]
        arrived = (age >= state.duration) & (age < state.sent[None])
        newest = jnp.argmax(arrived, axis=0)[None, :, None]
        value, seen = (jnp.take_along_axis(queue, newest, axis=0)[0] for queue in (state.value, state.seen))
        there = arrived.any(axis=0)[:, None]
        return Reading(jnp.where(there, value, 0.0), there & seen), state


def _push(newest: Array, queue: Array) -> Array:
    """Put the newest item in front of a queue and drop the oldest."""
    return jnp.concatenate([newest[None], queue[:-1]])
