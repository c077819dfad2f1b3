"""Rules for resuming a run: which settings may change, which may not and why, and the run's history."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate.config.run_config import (
    MAY_CHANGE,
    RunConfig,
    differing_fields,
    from_json,
    to_json,
    with_overrides,
)
from costate.learners.rollout import scheduled_fault_share
from costate.runs.checkpoint import Checkpoint, folders, newest_steps, readable_records, steps_of
from costate.runs.history import Stretch, went_on
from costate.runs.run_directory import Run, open_run, write_config
from costate.training.group import Group

OTHER_STEPS = (
    "an iteration would have another number of steps, which would move the run's place in its budget"
)
# Reasons why a run cannot be resumed with another value, by the longest matching prefix of the setting's
# path.
REASONS = {
    "task": "a run cannot be started on one task and resumed on another",
    "seed": "another seed is another run",
    "learner": "the curve would mix two runs",
    "learner.name": "the other learner has another state, which was never trained",
    "learner.replay": "the stored experience would not fit",
    "policy": "the weights would not fit, or would mean something else",
    "sensors": "the first part of the curve would be with other sensors than the rest",
    "rollout": "the iterations before and after would differ in kind, so the curve would mix two runs",
    "rollout.environments": OTHER_STEPS,
    "rollout.rollout_length": OTHER_STEPS,
}
OTHERWISE = "the curve would mix two runs"


def refusals(before: RunConfig, wanted: RunConfig) -> tuple[str, ...]:
    """Return the changes to ``wanted`` with which a run cannot be resumed, each with its reason."""
    changed = [
        text
        for text in differing_fields(to_json(before), to_json(wanted))
        if text.split(":")[0] not in MAY_CHANGE
    ]
    if before.learner_name != wanted.learner_name:
        # The settings of the learner differ only because its name does.
        changed = [
            text for text in changed if text.startswith("learner.name:") or not text.startswith("learner.")
        ]
    return tuple(f"{text} ({_reason(text.split(':')[0])})" for text in changed)


def _reason(field: str) -> str:
    fitting = [place for place in REASONS if field == place or field.startswith(f"{place}.")]
    return REASONS[max(fitting, key=len)] if fitting else OTHERWISE


def with_changes(run: Run, changes: Mapping[str, Any]) -> Run:
    """Return a run as it will be resumed, with those changes that are not None.

    Steps that make the same number of iterations are no change.
    """
    config = with_overrides(run.config, {name: value for name, value in changes.items() if value is not None})
    if config.iterations == run.config.iterations:
        config = dataclasses.replace(config, steps=run.config.steps)
    newest = newest_steps(run.checkpoints)
    if config.iterations < run.config.iterations and config.final_steps < newest:
        saved = sorted(
            {steps_of(folder) for place in (run.milestones, run.checkpoints) for folder in folders(place)}
        )
        raise ConfigError(
            f"{run.path} cannot be made shorter than it was trained: it stands at {newest:,} steps, and "
            f"{config.total_steps:,} were asked for. Use at least {newest}. Earlier policies are saved at "
            f"steps {', '.join(f'{step:,}' for step in saved)}: evaluate one with `costate evaluate "
            f"{run.path} --step {saved[0]}`."
        )
    return dataclasses.replace(run, config=config)


def check_edited(run: Run) -> None:
    """Raise if the steps were edited in config.json.

    The edit would not be in the run's history, so that the run could not be reproduced.
    """
    before = run.history[-1].steps if run.history else _steps_of_newest(run)
    if run.config.total_steps != before:
        raise ConfigError(
            f"steps was changed in {run.path / 'config.json'} from {before} to {run.config.total_steps}. Put "
            f"{before} back, and make the run longer or shorter with: costate train --resume {run.path} "
            f"--steps {run.config.total_steps}"
        )


def _steps_of_newest(run: Run) -> int:
    """Return the total steps in the newest readable checkpoint's config; the run's own if there is none.

    Unreadable records are skipped here. Loading the checkpoint reports them, and falls back to an older one.
    """
    for record in reversed(readable_records(run.checkpoints)):
        with contextlib.suppress(ConfigError):
            return from_json(record.config).total_steps
    return run.config.total_steps


def check_alike(runs: Sequence[Run]) -> None:
    """Raise if runs that are resumed together differ in a setting that may change.

    They can differ if changing all of them was interrupted.
    """
    for name in MAY_CHANGE:
        values = {run.path.name: getattr(run.config, name) for run in runs}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{folder}: {value}" for folder, value in values.items())
            raise ConfigError(
                f"The runs have different {name} ({listed}), but runs that train together need the same. "
                f"Give it with --{name.replace('_', '-')}."
            )


def note(group: Group, starts: Sequence[Checkpoint], say: Callable[[str], None]) -> Group:
    """Add the resumption from ``starts`` to the history of each run, and report a change of length."""
    slowdowns = max(start.slowdowns for start in starts)
    noted, said = [], ""
    for run, start in zip(group.runs, starts, strict=True):
        before = open_run(run.path)
        resized = before.config.iterations != run.config.iterations
        if resized and not said:
            said = length_change(before.config, run.config, start.iteration)
            say(said)
        history = before.stretches
        if resized or start.iteration < run.config.iterations:
            history = went_on(
                history, Stretch(start.iteration, run.config.total_steps, slowdowns, group.elsewhere)
            )
        first_hash = before.first_hash if before.config == run.config else before.started_as
        after = Run(
            run.path, run.config, before.history if history == before.stretches else history, first_hash
        )
        if after != before:
            write_config(after)
        noted.append(after)
    return dataclasses.replace(group, runs=tuple(noted))


def length_change(before: RunConfig, after: RunConfig, iteration: int) -> str:
    """Describe in one line a run that is made longer or shorter at an iteration, counted from 0."""
    how = "longer" if after.iterations > before.iterations else "shorter"
    then, now = schedules(before, iteration), schedules(after, iteration)
    moved = [f"{name} {now[name]:.3g} instead of {then[name]:.3g}" for name in now if now[name] != then[name]]
    effect = (
        f"; from here on as in a run of that length: {', '.join(moved)}"
        if moved and iteration < after.iterations
        else ""
    )
    return f"made {how}: from {before.final_steps:,} to {after.final_steps:,} steps{effect}"


def schedules(config: RunConfig, iteration: int) -> dict[str, float]:
    """Return the values that follow a schedule over the run, in an iteration counted from 0."""
    now = jnp.asarray(min(iteration, config.iterations))
    values = config.learner.schedules(config, now)
    fault_share = scheduled_fault_share(config.rollout, config.iterations, now)
    return values if fault_share is None else values | {"share of the sensor faults": float(fault_share)}
