"""Simulators on the host, in NumPy or anything else, stepped as a batch by a compiled rollout's callback.

The callback works in place on XLA's own buffers, which takes a tenth of the time of ``io_callback``. Each
buffer costs microseconds, so there is one for all inputs and one for all outputs. Steps stay in order,
because each needs the state that the previous one returned, and the host counts them too.

The callback never raises inside a compiled program, where an error would lose its type. Instead the error is
kept, the remaining steps do nothing, and :meth:`HostEnv.check` raises it afterwards.
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

# Columns of a row besides the observation: the reward and the kind of row.
EXTRA_COLUMNS = 2
# Kinds of rows: mid-episode, first, last by termination, last by a time limit.
MIDDLE, FIRST, TERMINATED, TRUNCATED = 0.0, 1.0, 2.0, 3.0
# The state counts steps modulo this, which a float32 holds exactly.
STEP_MODULUS = 1 << 20


class HostRows(NamedTuple):
    """The results of one step of all environments."""

    observation: Float[np.ndarray, "N O"]
    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    """Whether a time limit ended the episode."""
    is_first: Bool[np.ndarray, " N"]
    """True if the previous step was a last one: a new episode has begun and the action was ignored."""
    quiet: bool = False
    """True only if no episode has begun or ended and the simulator knows so at no cost."""


class AbstractSimulator(abc.ABC):
    """A batch of environments on the host."""

    count: int
    """Number of environments, of all seeds together."""
    layout: Layout
    action_low: Float[np.ndarray, " A"]
    action_high: Float[np.ndarray, " A"]

    @abc.abstractmethod
    def start(self, seeds: Sequence[int]) -> Float[np.ndarray, "N O"]:
        """Begin an episode in every environment.

        The seeds determine all random numbers until the next call.
        """

    @abc.abstractmethod
    def advance(self, action: Float[np.ndarray, "N A"]) -> HostRows:
        """Take one step in every environment, by the environment contract.

        The action is valid only during the call. The returned arrays may be overwritten by the next call.
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
        # Step counts at which each episode began, and at which the oldest one must have ended.
        self._begun = np.zeros(simulator.count, int)
        self._steps, self._deadline = 0, episode_steps
        # The whole result of a step, followed by the step count. The views are kept, because making one takes
        # as long as copying.
        self._shown = np.zeros(simulator.count * (self.observation_size + EXTRA_COLUMNS) + 1, np.float32)
        self._rows = self._shown[:-1].reshape(simulator.count, -1)
        self._observation, self._reward, self._kind = (
            self._rows[:, :-EXTRA_COLUMNS],
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
        """Start episodes from their own seeds.

        The key is unused, because a simulator draws its own numbers.
        """
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
        """Do no replay: an environment depends only on its seed and the number of episodes started."""
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
            rows[:, :-EXTRA_COLUMNS], rows[:, -2], discount, kind == FIRST, kind >= TERMINATED
        )

    def _in_place(self, context: Any, out: Any, given: Any) -> None:
        self._advance(np.asarray(given))
        np.asarray(out)[:] = self._shown

    def _as_new(self, given: Any) -> Float[np.ndarray, " R"]:
        self._advance(np.asarray(given))
        return self._shown.copy()

    def _advance(self, given: Float[np.ndarray, " G"]) -> None:
        """Update the output buffer: actions and the step count go in, rows and the next count come out.

        After a failure the output is zeros.
        """
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
        # Few operations if nothing begins or ends. After an environment's step little of our own code is left
        # in the caches, so that each operation takes microseconds, and a step of a small environment takes
        # only twenty.
        position = given.item(-1)
        if position != self._steps % STEP_MODULUS:
            raise SimulationError(
                f"{self._name} was asked for step {position:.0f} but is at step "
                f"{self._steps % STEP_MODULUS}: a state was stepped from twice."
            )
        step = self._simulator.advance(given[:-1].reshape(-1, self.action_size))
        self._steps += 1
        self._observation[:] = step.observation
        self._reward[:] = step.reward
        if self._has_kinds or not step.quiet:
            self._set_kinds(step)
        self._shown[-1] = self._steps % STEP_MODULUS
        # The sum is not finite if any term is not. Only then look for the culprit.
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
                f"{self._name} returned NaN or Inf: {', '.join(wrong[:3])} (in {self._which(int(i))}). "
                f"Training stops, and the last checkpoint is kept. Correct the environment, then continue "
                f"with `costate train --resume RUN`."
            )

    def _require_ends(self, ends: Bool[np.ndarray, " N"]) -> None:
        for i in np.flatnonzero((self._steps - self._begun >= self.episode_steps) & ~ends):
            raise SimulationError(
                f"{self._name} continues after {self.episode_steps} steps, its declared longest episode "
                f"({self._which(int(i))}). Give the true number as episode_steps, or add a time limit such "
                f"as gymnasium.wrappers.TimeLimit."
            )

    def _which(self, i: int) -> str:
        seed, own = self._seeds[i // self.batch_size], i % self.batch_size
        step = self._steps - self._begun[i]
        return f"environment {own} of seed {seed}, at step {step} of its episode {self._started[i]}"

    def _explained(self, error: Exception, when: str) -> CostateError:
        if isinstance(error, CostateError):
            return error
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{pathlib.Path(last.filename).name}, line {last.lineno}"
        return SimulationError(f"{self._name} raised {type(error).__name__} {when}, in {where}: {error}")


def episode_seed(seed: int, environment: int, started: int) -> int:
    """Return unrelated seeds for the episodes of all environments and runs.

    They are below 2³¹, because some simulators accept no larger ones.
    """
    return int(np.random.SeedSequence([seed, environment, started]).generate_state(1, np.uint32)[0]) >> 1
