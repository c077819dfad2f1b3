"""Recompute a run in memory from its config, seed and history."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from costate.envs.base import AbstractEnv
from costate.envs.factory import make_env
from costate.learners.states import LearnerState
from costate.runs.history import Stretch
from costate.runs.metrics_log import Row
from costate.runs.run_directory import Run
from costate.training.course import Position, advance, compile_at, start_cycle
from costate.training.group import Group, first_checkpoints
from costate.training.programs import fresh_states, learner_grid, split_seeds
from costate.training.startup import prepare_jax


class Moment(NamedTuple):
    """State of a run of one seed between two iterations."""

    iteration: int
    steps_asked: int
    """The run's requested environment steps at this iteration."""
    state: LearnerState | None
    """The training state; None unless this iteration was wanted."""
    restarts: tuple[int, ...]
    """Episodes started so far in each environment."""
    row: Row | None
    """The log row of the iteration; None before the first."""


def recompute(run: Run, iterations: int, wanted: Collection[int]) -> Iterator[Moment]:
    """Train the first ``iterations`` of a run again, with the seeds it was trained with. Write no files.

    States are only included after the ``wanted`` iterations, because moving them to one device takes time.
    """
    prepare_jax()
    seeds = run.seeds_together
    own = seeds.index(run.config.seed)
    stretches = [stretch for stretch in run.stretches if stretch.from_iteration < iterations]
    ends = [*(stretch.from_iteration for stretch in stretches[1:]), iterations]
    with contextlib.closing(
        make_env(run.config.task, run.config.rollout.environments, seeds, run.config.sensors)
    ) as env:
        group = _group(run, seeds, stretches[0])
        restarts = np.zeros(len(seeds) * run.config.rollout.environments, int)
        position = Position(0, restarts, fresh_states(run.config, seeds), None, first_checkpoints(group.runs))
        yield _moment(group, own, position, None, wanted)
        for stretch, end in zip(stretches, ends, strict=True):
            group = _group(run, seeds, stretch)
            saved = [
                dataclasses.replace(checkpoint, slowdowns=stretch.slowdowns) for checkpoint in position.saved
            ]
            start = dataclasses.replace(position, saved=saved)
            for position, rows in _iterations(group, env, start, end):
                yield _moment(group, own, position, rows[own], wanted)


def _iterations(
    group: Group, env: AbstractEnv, position: Position, end: int
) -> Iterator[tuple[Position, list[Row]]]:
    """Run a stretch between two resumptions. Like every resumed run it begins with new episodes."""
    compiled = None
    while position.iteration < end:
        if position.iteration % group.config.cycle == 0:
            position = start_cycle(group.config, env, position)
        if compiled is None:
            compiled, position, _ = compile_at(group, env, position)
        position, rows = advance(group, compiled, position)
        yield position, rows


def _group(run: Run, seeds: tuple[int, ...], stretch: Stretch) -> Group:
    noted = run.read_machine().get("learner_devices")
    config = dataclasses.replace(run.config, steps=stretch.steps)
    runs = tuple(Run(run.path, dataclasses.replace(config, seed=seed)) for seed in seeds)
    return Group(runs, learner_grid(config, len(seeds), noted if isinstance(noted, int) else None))


def _moment(group: Group, own: int, position: Position, row: Row | None, wanted: Collection[int]) -> Moment:
    count = len(group.runs)
    state = split_seeds(position.states, count)[own] if position.iteration in wanted else None
    restarts = tuple(map(int, np.split(position.restarts, count)[own]))
    return Moment(position.iteration, group.config.total_steps, state, restarts, row)
