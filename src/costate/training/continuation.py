"""How a run goes on: what may be changed then, what may not and why, and what is noted of it."""

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

# Why a run cannot go on with another value, by the longest beginning of the setting's place in the config.
REASONS = {
    "task": "what was learnt on one task is no beginning of a run on another",
    "seed": "another seed is another run",
    "learner": "the curve would not be one run's",
    "learner.name": "the other learner has another state, which was never trained",
    "learner.replay": "the experience that was stored would not fit",
    "policy": "the weights would not fit, or would mean something else",
    "sensors": "the first part of the curve would be of other sensors than the rest",
    "rollout": "iterations before and after would not be of one kind, so the curve would not be one run's",
    "rollout.environments": "an iteration would have another number of steps, so that the run's place in its budget would change",
    "rollout.rollout_length": "an iteration would have another number of steps, so that the run's place in its budget would change",
}
OTHERWISE = "the curve would not be one run's"


def refusals(before: RunConfig, wanted: RunConfig) -> tuple[str, ...]:
    """What of ``wanted`` a run with the config ``before`` cannot go on with, each with its reason."""
    changed = [
        text
        for text in differing_fields(to_json(before), to_json(wanted))
        if text.split(":")[0] not in MAY_CHANGE
    ]
    if before.learner_name != wanted.learner_name:
        # Its settings differ for no other reason.
        changed = [
            text for text in changed if text.startswith("learner.name:") or not text.startswith("learner.")
        ]
    return tuple(f"{text} ({_reason(text.split(':')[0])})" for text in changed)


def _reason(field: str) -> str:
    fitting = [place for place in REASONS if field == place or field.startswith(f"{place}.")]
    return REASONS[max(fitting, key=len)] if fitting else OTHERWISE


def with_changes(run: Run, changes: Mapping[str, Any]) -> Run:
    """Return a run as it is to go on, with those changes that are not None. As many steps as make the same number of iterations are no change."""
    config = with_overrides(run.config, {name: value for name, value in changes.items() if value is not None})
    if config.iterations == run.config.iterations:
        config = dataclasses.replace(config, steps=run.config.steps)
    newest = newest_steps(run.checkpoints)
    if config.iterations < run.config.iterations and config.final_steps < newest:
        saved = sorted(
            {steps_of(folder) for place in (run.milestones, run.checkpoints) for folder in folders(place)}
        )
        raise ConfigError(
            f"{run.path} cannot be made shorter than it was trained: it stands at {newest:,} steps, and {config.total_steps:,} were asked for. Ask "
            f"for at least {newest}. What it had learnt earlier is there as well, at steps {', '.join(f'{step:,}' for step in saved)}: "
            f"`costate evaluate {run.path} --step {saved[0]}` takes such a policy."
        )
    return dataclasses.replace(run, config=config)


def check_edited(run: Run) -> None:
    """Raise if the steps were changed in config.json by hand: nothing would be noted of it, and nobody could do the run again."""
    before = run.history[-1].steps if run.history else _steps_of_newest(run)
    if run.config.total_steps != before:
        raise ConfigError(
            f"steps was changed in {run.path / 'config.json'} from {before} to {run.config.total_steps}. Put {before} back, and let the run be made "
            f"longer or shorter by: costate train --resume {run.path} --steps {run.config.total_steps}"
        )


def _steps_of_newest(run: Run) -> int:
    """Return the steps that the newest readable checkpoint was to have; the run's own where there is none.

    That a record cannot be read is no matter of the steps: whoever loads it says so, and takes an older one.
    """
    for record in reversed(readable_records(run.checkpoints)):
        with contextlib.suppress(ConfigError):
            return from_json(record.config).total_steps
    return run.config.total_steps


def check_alike(runs: Sequence[Run]) -> None:
    """Raise if runs that are to go on together differ in what may change, as they do if changing all of them was cut off."""
    for name in MAY_CHANGE:
        values = {run.path.name: getattr(run.config, name) for run in runs}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{folder}: {value}" for folder, value in values.items())
            raise ConfigError(
                f"The runs have different {name} ({listed}), but those that train together need the same. Say which, with --{name.replace('_', '-')}."
            )


def note(group: Group, starts: Sequence[Checkpoint], say: Callable[[str], None]) -> Group:
    """Write down how runs go on from ``starts``, and say so if that makes them longer or shorter."""
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
    """One line about a run that is made longer or shorter in an iteration, counted from 0."""
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
    """What depends on how much of the run is over, in an iteration counted from 0."""
    now = jnp.asarray(min(iteration, config.iterations))
    values = config.learner.schedules(config, now)
    fault_share = scheduled_fault_share(config.rollout, config.iterations, now)
    return values if fault_share is None else values | {"share of the sensor faults": float(fault_share)}
