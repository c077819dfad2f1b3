"""The computation of a group of runs, iteration by iteration, without files."""

import dataclasses
import time
from collections.abc import Sequence

import jax
import numpy as np

from costate._base.types import Array, Bool
from costate.config.run_config import RunConfig
from costate.envs.base import AbstractEnv
from costate.learners.sharding import DeviceGrid
from costate.learners.states import Experience, LearnerState, StreamState
from costate.runs.checkpoint import Checkpoint
from costate.runs.metrics_log import Row
from costate.training.divergence import check_experience
from costate.training.group import Group
from costate.training.iteration import AbstractIteration, compile_iteration
from costate.training.memory_needed import check_iteration
from costate.training.programs import start_episodes
from costate.training.startup import forget_uncacheable


@dataclasses.dataclass(frozen=True)
class Position:
    """State of a group between two iterations."""

    iteration: int
    restarts: np.ndarray
    """Episodes started so far in each environment of all seeds."""
    states: LearnerState
    rollout_state: StreamState | None
    saved: Sequence[Checkpoint]
    """The last checkpoints."""


def start_cycle(config: RunConfig, env: AbstractEnv, position: Position) -> Position:
    """Start a new episode in every environment, so that nothing of the last cycle is in flight."""
    return dataclasses.replace(
        position, restarts=position.restarts + 1, rollout_state=start_episodes(config, env, position.states)
    )


def compile_at(group: Group, env: AbstractEnv, position: Position) -> tuple[AbstractIteration, Position, str]:
    """Compile an iteration at the run's current learning rate.

    Return it with the position moved to its devices, and a sentence for the reporter.
    """
    assert position.rollout_state is not None, "a run starts between cycles"
    started = time.perf_counter()
    config = group.config.slowed(max(checkpoint.slowdowns for checkpoint in position.saved))
    compiled = compile_iteration(config, env, position.states, position.rollout_state, group.grid)
    check_iteration(compiled.working_bytes, group.grid)
    forget_uncacheable()
    about = _compiled(compiled, group.grid, time.perf_counter() - started)
    return compiled, dataclasses.replace(position, states=compiled.place(position.states)), about


def _compiled(iteration: AbstractIteration, grid: DeviceGrid, seconds: float) -> str:
    used, available = grid.devices, len(jax.devices())
    where = (
        f"{used} device{'s' if used > 1 else ''}" if used == available else f"{used} of {available} devices"
    )
    what = "physics and learner are one program and run" if iteration.programs == 1 else "the learner runs"
    return f"compiled in {seconds:.1f} s; {what} on {where}"


def advance(group: Group, compiled: AbstractIteration, position: Position) -> tuple[Position, list[Row]]:
    """Run one iteration. Return the new position, and a row to log for each seed."""
    assert position.rollout_state is not None, "a run starts between cycles"
    config, iteration = group.config, position.iteration + 1

    def check(rollout_state: StreamState, experience: Experience) -> None:
        check_experience(group, iteration, experience, rollout_state.timestep)

    started = time.perf_counter()
    rollout_state, experience, states, metrics, parts = compiled.run(
        position.states, position.rollout_state, check
    )
    values = {name: np.asarray(value) for name, value in metrics.items()}
    seconds = time.perf_counter() - started
    common = {
        "iteration": iteration,
        "env_steps": iteration * config.rollout.steps_per_iteration,
        "training/sps": config.rollout.steps_per_iteration / seconds,
        "time/iteration": seconds,
        **parts,
    }
    seeds = experience.is_first.shape[0]
    rows: list[Row] = [
        _row({name: float(value[seed]) for name, value in values.items()}) | common for seed in range(seeds)
    ]
    restarts = position.restarts + restarts_within(experience.is_first, rollout_state.timestep.is_first)
    return Position(iteration, restarts, states, rollout_state, position.saved), rows


def _row(metrics: Row) -> Row:
    """Return the metrics to log: without losses before the first update."""
    learnt = metrics.get("training/updates", 1.0) > 0.0
    return (
        metrics
        if learnt
        else {name: value for name, value in metrics.items() if not name.startswith(("losses/", "costate/"))}
    )


def restarts_within(is_first: Bool[Array, "N T B"], is_first_after: Bool[Array, "N B"]) -> np.ndarray:
    """Count the episodes that each environment started during a rollout, except the one it began with."""
    counts: np.ndarray = np.asarray(is_first)[:, 1:].sum(axis=1) + np.asarray(is_first_after)
    return counts.reshape(-1)
