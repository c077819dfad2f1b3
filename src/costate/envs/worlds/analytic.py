"""Environments in JAX: a small world for one stream, and a batch of it by the environment contract."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool, Float, Int, Key, UInt
from costate.envs.base import AbstractEnv, TimeStep, first_step

WorldState = Any


class AbstractWorld(abc.ABC):
    """The mathematics of one environment."""

    observation_size: int
    action_size: int
    episode_steps: int
    """Time limit."""
    action_limit: float = 1.0
    """Largest absolute value of every component of the control."""
    state_names: tuple[str, ...] = ()
    """Names of the components of the state, or empty if they have none."""

    @abc.abstractmethod
    def initial(self, key: Key[Array, ""]) -> WorldState:
        """Return a random initial state."""

    @abc.abstractmethod
    def observe(self, state: WorldState, key: Key[Array, ""]) -> Float[Array, " O"]:
        """Return the observation. Any noise is drawn from ``key``."""

    @abc.abstractmethod
    def advance(
        self, state: WorldState, action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[WorldState, Float[Array, ""], Bool[Array, ""]]:
        """Return the next state, the reward, and whether the episode has terminated.

        Any disturbance is drawn from ``key``. A time limit is not termination.
        """


class _Clocked(eqx.Module):
    """The state of a world, how long it has run, and whether its last time step ended an episode."""

    world: WorldState
    elapsed: Int[Array, ""]
    is_last: Bool[Array, ""]


class AnalyticEnv(AbstractEnv):
    """A batch of one world for each seed.

    All random numbers are drawn from the keys, so a resumed run needs only its keys.
    """

    written_in_jax = True

    def __init__(self, world: AbstractWorld, batch_size: int, seeds: Sequence[int] = (0,)) -> None:
        self._world = world
        self._seeds = np.array(
            [np.random.SeedSequence(seed).generate_state(1)[0] for seed in seeds], np.uint32
        )
        self.batch_size = batch_size
        self.observation_size = world.observation_size
        self.action_size = world.action_size
        self.episode_steps = world.episode_steps
        self.action_low = np.full(world.action_size, -world.action_limit, np.float32)
        self.action_high = np.full(world.action_size, world.action_limit, np.float32)
        # Compiled as a whole, because resets run outside of the compiled programs, where JAX would compile
        # each operation separately.
        self._start_one: Callable[..., tuple[_Clocked, TimeStep]] = jax.jit(self._start_batch)
        self._start_each: Callable[..., tuple[_Clocked, TimeStep]] = jax.jit(jax.vmap(self._start_batch))

    def reset(self, key: Key[Array, ""]) -> tuple[_Clocked, TimeStep]:
        return self._start_one(key, self._seeds[0])

    @property
    def seed_axis(self) -> int:
        return 0

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[_Clocked, TimeStep]:
        return self._start_each(keys, self._seeds)

    def step(
        self, state: _Clocked, action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[_Clocked, TimeStep]:
        return jax.vmap(self._step_one)(state, action, jax.random.split(key, self.batch_size))

    def skip_resets(self, counts: np.ndarray) -> None:
        """Do nothing, because episodes are drawn from the keys."""

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    def _start_batch(self, key: Key[Array, ""], seed: UInt[Array, ""]) -> tuple[_Clocked, TimeStep]:
        # The seed is folded in too, so that environments with other seeds, such as those of an evaluation,
        # never repeat these episodes.
        keys = jax.random.split(jax.random.fold_in(key, seed), self.batch_size)
        state, observation = jax.vmap(self._start)(keys)
        return state, first_step(observation)

    def _start(self, key: Key[Array, ""]) -> tuple[_Clocked, Float[Array, " O"]]:
        key_initial, key_observe = jax.random.split(key)
        world = self._world.initial(key_initial)
        return _Clocked(world, jnp.zeros((), jnp.int32), jnp.zeros((), bool)), self._world.observe(
            world, key_observe
        )

    def _step_one(
        self, state: _Clocked, action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[_Clocked, TimeStep]:
        key_start, key_advance, key_observe = jax.random.split(key, 3)
        was_last = state.is_last
        world, reward, terminated = self._world.advance(state.world, action, key_advance)
        elapsed = state.elapsed + 1
        ran = (
            _Clocked(world, elapsed, terminated | (elapsed >= self._world.episode_steps)),
            self._world.observe(world, key_observe),
        )
        state, observation = jax.tree.map(
            lambda fresh, old: jnp.where(was_last, fresh, old), self._start(key_start), ran
        )
        return state, TimeStep(
            observation=observation,
            reward=jnp.where(was_last, 0.0, reward),
            discount=1.0 - jnp.float32(terminated & ~was_last),
            is_first=was_last,
            is_last=state.is_last,
        )
