"""Environments written in JAX: a small world for one stream, and the batch of them that keeps the environment contract."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._types import Array, Bool, Float, Int, Key
from costate.envs.base import AbstractEnv, TimeStep, first_step

WorldState = Any


class AbstractWorld(abc.ABC):
    """The mathematics of one environment."""

    observation_size: int
    action_size: int
    episode_steps: int
    """Time limit."""

    @abc.abstractmethod
    def initial(self, key: Key[Array, ""]) -> WorldState:
        """A random initial state."""

    @abc.abstractmethod
    def observe(self, state: WorldState) -> Float[Array, " O"]:
        """What the sensors show."""

    @abc.abstractmethod
    def advance(self, state: WorldState, action: Float[Array, " A"]) -> tuple[WorldState, Float[Array, ""], Bool[Array, ""]]:
        """The next state, the reward, and whether the episode has terminated (a time limit is not termination)."""


class _Clocked(eqx.Module):
    """A world, how long it has run, and whether its last time step was a last one."""

    world: WorldState
    elapsed: Int[Array, ""]
    is_last: Bool[Array, ""]


class AnalyticEnv(AbstractEnv):
    """A batch of one world."""

    def __init__(self, world: AbstractWorld, batch_size: int) -> None:
        self._world = world
        self.batch_size = batch_size
        self.observation_size = world.observation_size
        self.action_size = world.action_size
        self.episode_steps = world.episode_steps
        self.action_low = np.full(world.action_size, -1.0, np.float32)
        self.action_high = np.full(world.action_size, 1.0, np.float32)

    def reset(self, key: Key[Array, ""]) -> tuple[_Clocked, TimeStep]:
        state = jax.vmap(self._start)(jax.random.split(key, self.batch_size))
        return state, first_step(jax.vmap(self._world.observe)(state.world))

    @property
    def seed_axis(self) -> int:
        return 0

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[_Clocked, TimeStep]:
        return jax.vmap(self.reset)(keys)

    def step(self, state: _Clocked, action: Float[Array, "B A"], key: Key[Array, ""]) -> tuple[_Clocked, TimeStep]:
        return jax.vmap(self._step_one)(state, action, jax.random.split(key, self.batch_size))

    def skip_resets(self, counts: np.ndarray) -> None:
        """Nothing to do: episodes are drawn from the keys."""

    def close(self) -> None:
        """Nothing to release."""

    def _start(self, key: Key[Array, ""]) -> _Clocked:
        return _Clocked(self._world.initial(key), jnp.zeros((), jnp.int32), jnp.zeros((), bool))

    def _step_one(self, state: _Clocked, action: Float[Array, " A"], key: Key[Array, ""]) -> tuple[_Clocked, TimeStep]:
        was_last = state.is_last
        world, reward, terminated = self._world.advance(state.world, action)
        elapsed = state.elapsed + 1
        ran = _Clocked(world, elapsed, terminated | (elapsed >= self._world.episode_steps))
        state = jax.tree.map(lambda fresh, old: jnp.where(was_last, fresh, old), self._start(key), ran)
        return state, TimeStep(
            observation=self._world.observe(state.world),
            reward=jnp.where(was_last, 0.0, reward),
            discount=jnp.where(terminated & ~was_last, 0.0, 1.0),
            is_first=was_last,
            is_last=state.is_last,
        )
