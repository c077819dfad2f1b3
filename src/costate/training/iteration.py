"""An iteration of training: one compiled program where the environments are written in JAX, otherwise one that collects and one that learns."""

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
from costate.learners.sharding import SEEDS, Layout
from costate.learners.states import Experience, LearnerState, StreamState
from costate.runs.sentinel import computing
from costate.training.programs import (
    Programs,
    SeedMetrics,
    compile_programs,
    draw_exploration,
    learn_on,
    program_name,
    roll_seeds,
    rollout_stage,
    shapes,
    working_bytes,
)

Tree = TypeVar("Tree")
Check = Callable[[StreamState, Experience], None]
"""Looks at what was collected, and raises if nothing may be learnt from it."""


class Advance(NamedTuple):
    """What an iteration led to."""

    rollout_state: StreamState
    experience: Experience
    states: LearnerState
    metrics: SeedMetrics
    seconds: dict[str, float]
    """Of the parts that can be timed apart."""


class AbstractIteration(abc.ABC):
    """What an iteration computes is a function of its arguments, which it leaves as they are."""

    programs: int
    """Of which it consists."""

    @property
    @abc.abstractmethod
    def working_bytes(self) -> int:
        """Memory that it takes beside its arguments; 0 where the compiler does not say."""

    @abc.abstractmethod
    def place(self, states: LearnerState) -> LearnerState:
        """``states`` on the learner's devices."""

    @abc.abstractmethod
    def run(self, states: LearnerState, rollout_state: StreamState, check: Check) -> Advance:
        """Collect, check and learn. Returns when all of it is over."""


@dataclasses.dataclass(frozen=True)
class TwoPrograms(AbstractIteration):
    """For simulators outside of JAX: one program steps them from a single device, and the learner's uses all devices."""

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
    """Physics, policy and learner together. What was collected is looked at afterwards; if it is not sound, what was learnt from it is dropped."""

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
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_state: StreamState, layout: Layout
) -> AbstractIteration:
    """Compile before anything runs, so that compile time is known apart and an error in it costs nothing."""
    placement = NamedSharding(layout.mesh(), PartitionSpec(SEEDS))
    if not fits_one_program(env, layout, placement):
        return TwoPrograms(compile_programs(config, env, states, rollout_state, layout))
    return OneProgram(lower_iteration(config, env, states, rollout_state, layout).compile(), env, placement)


def fits_one_program(env: AbstractEnv, layout: Layout, placement: NamedSharding) -> bool:
    """A program for several devices steps every environment on each of them, unless they can share the environments."""
    return env.written_in_jax and (layout.devices == 1 or rollout_stage(env, layout, placement) == placement)


def lower_iteration(
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_state: StreamState, layout: Layout
) -> Any:
    """For an environment of which :func:`fits_one_program` holds."""
    learner = learner_for(config)
    placement = NamedSharding(layout.mesh(), PartitionSpec(SEEDS))
    learn = learn_on(config, layout, placement)

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
