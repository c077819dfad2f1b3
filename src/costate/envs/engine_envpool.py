"""The EnvPool engine: MuJoCo physics in C++ threads, stepped from inside a compiled XLA program.

Two properties of EnvPool shape this file. It speaks float64, so 64-bit types are switched on for exactly the calls that touch it and the rest of
the library stays in float32. And a pool cannot be rewound; but an environment draws random numbers only when an episode starts, so a new pool in
which the same number of episodes has been started continues exactly as the old one.
"""

import os

import envpool
import jax
import jax.numpy as jnp
import numpy as np

from costate._types import Array, Float, Key, UInt8
from costate.envs.base import AbstractEnv, TimeStep, first_step
from costate.envs.tasks import Task

FIRST, LAST = 0, 2


class EnvPoolEnv(AbstractEnv):
    """A batch of environments of one dm_control task."""

    def __init__(self, task: Task, batch_size: int, seed: int, threads: int | None = None) -> None:
        self.batch_size = batch_size
        self.observation_size = task.observation_size
        self.action_size = task.action_size
        self.episode_steps = task.episode_steps
        self._reward = task.reward
        self._fields = tuple(name for name, _ in task.observation)
        cores = os.cpu_count() or 1
        threads = min(threads or len(os.sched_getaffinity(0)), batch_size)
        self._pool = envpool.make(
            task.envpool_id,
            env_type="dm",
            num_envs=batch_size,
            num_threads=threads,
            seed=environment_seeds(seed, batch_size),
            # Pinned threads are a third faster, but only when the pool has the machine to itself: fewer threads than cores would all sit on the
            # first ones, in every process.
            thread_affinity_offset=0 if threads == cores else -1,
        )
        spec = self._pool.action_spec()
        self.action_low = np.broadcast_to(spec.minimum, (self.action_size,)).astype(np.float32)
        self.action_high = np.broadcast_to(spec.maximum, (self.action_size,)).astype(np.float32)
        with jax.enable_x64(True):
            handle, _, _, self._xla_step = self._pool.xla()
        self._handle = np.array(handle)

    def reset(self, key: Key[Array, ""]) -> tuple[UInt8[Array, " N"], TimeStep]:
        """Starts episodes from the pool's own generators; the key is not used, because a pool cannot be seeded twice."""
        timestep = self._pool.reset()
        observation = np.concatenate([_columns(getattr(timestep.observation, name)) for name in self._fields], axis=1)
        return jnp.asarray(self._handle), first_step(jnp.asarray(observation, jnp.float32))

    def step(self, state: UInt8[Array, " N"], action: Float[Array, "B A"], key: Key[Array, ""]) -> tuple[UInt8[Array, " N"], TimeStep]:
        with jax.enable_x64(True):
            state, timestep = self._xla_step(state, action.astype(jnp.float64))
            columns = [_columns(getattr(timestep.observation, name)) for name in self._fields]
            observation = jnp.concatenate(columns, axis=1).astype(jnp.float32)
            reward = timestep.reward.astype(jnp.float32)
            discount = timestep.discount.astype(jnp.float32)
        if self._reward is not None:
            reward = self._reward(observation)
        is_first = timestep.step_type == FIRST
        # The reward of a first step is memory that EnvPool never wrote.
        reward = jnp.where(is_first, jnp.zeros_like(reward), reward)
        return state, TimeStep(observation, reward, discount, is_first, timestep.step_type == LAST)

    def skip_resets(self, counts: np.ndarray) -> None:
        for started in range(int(counts.max(initial=0))):
            self._pool.reset(np.flatnonzero(counts > started).astype(np.int32))

    def close(self) -> None:
        self._pool.close()


def environment_seeds(seed: int, batch_size: int) -> list[int]:
    """Unrelated seeds for every environment of every run; ``seed + i`` would give neighbouring runs the same environments."""
    return [int(s) >> 1 for s in np.random.SeedSequence(seed).generate_state(batch_size, np.uint32)]


def _columns(field: np.ndarray | Array) -> np.ndarray | Array:
    """One field of the observation as [B, width]."""
    return field.reshape(field.shape[0], -1)
