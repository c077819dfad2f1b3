"""The EnvPool engine: MuJoCo physics in C++ threads, stepped from inside a compiled XLA program.

Two properties of EnvPool shape this file. First, it uses float64, so 64-bit types are enabled for exactly the
calls that touch it, and the rest of the library stays in float32. Second, a pool cannot be rewound. But an
environment draws random numbers only when an episode starts, so a new pool in which the same number of
episodes has been started continues exactly like the old one.
"""

import abc
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.lean import without_unused_families
from costate._base.registry import nearest
from costate._base.types import Array, Float, Key, UInt8
from costate.envs.base import AbstractEnv, TimeStep, first_step
from costate.envs.engines.together import by_seed, for_all_seeds
from costate.envs.suite_record import AbstractSuiteTask
from costate.envs.tasks import Task

with without_unused_families():
    import envpool
    from envpool.registration import registry

FIRST, LAST = 0, 2


class AbstractPoolEnv(AbstractEnv):
    """Environments of one task in one pool, with a batch for each seed."""

    def __init__(
        self,
        task: Task,
        envpool_id: str,
        interface: str,
        batch_size: int,
        seeds: Sequence[int],
        threads: int | None,
    ) -> None:
        self.batch_size = batch_size
        self.observation_size = task.observation_size
        self.action_size = task.action_size
        self.episode_steps = task.episode_steps
        cores = os.cpu_count() or 1
        threads = min(threads or len(os.sched_getaffinity(0)), batch_size * len(seeds))
        self._pool = envpool.make(
            envpool_id,
            env_type=interface,
            num_envs=batch_size * len(seeds),
            num_threads=threads,
            seed=[number for seed in seeds for number in environment_seeds(seed, batch_size)],
            # Pinned threads are a third faster, but only if the pool has the machine to itself. With fewer
            # threads than cores, every process would pin to the same first cores.
            thread_affinity_offset=0 if threads == cores else -1,
        )
        low, high = self._bounds()
        self.action_low = np.broadcast_to(low, (self.action_size,)).astype(np.float32)
        self.action_high = np.broadcast_to(high, (self.action_size,)).astype(np.float32)
        with jax.enable_x64(True):
            handle, _, _, self._xla_step = self._pool.xla()
        self._handle = np.array(handle)
        self._step = for_all_seeds(self._step_pool, len(seeds))

    @abc.abstractmethod
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and largest controls."""

    @abc.abstractmethod
    def _start_pool(self) -> np.ndarray:
        """Start every environment anew, and return the observations."""

    @abc.abstractmethod
    def _step_pool(
        self, state: UInt8[Array, " N"], action: Float[Array, "B A"]
    ) -> tuple[UInt8[Array, " N"], TimeStep]:
        """Step the whole pool once."""

    @property
    def seed_axis(self) -> None:
        return None

    def reset(self, key: Key[Array, ""]) -> tuple[UInt8[Array, " N"], TimeStep]:
        """Start episodes from the pool's own generators.

        The key is unused, because a pool is seeded only once.
        """
        observation = self._start_pool()
        return jnp.asarray(self._handle), first_step(jnp.asarray(observation.astype(np.float32)))

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[UInt8[Array, " M"], TimeStep]:
        state, timestep = self.reset(keys[0])
        return state, by_seed(timestep, keys.shape[0])

    def step(
        self, state: UInt8[Array, " N"], action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[UInt8[Array, " N"], TimeStep]:
        state, timestep = self._step(state, action)
        return state, timestep

    def skip_resets(self, counts: np.ndarray) -> None:
        for started in range(int(counts.max(initial=0))):
            self._pool.reset(np.flatnonzero(counts > started).astype(np.int32))

    def close(self) -> None:
        self._pool.close()


class EnvPoolEnv(AbstractPoolEnv):
    """A task of dm_control in EnvPool."""

    def __init__(
        self, task: AbstractSuiteTask, batch_size: int, seeds: Sequence[int], threads: int | None = None
    ) -> None:
        self._reward = task.reward
        self._fields = tuple(name for name, _ in task.observation)
        super().__init__(task, task.envpool_id, "dm", batch_size, seeds, threads)

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        spec = self._pool.action_spec()
        return spec.minimum, spec.maximum

    def _start_pool(self) -> np.ndarray:
        timestep: Any = self._pool.reset()
        return np.concatenate(
            [_columns(getattr(timestep.observation, name)) for name in self._fields], axis=1
        )

    def _step_pool(
        self, state: UInt8[Array, " N"], action: Float[Array, "B A"]
    ) -> tuple[UInt8[Array, " N"], TimeStep]:
        with jax.enable_x64(True):
            state, timestep = self._xla_step(state, action.astype(jnp.float64))
            columns = [_columns(getattr(timestep.observation, name)) for name in self._fields]
            observation = jnp.concatenate(columns, axis=1).astype(jnp.float32)
            reward = timestep.reward.astype(jnp.float32)
            discount = timestep.discount.astype(jnp.float32)
        if self._reward is not None:
            reward = self._reward(observation)
        is_first = timestep.step_type == FIRST
        # EnvPool leaves the reward of a first step uninitialised.
        reward = jnp.where(is_first, jnp.zeros_like(reward), reward)
        return state, TimeStep(observation, reward, discount, is_first, timestep.step_type == LAST)


class GymPoolEnv(AbstractPoolEnv):
    """A task of Gym's MuJoCo robots in EnvPool.

    It uses Gym's interface, because EnvPool's dm interface sets the discount to 0 at time limits of these
    tasks.
    """

    def __init__(
        self, task: Task, envpool_id: str, batch_size: int, seeds: Sequence[int], threads: int | None = None
    ) -> None:
        super().__init__(task, envpool_id, "gymnasium", batch_size, seeds, threads)

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        space = self._pool.action_space
        return space.low, space.high

    def _start_pool(self) -> np.ndarray:
        observation: np.ndarray = self._pool.reset()[0]
        return observation

    def _step_pool(
        self, state: UInt8[Array, " N"], action: Float[Array, "B A"]
    ) -> tuple[UInt8[Array, " N"], TimeStep]:
        with jax.enable_x64(True):
            state, (observation, reward, terminated, truncated, beside) = self._xla_step(
                state, action.astype(jnp.float64)
            )
            observation, reward = observation.astype(jnp.float32), reward.astype(jnp.float32)
            is_first = beside["elapsed_step"] == 0
        reward = jnp.where(is_first, jnp.zeros_like(reward), reward)
        return state, TimeStep(
            observation, reward, 1.0 - terminated.astype(jnp.float32), is_first, terminated | truncated
        )


def environment_seeds(seed: int, batch_size: int) -> list[int]:
    """Return unrelated seeds for the environments of a run.

    With ``seed + i``, runs with neighbouring seeds would share environments.
    """
    return [int(s) >> 1 for s in np.random.SeedSequence(seed).generate_state(batch_size, np.uint32)]


def _columns(field: np.ndarray | Array) -> np.ndarray | Array:
    """Return one field of the observation as [B, width]."""
    return field.reshape(field.shape[0], -1)


class GymRobot(NamedTuple):
    """The properties of one of Gym's MuJoCo robots that its task's record needs."""

    observation_size: int
    action_size: int
    episode_steps: int


def gym_robot(identifier: str) -> GymRobot:
    """Describe a robot, or raise if EnvPool does not have it.

    EnvPool's other environments are excluded: they also draw random numbers within episodes, so that a
    resumed run could not restore them.
    """
    known = {name: spec for name, spec in registry.specs.items() if spec[0] == "envpool.mujoco.gym"}
    if identifier not in known:
        raise ConfigError(
            f"EnvPool has no environment {identifier!r} among Gym's MuJoCo robots. "
            f"{nearest(identifier, tuple(known))}"
        )
    spec = envpool.make_spec(identifier)
    return GymRobot(
        spec.observation_space.shape[0], spec.action_space.shape[0], int(spec.config.max_episode_steps)
    )
