"""Load what a run has learnt: the state of training, its controller and its critic."""

import pathlib
from collections.abc import Callable
from typing import Literal

import jax

from costate._base.errors import CheckpointError
from costate.learners import learner_for
from costate.learners.states import LearnerState
from costate.policies.controllers import AbstractController
from costate.policies.insight import AbstractInsight
from costate.runs.checkpoint import Checkpoint, folders, load, load_latest, steps_of
from costate.runs.evaluation_log import best_step
from costate.runs.run_directory import Run
from costate.training.programs import state_template

Point = int | Literal["best"] | None
"""A policy of a run: environment steps, "best" of those evaluated in training, or None for the newest."""


def resolve(run: Run, step: Point) -> int | None:
    """Replace "best" by its environment steps."""
    return best_step(run) if step == "best" else step


def load_state(run: Run, step: int | None, warn: Callable[[str], None]) -> tuple[Checkpoint, LearnerState]:
    """Load the state of training, without its replay: the newest checkpoint, or the one at ``step``."""
    template = _state_template(run)
    if step is None:
        checkpoint, state, _ = load_latest(run.checkpoints, run.config, template, warn)
        return checkpoint, state
    checkpoint, state, _ = load(_folder(run, folders(run.checkpoints), step), run.config, template)
    return checkpoint, state


def load_controller(
    run: Run, step: Point, warn: Callable[[str], None]
) -> tuple[Checkpoint, AbstractController]:
    """Load the controller saved at ``step``; see :data:`Point`."""
    checkpoint, insight = load_insight(run, step, warn)
    return checkpoint, insight.controller


def load_insight(run: Run, step: Point, warn: Callable[[str], None]) -> tuple[Checkpoint, AbstractInsight]:
    """Load the controller and the critic saved at ``step``."""
    learner = learner_for(run.config)
    step = resolve(run, step)
    if step is None or step in map(steps_of, folders(run.checkpoints)):
        checkpoint, state = load_state(run, step, warn)
        return checkpoint, learner.insight(state)
    folder = _folder(run, [*folders(run.best), *folders(run.milestones), *folders(run.checkpoints)], step)
    checkpoint, insight, _ = load(folder, run.config, jax.eval_shape(learner.insight, _state_template(run)))
    return checkpoint, insight


def shown_steps(run: Run) -> tuple[int, ...]:
    """Return the environment steps at which a policy can be loaded, in ascending order."""
    return tuple(
        sorted(
            {
                steps_of(folder)
                for place in (run.best, run.milestones, run.checkpoints)
                for folder in folders(place)
            }
        )
    )


def _state_template(run: Run) -> LearnerState:
    template: LearnerState
    template, _ = learner_for(run.config).detach_replay(state_template(run.config))
    return template


def _folder(run: Run, saved: list[pathlib.Path], step: int) -> pathlib.Path:
    available = {steps_of(folder): folder for folder in saved}
    if step not in available:
        raise CheckpointError(
            f"{run.path} has no checkpoint at step {step}. "
            f"Available: {', '.join(map(str, sorted(available))) or 'none'}."
        )
    return available[step]
