"""Simulators that live on the host, in NumPy or anything else: the batch of them that a compiled rollout steps through a callback.

The callback works in place on XLA's own buffers, which costs a tenth of what ``io_callback`` does; one of them holds all that goes in and one all
that comes out, because each costs microseconds. Its steps stay in order because each needs the state that the one before returned; the host counts
along. It never raises inside of a compiled program, where an error would lose its type: what went wrong is kept, the steps that are left do nothing,
and :meth:`HostEnv.check` raises it afterwards.
"""

import abc
import math
import pathlib
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback

from costate._base.counted import counted
from costate._base.errors import CostateError, SimulationError
from costate._base.types import Array, Bool, Float, Key
from costate.envs.base import AbstractEnv, Layout, TimeStep, first_step
from costate.envs.engines.together import by_seed, for_all_seeds

# Beside the observation a row has the reward and what kind of row it is.
BESIDE = 2
# The kinds: in the middle of an episode, the first one, and the last one by termination or by a time limit.
MIDDLE, FIRST, TERMINATED, TRUNCATED = 0.0, 1.0, 2.0, 3.0
# The state counts steps modulo this, which a float32 holds exactly.
COUNTED = 1 << 20


class HostRows(NamedTuple):
    """What all environments showed after one step."""

    observation: Float[np.ndarray, "N O"]
    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    """Whether a time limit ended the episode."""
    is_first: Bool[np.ndarray, " N"]
    """Where the step before was a last one: a new episode has begun and the action was ignored."""
    quiet: bool = False
    """True only if no episode has begun or ended, where the simulator knows that without looking twice."""


class AbstractSimulator(abc.ABC):
    """A batch of environments on the host."""

    count: int
    """How many they are, of all seeds together."""
    layout: Layout
    action_low: Float[np.ndarray, " A"]
    action_high: Float[np.ndarray, " A"]

    @abc.abstractmethod
    def start(self, seeds: Sequence[int]) -> Float[np.ndarray, "N O"]:
        """Begin an episode in every environment. The seeds decide all that is random until the next call."""

    @abc.abstractmethod
    def advance(self, action: Float[np.ndarray, "N A"]) -> HostRows:
        """One step of every environment, by the environment contract. The action is memory that is lent for the call, and what is shown may be lent
        until the next one.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release threads, processes and memory."""


class HostEnv(AbstractEnv):
    """A simulator with a batch of environments for each seed."""

    def __init__(
        self,
        simulator: AbstractSimulator,
        name: str,
        batch_size: int,
        seeds: Sequence[int],
        episode_steps: int,
    ) -> None:
        self._simulator = simulator
        self._name = name
        self._seeds = tuple(seeds)
        self.batch_size = batch_size
        self.observation_size = sum(size for _, size in simulator.layout)
        self.action_size = simulator.action_low.shape[0]
        self.action_low = simulator.action_low.astype(np.float32)
        self.action_high = simulator.action_high.astype(np.float32)
        self.episode_steps = episode_steps
        self._started = np.zeros(simulator.count, int)
        # The count of steps at which each episode began, and at which the oldest one must have ended.
        self._begun = np.zeros(simulator.count, int)
        self._steps, self._deadline = 0, episode_steps
        # All that a step shows, and in the end the count of steps; with views of its parts, because making one takes as long as copying.
        self._shown = np.zeros(simulator.count * (self.observation_size + BESIDE) + 1, np.float32)
        self._rows = self._shown[:-1].reshape(simulator.count, -1)
        self._observation, self._reward, self._kind = (
            self._rows[:, :-BESIDE],
            self._rows[:, -2],
            self._rows[:, -1],
        )
        self._has_kinds = False
        self._failure: CostateError | None = None
        self._step = for_all_seeds(self._step_all, len(self._seeds))

    @property
    def seed_axis(self) -> None:
        return None

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, ""], TimeStep]:
        """Starts episodes from seeds of their own; the key is not used, because a simulator draws random numbers itself."""
        self._failure, self._steps = None, 0
        self._begun[:], self._deadline = 0, self.episode_steps
        numbers = [
            episode_seed(seed, i, int(self._started[group * self.batch_size + i]))
            for group, seed in enumerate(self._seeds)
            for i in range(self.batch_size)
        ]
        self._started += 1
        try:
            observation = np.asarray(self._simulator.start(numbers), np.float32)
        except Exception as error:
            raise self._explained(error, "at a reset") from error
        self._require_finite(observation, np.zeros(len(observation)))
        return jax.device_put(np.float32(0.0)), first_step(jnp.asarray(observation))

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[Float[Array, ""], TimeStep]:
        state, timestep = self.reset(keys[0])
        return state, by_seed(timestep, keys.shape[0])

    def step(
        self, state: Float[Array, ""], action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], TimeStep]:
        state, timestep = self._step(state, action)
        return state, timestep

    def skip_resets(self, counts: np.ndarray) -> None:
        """Nothing to replay: what an environment does follows from its seed and the number of episodes that it has started."""
        self._started[:] = counts

    def close(self) -> None:
        self._simulator.close()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _step_all(
        self, state: Float[Array, ""], action: Float[Array, "N A"]
    ) -> tuple[Float[Array, ""], TimeStep]:
        given = jnp.append(action.reshape(-1), state)
        shape = jax.ShapeDtypeStruct(self._shown.shape, jnp.float32)
        if jax.devices()[0].platform == "cpu":
            shown = buffer_callback(self._in_place, shape, has_side_effect=True)(given)
        else:
            shown = io_callback(self._as_new, shape, given, ordered=True)
        rows = shown[:-1].reshape(self._rows.shape)
        kind = rows[:, -1]
        discount = 1.0 - jnp.float32(kind == TERMINATED)
        return shown[-1], TimeStep(
            rows[:, :-BESIDE], rows[:, -2], discount, kind == FIRST, kind >= TERMINATED
        )

    def _in_place(self, context: Any, out: Any, given: Any) -> None:
        self._advance(np.asarray(given))
        np.asarray(out)[:] = self._shown

    def _as_new(self, given: Any) -> Float[np.ndarray, " R"]:
        self._advance(np.asarray(given))
        return self._shown.copy()

    def _advance(self, given: Float[np.ndarray, " G"]) -> None:
        """Brings up to date what is shown: actions and the count of steps go in, rows and the next count come out; after a failure zeros."""
        if self._failure is None:
            try:
                self._fill(given)
                return
            except CostateError as error:
                self._failure = error
            except Exception as error:
                self._failure = self._explained(error, f"{counted(self._steps, 'step')} after the last reset")
                self._failure.__cause__ = error
        self._shown[:] = 0.0

    def _fill(self, given: Float[np.ndarray, " G"]) -> None:
        # Few operations where nothing begins or ends: what a step of the environments leaves of our own code in the caches is little, so that each
        # takes microseconds, and a step of a small environment takes twenty.
        position = given.item(-1)
        if position != self._steps % COUNTED:
            raise SimulationError(
                f"{self._name} was asked for step {position:.0f} when it stood at {self._steps % COUNTED}: a state was stepped from twice."
            )
        step = self._simulator.advance(given[:-1].reshape(-1, self.action_size))
        self._steps += 1
        self._observation[:] = step.observation
        self._reward[:] = step.reward
        if self._has_kinds or not step.quiet:
            self._set_kinds(step)
        self._shown[-1] = self._steps % COUNTED
        # The sum is not finite where anything in it is not; only then is it worth looking for what.
        if not math.isfinite(np.add.reduce(self._shown)):
            self._require_finite(self._observation, self._reward)
        if self._steps >= self._deadline:
            self._require_ends(step.terminated | step.truncated)

    def _set_kinds(self, step: HostRows) -> None:
        first = step.is_first
        last = (step.terminated | step.truncated) & ~first
        self._kind[:] = MIDDLE
        self._kind[first] = FIRST
        self._kind[last] = np.where(step.terminated[last], TERMINATED, TRUNCATED)
        self._has_kinds = bool(first.any() or last.any())
        if first.any():
            self._reward[first] = 0.0
            self._started += first
            self._begun[first] = self._steps
            self._deadline = int(self._begun.min()) + self.episode_steps

    def _require_finite(self, observation: Float[np.ndarray, "N O"], reward: Float[np.ndarray, " N"]) -> None:
        for i in np.flatnonzero(~np.isfinite(observation).all(axis=1) | ~np.isfinite(reward)):
            groups = np.repeat(
                [name for name, _ in self._simulator.layout], [size for _, size in self._simulator.layout]
            )
            wrong = [
                f"{group} {value}"
                for group, value in zip(groups, observation[i], strict=True)
                if not np.isfinite(value)
            ]
            wrong += [] if np.isfinite(reward[i]) else [f"reward {reward[i]}"]
            raise SimulationError(
                f"{self._name} returned NaN or Inf: {', '.join(wrong[:3])} (in {self._which(int(i))}). Nothing can be learnt from that, so training "
                f"stops; the last checkpoint is kept. Correct the environment, then continue with `costate train --resume RUN`."
            )

    def _require_ends(self, ends: Bool[np.ndarray, " N"]) -> None:
        for i in np.flatnonzero((self._steps - self._begun >= self.episode_steps) & ~ends):
            raise SimulationError(
                f"{self._name} goes on after {self.episode_steps} steps, which were said to be its longest episode ({self._which(int(i))}). Give the "
                f"true number as episode_steps, or a time limit such as gymnasium.wrappers.TimeLimit."
            )

    def _which(self, i: int) -> str:
        seed, own = self._seeds[i // self.batch_size], i % self.batch_size
        return f"environment {own} of seed {seed}, at step {self._steps - self._begun[i]} of its episode {self._started[i]}"

    def _explained(self, error: Exception, when: str) -> CostateError:
        if isinstance(error, CostateError):
            return error
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{pathlib.Path(last.filename).name}, line {last.lineno}"
        return SimulationError(f"{self._name} raised {type(error).__name__} {when}, in {where}: {error}")


def episode_seed(seed: int, environment: int, started: int) -> int:
    """Unrelated seeds for the episodes of every environment of every run; below 2³¹, because some simulators take no more."""
    return int(np.random.SeedSequence([seed, environment, started]).generate_state(1, np.uint32)[0]) >> 1
