"""Simulators that live on the host, in NumPy or anything else: the batch of them that a compiled rollout steps through a callback.

The callback works in place on XLA's own buffers, which costs a tenth of what ``io_callback`` does. Its steps stay in order because each needs the
state that the one before returned; the host counts along. It never raises inside of a compiled program, where an error would lose its type: what
went wrong is kept, the steps that are left do nothing, and :meth:`HostEnv.check` raises it afterwards.
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

from costate._errors import CostateError, SimulationError
from costate._types import Array, Bool, Float, Int, Key
from costate.envs.base import AbstractEnv, Layout, TimeStep, first_step
from costate.envs.together import by_seed, for_all_seeds

# Beside the observation a row has the reward, the discount, and whether it is a first or a last one.
BESIDE = 4
# These, for one in the middle of an episode; the reward is left out.
MIDDLE = np.array([1.0, 0.0, 0.0], np.float32)


class HostRows(NamedTuple):
    """What all environments showed after one step."""

    observation: Float[np.ndarray, "N O"]
    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    """Whether a time limit ended the episode."""
    is_first: Bool[np.ndarray, " N"]
    """Where the step before was a last one: a new episode has begun and the action was ignored."""


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
        """One step of every environment, by the environment contract. The action is memory that is lent for the call."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release threads, processes and memory."""


class HostEnv(AbstractEnv):
    """A simulator with a batch of environments for each seed."""

    def __init__(self, simulator: AbstractSimulator, name: str, batch_size: int, seeds: Sequence[int], episode_steps: int) -> None:
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
        self._elapsed = np.zeros(simulator.count, int)
        self._longest = 0
        self._steps = 0
        self._failure: CostateError | None = None
        self._step = for_all_seeds(self._step_all, len(self._seeds))

    @property
    def seed_axis(self) -> None:
        return None

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], TimeStep]:
        """Starts episodes from seeds of their own; the key is not used, because a simulator draws random numbers itself."""
        self._failure, self._steps = None, 0
        self._elapsed[:], self._longest = 0, 0
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
        return jax.device_put(np.int32(0)), first_step(jnp.asarray(observation))

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[Int[Array, ""], TimeStep]:
        state, timestep = self.reset(keys[0])
        return state, by_seed(timestep, keys.shape[0])

    def step(self, state: Int[Array, ""], action: Float[Array, "B A"], key: Key[Array, ""]) -> tuple[Int[Array, ""], TimeStep]:
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

    def _step_all(self, state: Int[Array, ""], action: Float[Array, "N A"]) -> tuple[Int[Array, ""], TimeStep]:
        shapes = (
            jax.ShapeDtypeStruct((), jnp.int32),
            jax.ShapeDtypeStruct((self._simulator.count, self.observation_size + BESIDE), jnp.float32),
        )
        if jax.devices()[0].platform == "cpu":
            state, rows = buffer_callback(self._in_place, shapes, has_side_effect=True)(state, action)
        else:
            state, rows = io_callback(self._as_new, shapes, state, action, ordered=True)
        observation, beside = rows[:, :-BESIDE], rows[:, -BESIDE:]
        return state, TimeStep(observation, beside[:, 0], beside[:, 1], beside[:, 2] > 0.0, beside[:, 3] > 0.0)

    def _in_place(self, context: Any, out: tuple[Any, Any], position: Any, action: Any) -> None:
        following, rows = (np.asarray(part) for part in out)
        following[...] = self._advance(np.asarray(position), np.asarray(action), rows)

    def _as_new(self, position: Any, action: Any) -> tuple[np.ndarray, Float[np.ndarray, "N R"]]:
        rows = np.empty((self._simulator.count, self.observation_size + BESIDE), np.float32)
        following = self._advance(np.asarray(position), np.asarray(action), rows)
        return np.array(following, np.int32), rows

    def _advance(self, position: np.ndarray, action: np.ndarray, rows: np.ndarray) -> int:
        """Fills the rows, after a failure with zeros, and returns the count of steps."""
        if self._failure is None:
            try:
                self._fill(rows, int(position), action)
            except CostateError as error:
                self._failure = error
            except Exception as error:
                self._failure = self._explained(error, f"{self._steps} steps after the last reset")
                self._failure.__cause__ = error
        if self._failure is not None:
            rows[:] = 0.0
        return int(position) + 1

    def _fill(self, rows: np.ndarray, position: int, action: np.ndarray) -> None:
        # Few operations, and the quickest ones, where nothing begins or ends: each takes microseconds, and so does a step of a small environment.
        if position != self._steps:
            raise SimulationError(f"{self._name} was asked for step {position} when it stood at {self._steps}: a state was stepped from twice.")
        shown, size = self._simulator.advance(action), self.observation_size
        self._steps += 1
        self._elapsed += 1
        self._longest += 1
        rows[:, :size] = shown.observation
        rows[:, size] = shown.reward
        rows[:, size + 1 :] = MIDDLE
        first = shown.is_first
        if np.count_nonzero(first):
            self._started += first
            self._elapsed[first] = 0
            self._longest = int(self._elapsed.max())
            rows[first, size] = 0.0
            rows[first, size + 2] = 1.0
        # The sum of squares is not finite where anything in it is not; only then is it worth looking for what.
        flat = rows.reshape(-1)
        if not math.isfinite(flat @ flat):
            self._require_finite(rows[:, :size], rows[:, size])
        ends = shown.terminated | shown.truncated
        if np.count_nonzero(ends):
            rows[ends & shown.terminated & ~first, size + 1] = 0.0
            rows[ends & ~first, size + 3] = 1.0
        if self._longest >= self.episode_steps:
            self._require_ends(ends)

    def _require_finite(self, observation: Float[np.ndarray, "N O"], reward: Float[np.ndarray, " N"]) -> None:
        for i in np.flatnonzero(~np.isfinite(observation).all(axis=1) | ~np.isfinite(reward)):
            groups = np.repeat([name for name, _ in self._simulator.layout], [size for _, size in self._simulator.layout])
            wrong = [f"{group} {value}" for group, value in zip(groups, observation[i], strict=True) if not np.isfinite(value)]
            wrong += [] if np.isfinite(reward[i]) else [f"reward {reward[i]}"]
            raise SimulationError(
                f"{self._name} showed what is not a finite number: {', '.join(wrong[:3])}. It was {self._which(int(i))}. Nothing can be learnt from "
                f"that, so training stops; the last checkpoint is kept."
            )

    def _require_ends(self, ends: Bool[np.ndarray, " N"]) -> None:
        for i in np.flatnonzero((self._elapsed >= self.episode_steps) & ~ends):
            raise SimulationError(
                f"{self._name} goes on after {self.episode_steps} steps, which were said to be its longest episode ({self._which(int(i))}). Give the "
                f"true number as episode_steps, or a time limit such as gymnasium.wrappers.TimeLimit."
            )

    def _which(self, i: int) -> str:
        seed, own = self._seeds[i // self.batch_size], i % self.batch_size
        return f"environment {own} of seed {seed}, at step {self._elapsed[i]} of its episode {self._started[i]}"

    def _explained(self, error: Exception, when: str) -> CostateError:
        if isinstance(error, CostateError):
            return error
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{pathlib.Path(last.filename).name}, line {last.lineno}"
        return SimulationError(f"{self._name} raised {type(error).__name__} {when}, in {where}: {error}")


def episode_seed(seed: int, environment: int, started: int) -> int:
    """Unrelated seeds for the episodes of every environment of every run; below 2³¹, because some simulators take no more."""
    return int(np.random.SeedSequence([seed, environment, started]).generate_state(1, np.uint32)[0]) >> 1
