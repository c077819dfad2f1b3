"""Replay: the newest steps of every stream in a ring, from which windows of whole sequences are drawn.

A stream holds the rows of one environment, episode after episode. Rows are stored once and in order, so the
observation after a step is simply the next row. At a time limit that row holds the true last observation,
from which a learner bootstraps.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.checks import require_at_most
from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Int, Key

Storage = Literal["float32", "float16"]
# More than any machine can hold, but few enough that the bytes needed can still be computed.
MOST_ROWS = 10**12


class ReplayRows(eqx.Module):
    """Rows of B streams. Row t holds the observation y_t, the control u_t, and its outcome r_t and γ_t."""

    observation: Float[Array, "*T B O"]
    action: Float[Array, "*T B A"]
    reward: Float[Array, "*T B"]
    discount: Float[Array, "*T B"]
    """0 where the episode terminated with this step."""
    is_first: Bool[Array, "*T B"]
    is_last: Bool[Array, "*T B"]
    """True where y_t is the last of its episode, so that u_t was ignored."""
    seen: Bool[Array, "*T B"]
    """True where any sensor gave a reading. y_t does not tell: zeros can be true readings, and a blacked-out
    sensor may hold its last value."""
    memory: Float[Array, "*T B S"] | None = None
    """Memories of actor and critic before y_t; None unless windows start from them."""
    complete: Float[Array, "*T B O"] | None = None
    """What working sensors would have shown; None unless the critic or an auxiliary loss reads it."""


class Replay(eqx.Module):
    """A ring of C rows for each of B streams."""

    rows: ReplayRows
    written: Int[Array, ""]
    """Rows of each stream written so far. The newest is at ``(written − 1) mod C``."""

    @property
    def capacity(self) -> int:
        return int(self.rows.reward.shape[0])

    @property
    def streams(self) -> int:
        return int(self.rows.reward.shape[1])


class Windows(NamedTuple):
    """N windows of L rows, with a mask of the steps that can be learnt from."""

    rows: ReplayRows
    usable: Bool[Array, "L N"]
    """True where the action took effect and the next row is its outcome. Never true for the last row."""
    before: Float[Array, "N A"]
    """The control before the first row; zero where it was overwritten."""
    memory: Float[Array, "N S"] | None
    """The memory before the first row; None unless it is stored."""


def empty_replay(
    capacity: int,
    streams: int,
    observation_size: int,
    action_size: int,
    storage: Storage = "float32",
    memory_size: int = 0,
    with_complete: bool = False,
) -> Replay:
    """Return a ring without rows."""
    kind = jnp.dtype(storage)
    shape = (capacity, streams)
    rows = ReplayRows(
        observation=jnp.zeros((*shape, observation_size), kind),
        action=jnp.zeros((*shape, action_size), kind),
        reward=jnp.zeros(shape, kind),
        discount=jnp.zeros(shape, kind),
        is_first=jnp.zeros(shape, bool),
        is_last=jnp.zeros(shape, bool),
        seen=jnp.zeros(shape, bool),
        memory=jnp.zeros((*shape, memory_size), kind) if memory_size else None,
        complete=jnp.zeros((*shape, observation_size), kind) if with_complete else None,
    )
    return Replay(rows, jnp.zeros((), jnp.int32))


def replay_bytes(replay: Replay) -> int:
    """Return the bytes of a ring. Its shapes are enough, so it need not be allocated."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay.rows))


def append(replay: Replay, rows: ReplayRows) -> Replay:
    """Return the ring with T more rows of each stream in place of the oldest."""
    steps = rows.reward.shape[0]
    if steps > replay.capacity:
        raise ConfigError(
            f"{steps} rows do not fit into a ring of {replay.capacity}. "
            "Make the replay larger, or add fewer at once."
        )
    places = (replay.written + jnp.arange(steps)) % replay.capacity

    def write(ring: Array, new: Array) -> Array:
        if ring.dtype != new.dtype:
            # A sensor's outlier stays finite in half precision.
            new = jnp.clip(new, jnp.finfo(ring.dtype).min, jnp.finfo(ring.dtype).max)
        return ring.at[places].set(new.astype(ring.dtype))

    return Replay(jax.tree.map(write, replay.rows, rows), replay.written + steps)


def sample(replay: Replay, key: Key[Array, ""], length: int, count: int) -> Windows:
    """Draw ``count`` windows of ``length`` rows.

    They are uniform over all streams, and over all starts where a window fits between the oldest and the
    newest row.
    """
    key_start, key_stream = jax.random.split(key)
    kept = jnp.minimum(replay.written, replay.capacity)
    oldest = replay.written - kept
    starts = oldest + jax.random.randint(key_start, (count,), 0, jnp.maximum(kept - length + 1, 1))
    streams = jax.random.randint(key_stream, (count,), 0, replay.streams)
    return windows_at(replay, starts, streams, length)


def windows_at(replay: Replay, starts: Int[Array, " N"], streams: Int[Array, " N"], length: int) -> Windows:
    """Return the windows that start at the given rows, counted from the first row ever written."""
    memory = (
        None
        if replay.rows.memory is None
        else replay.rows.memory[starts % replay.capacity, streams].astype(jnp.float32)
    )
    known = starts > replay.written - jnp.minimum(replay.written, replay.capacity)
    before = jnp.where(
        known[:, None], replay.rows.action[(starts - 1) % replay.capacity, streams].astype(jnp.float32), 0.0
    )
    places = (starts[None, :] + jnp.arange(length)[:, None]) % replay.capacity
    streams = jnp.broadcast_to(streams[None, :], places.shape)

    def take(ring: Array) -> Array:
        picked = ring[places, streams]
        return picked if picked.dtype == bool else picked.astype(jnp.float32)

    # Only the memory at the start of a window is needed.
    rows: ReplayRows = jax.tree.map(take, dataclasses.replace(replay.rows, memory=None))
    return Windows(rows, usable_steps(rows), before, memory)


def usable_steps(rows: ReplayRows) -> Bool[Array, "L N"]:
    """Return a mask of the steps that can be learnt from: u_t took effect, and the next row is its outcome.

    A first row directly after a row that is not a last one means that the episode was abandoned there. The
    outcome of that step is unknown.
    """
    next_is_first = jnp.concatenate([rows.is_first[1:], jnp.ones_like(rows.is_first[:1])])
    return ~rows.is_last & ~next_is_first


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
    """Size of the replay, and of the windows drawn from it."""

    capacity: int = 200_000
    """Steps kept, over all environments."""
    window: int = 24
    """Rows of a window, burn-in included. Many short windows hold more different states than a few long
    ones."""
    burn_in: int = 4
    """Rows at the start of a window that only fill the memory and are in no loss."""
    batch: int = 32
    """Windows in one update."""
    storage: Storage = "float32"
    """Type of stored numbers; float16 halves the memory."""
    start: Literal["empty", "stored"] = "empty"
    """Memory at the start of a window: empty, or stored with every row by the networks that collected it."""

    def __post_init__(self) -> None:
        require_at_most("capacity", self.capacity, MOST_ROWS)
        if self.window < self.burn_in + 2:
            raise ConfigError(
                f"window is {self.window} and burn_in is {self.burn_in}, but a window needs two rows more "
                "than its burn-in: one to learn from, and one with its outcome. Use a window of at least "
                f"{self.burn_in + 2}."
            )
        if self.burn_in < 0 or self.batch < 1:
            raise ConfigError(
                f"burn_in is {self.burn_in} and batch is {self.batch}, but they must be at least 0 and 1."
            )

    def rows(self, environments: int) -> int:
        """Return the number of rows kept of each stream. Raise a ConfigError if not even one window fits."""
        rows = self.capacity // environments
        if rows < self.window:
            raise ConfigError(
                f"A replay of {self.capacity} steps keeps {rows} rows of each of {environments} "
                f"environments, but a window needs {self.window}. Use a capacity of at least "
                f"{self.window * environments}."
            )
        return rows
