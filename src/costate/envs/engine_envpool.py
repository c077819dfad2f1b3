"""The EnvPool engine: MuJoCo physics in C++ threads, stepped from inside a compiled XLA program.

Two properties of EnvPool shape this file. It speaks float64, so 64-bit types are switched on for exactly the calls that touch it and the rest of
the library stays in float32. And a pool cannot be rewound; but an environment draws random numbers only when an episode starts, so a new pool in
which the same number of episodes has been started continues exactly as the old one.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import envpool
import jax
import jax.numpy as jnp
import numpy as np

from costate._types import Array, Float, Key, UInt8
from costate.envs.base import AbstractEnv, TimeStep, first_step
from costate.envs.suite_record import AbstractSuiteTask

FIRST, LAST = 0, 2


class EnvPoolEnv(AbstractEnv):
    """Environments of one dm_control task: a batch for each seed, all in one pool."""

    def __init__(self, task: AbstractSuiteTask, batch_size: int, seeds: Sequence[int], threads: int | None = None) -> None:
        self.batch_size = batch_size
        self.observation_size = task.observation_size
        self.action_size = task.action_size
        self.episode_steps = task.episode_steps
        self._reward = task.reward
        self._fields = tuple(name for name, _ in task.observation)
        cores = os.cpu_count() or 1
        threads = min(threads or len(os.sched_getaffinity(0)), batch_size * len(seeds))
        self._pool = envpool.make(
            task.envpool_id,
            env_type="dm",
            num_envs=batch_size * len(seeds),
            num_threads=threads,
            seed=[number for seed in seeds for number in environment_seeds(seed, batch_size)],
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
        self._step = _for_all_seeds(self._step_pool, len(seeds))

    @property
    def seed_axis(self) -> None:
        return None

    def reset(self, key: Key[Array, ""]) -> tuple[UInt8[Array, " N"], TimeStep]:
        """Starts episodes from the pool's own generators; the key is not used, because a pool cannot be seeded twice."""
        timestep = self._pool.reset()
        observation = np.concatenate([_columns(getattr(timestep.observation, name)) for name in self._fields], axis=1)
        return jnp.asarray(self._handle), first_step(jnp.asarray(observation.astype(np.float32)))

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[UInt8[Array, " M"], TimeStep]:
        state, timestep = self.reset(keys[0])
        return state, _by_seed(timestep, keys.shape[0])

    def step(self, state: UInt8[Array, " N"], action: Float[Array, "B A"], key: Key[Array, ""]) -> tuple[UInt8[Array, " N"], TimeStep]:
        state, timestep = self._step(state, action)
        return state, timestep

    def _step_pool(self, state: UInt8[Array, " N"], action: Float[Array, "B A"]) -> tuple[UInt8[Array, " N"], TimeStep]:
        """One step of the whole pool."""
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


def _for_all_seeds(step_pool: Callable[..., tuple[Any, TimeStep]], seeds: int) -> Callable[..., tuple[Any, TimeStep]]:
    """``step_pool`` as seen by one seed, such that vmapping it over all of them steps the pool once, with the actions of each."""

    @jax.custom_batching.custom_vmap
    def step(state: Array, action: Array) -> tuple[Array, TimeStep]:
        # With one seed this is the pool's step. With several only its shapes are used: JAX asks for them before it applies the rule below.
        state, timestep = step_pool(state, jnp.tile(action, (seeds, 1)))
        return state, jax.tree.map(lambda array: array[: action.shape[0]], timestep)

    @step.def_vmap
    def step_together(size: int, is_batched: list[Any], state: Array, action: Array) -> tuple[Any, Any]:
        state, timestep = step_pool(state, action.reshape(-1, action.shape[-1]))
        return (state, _by_seed(timestep, size)), (False, jax.tree.map(lambda _: True, timestep))

    stepped: Callable[..., tuple[Any, TimeStep]] = step
    return stepped


def _by_seed(timestep: TimeStep, seeds: int) -> TimeStep:
    """The time step of a whole pool with the seeds as its first axis."""
    parts: TimeStep = jax.tree.map(lambda array: array.reshape(seeds, -1, *array.shape[1:]), timestep)
    return parts


def environment_seeds(seed: int, batch_size: int) -> list[int]:
    """Unrelated seeds for every environment of every run; ``seed + i`` would give neighbouring runs the same environments."""
    return [int(s) >> 1 for s in np.random.SeedSequence(seed).generate_state(batch_size, np.uint32)]


def _columns(field: np.ndarray | Array) -> np.ndarray | Array:
    """One field of the observation as [B, width]."""
    return field.reshape(field.shape[0], -1)
