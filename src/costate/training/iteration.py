"""An iteration of training as compiled programs.

It is one program if the environments are written in JAX; otherwise one collects and another learns.
"""

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
from jax.sharding import NamedSharding, PartitionSpec

from costate.config.run_config import RunConfig
from costate.envs.base import AbstractEnv
from costate.learners import learner_for
from costate.learners.sharding import SEEDS, DeviceGrid
from costate.learners.states import Experience, LearnerState, StreamState
from costate.runs.sentinel import computing
from costate.training.programs import (
    Programs,
    SeedMetrics,
    choose_rollout_sharding,
    compile_programs,
    draw_exploration,
    learn_on,
    program_name,
    roll_seeds,
    shapes,
    working_bytes,
)

Tree = TypeVar("Tree")
Check = Callable[[StreamState, Experience], None]
"""Raises if the collected experience must not be learnt from."""


class Advance(NamedTuple):
    """Results of an iteration."""

    rollout_state: StreamState
    experience: Experience
    states: LearnerState
    metrics: SeedMetrics
    seconds: dict[str, float]
    """Seconds of the parts that can be timed separately."""


class AbstractIteration(abc.ABC):
    """A compiled iteration. Its results are a function of its arguments, which it leaves unchanged."""

    programs: int
    """Number of compiled programs per iteration."""

    @property
    @abc.abstractmethod
    def working_bytes(self) -> int:
        """Bytes that an iteration takes beside its arguments; 0 if the compiler does not report them."""

    @abc.abstractmethod
    def place(self, states: LearnerState) -> LearnerState:
        """Move ``states`` to the learner's devices."""

    @abc.abstractmethod
    def run(self, states: LearnerState, rollout_state: StreamState, check: Check) -> Advance:
        """Collect, check and learn, and wait until all of it is done."""


@dataclasses.dataclass(frozen=True)
class TwoPrograms(AbstractIteration):
    """An iteration for simulators outside JAX.

    One program steps them from a single device, and the learner's program uses all devices.
    """

    _programs: Programs
    programs = 2

    @property
    def working_bytes(self) -> int:
        return self._programs.working_bytes

    def place(self, states: LearnerState) -> LearnerState:
        return self._programs.place(states)

    def run(self, states: LearnerState, rollout_state: StreamState, check: Check) -> Advance:
        started = time.perf_counter()
        rollout_state, experience = self._programs.collect(states, rollout_state)
        check(rollout_state, experience)
        collected = time.perf_counter()
        with computing():
            states, metrics = jax.block_until_ready(self._programs.update(states, experience))
        seconds = {"time/collect": collected - started, "time/update": time.perf_counter() - collected}
        return Advance(rollout_state, experience, states, metrics, seconds)


@dataclasses.dataclass(frozen=True)
class OneProgram(AbstractIteration):
    """An iteration with physics, policy and learner in one program.

    The experience is checked afterwards. If the check fails, what was learnt from it is dropped.
    """

    _program: jax.stages.Compiled
    _env: AbstractEnv
    _placement: NamedSharding
    programs = 1

    @property
    def working_bytes(self) -> int:
        return working_bytes(self._program, self._placement)

    def place(self, states: LearnerState) -> LearnerState:
        return self._put(states)

    def run(self, states: LearnerState, rollout_state: StreamState, check: Check) -> Advance:
        with computing():
            rollout_state, experience, states, metrics = jax.block_until_ready(
                self._program(states, self._put(rollout_state))
            )
        self._env.check()
        check(rollout_state, experience)
        return Advance(rollout_state, experience, states, metrics, {})

    def _put(self, tree: Tree) -> Tree:
        put: Tree = jax.device_put(tree, self._placement)
        return put


def compile_iteration(
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_state: StreamState, grid: DeviceGrid
) -> AbstractIteration:
    """Compile an iteration before anything runs.

    The compile time is then known separately, and an error in it costs nothing.
    """
    placement = NamedSharding(grid.mesh(), PartitionSpec(SEEDS))
    if not fits_one_program(env, grid, placement):
        return TwoPrograms(compile_programs(config, env, states, rollout_state, grid))
    return OneProgram(lower_iteration(config, env, states, rollout_state, grid).compile(), env, placement)


def fits_one_program(env: AbstractEnv, grid: DeviceGrid, placement: NamedSharding) -> bool:
    """Return whether an iteration can be one program.

    On several devices it cannot unless they can share the environments: each would step all of them.
    """
    return env.written_in_jax and (
        grid.devices == 1 or choose_rollout_sharding(env, grid, placement) == placement
    )


def lower_iteration(
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_state: StreamState, grid: DeviceGrid
) -> Any:
    """Lower an iteration as one program. The environment must satisfy :func:`fits_one_program`."""
    learner = learner_for(config)
    placement = NamedSharding(grid.mesh(), PartitionSpec(SEEDS))
    learn = learn_on(config, grid, placement)

    def iteration(
        states: LearnerState, rollout_state: StreamState
    ) -> tuple[StreamState, Experience, LearnerState, SeedMetrics]:
        exploration = draw_exploration(config, env, states.key)
        rollout_state, experience = roll_seeds(
            learner, env, learner.acting(states), rollout_state, exploration
        )
        learnt, metrics = learn(states, jax.lax.with_sharding_constraint(experience, placement))
        return rollout_state, experience, learnt, metrics

    iteration.__name__ = program_name(env)
    return jax.jit(iteration, out_shardings=placement).lower(*shapes((states, rollout_state), placement))
