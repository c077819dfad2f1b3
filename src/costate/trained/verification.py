"""Verify a run: train it again from config and seed, and compare with its log and all that it saved."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from costate._base.errors import CheckpointError, ConfigError, RunDirectoryError
from costate._base.progress import Tell, nobody
from costate.config.run_config import from_json
from costate.learners import learner_for
from costate.runs.checkpoint import Checkpoint, folders, load, readable_records, steps_of, to_tensors
from costate.runs.machine import describe_machine, machine_changes
from costate.runs.metrics_log import known
from costate.runs.run_directory import Run
from costate.training.programs import state_template
from costate.training.recomputation import Moment, recompute

# Timings are the only numbers that differ between two equal runs.
CLOCKS = ("time/", "training/sps")
# Metrics of evaluations during training, which do not affect it.
BESIDE = "eval/"
# At most so many differing arrays are named.
SHOWN = 3


class Difference(NamedTuple):
    """A logged number that came out differently."""

    iteration: int
    metric: str
    logged: float
    again: float


class Saved(NamedTuple):
    """Something that a run saved: a checkpoint, a milestone or its best policy."""

    env_steps: int
    kind: str
    """"checkpoint", "milestone" or "best policy"."""


class Altered(NamedTuple):
    """A saved state that differs from the recomputed one."""

    saved: Saved
    what: str


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of training iterations of a run again."""

    iterations: int
    """Number of iterations that were trained again, counted from the first."""
    numbers: int
    """Number of logged numbers that were compared."""
    differences: tuple[Difference, ...]
    machine: tuple[str, ...]
    """Differences between this machine and the one that made the run, as sentences."""
    logged: int = 0
    """Number of iterations of the run, by its log and by what it saved."""
    arrays: int = 0
    """Number of saved arrays that were compared."""
    saved: tuple[Saved, ...] = ()
    """Saved states that were compared."""
    altered: tuple[Altered, ...] = ()
    """Saved states that differ."""
    unseen: tuple[Saved, ...] = ()
    """Saved states that were not compared."""
    beside: int = 0
    """Number of logged numbers of evaluations during training, which are not repeated."""
    stopped: str = ""
    """Why training again stopped early; empty if it did not."""

    @property
    def same(self) -> bool:
        """True if everything that was compared is the same, bit for bit."""
        return not self.differences and not self.altered

    @property
    def largest(self) -> float:
        """Relative size of the largest difference; infinite if only one of the two numbers is finite."""
        sizes = [abs(d.logged - d.again) / max(abs(d.logged), abs(d.again), 1e-30) for d in self.differences]
        return max((size if math.isfinite(size) else math.inf for size in sizes), default=0.0)


def verify(run: Run, iterations: int | None = 2, tell: Tell = nobody) -> Verification:
    """Train the first ``iterations`` of a run again (all of its log if None) and compare.

    Nothing is written.
    """
    if iterations is not None and iterations < 1:
        raise ConfigError(
            f"iterations is {iterations}, but at least 1 must be trained again to compare anything."
        )
    rows, saved, per_iteration = (
        _rows_by_iteration(run),
        _all_saved(run),
        run.config.rollout.steps_per_iteration,
    )
    # A log that was cut off can end before the last saved state.
    reached = min(max(step // per_iteration for step, _ in saved), run.config.iterations) if saved else 0
    length = max(max(rows), reached)
    asked = length if iterations is None else min(iterations, length)
    reach, reason = reproducible_iterations(run)
    if reach == 0:
        raise ConfigError(f"Nothing of {run.path} can be verified: {reason}.")
    count = asked if reach is None else min(asked, reach)
    wanted = {
        step // per_iteration
        for step, _ in saved
        if step % per_iteration == 0 and step <= count * per_iteration
    }
    tell(None, "compiling")
    logged, again, arrays, looked_at, altered = [], [], 0, [], []
    for moment in recompute(run, count, wanted):
        if moment.row is not None:
            tell(moment.iteration / count, f"iteration {moment.iteration} of {count}")
            logged.append(rows.get(moment.iteration, {}))
            again.append(known(moment.row))
        for which, folder in saved.items():
            if (
                moment.state is None
                or which.env_steps != moment.iteration * per_iteration
                or not folder.is_dir()
            ):
                continue
            compared, mismatches = _compare_saved(run, which, folder, moment)
            if compared is None:
                continue
            looked_at.append(which)
            arrays += compared
            altered += [Altered(which, mismatch) for mismatch in mismatches]
    numbers, differences = compare(logged, again)
    return Verification(
        iterations=count,
        numbers=numbers,
        differences=differences,
        machine=machine_changes(run.read_machine(), describe_machine()),
        logged=length,
        arrays=arrays,
        saved=tuple(looked_at),
        altered=tuple(altered),
        unseen=tuple(which for which in saved if which not in looked_at),
        beside=sum(name.startswith(BESIDE) for row in logged for name in row),
        stopped=reason if count < asked else "",
    )


def _rows_by_iteration(run: Run) -> dict[int, dict[str, Any]]:
    """Return the rows of the log by iteration; missing ones show up in the comparison."""
    rows: dict[int, dict[str, Any]] = {}
    for number, row in enumerate(run.read_metrics(), 1):
        iteration = row.get("iteration") if isinstance(row, dict) else None
        if type(iteration) is not int or iteration < 1 or iteration in rows:
            raise RunDirectoryError(
                f"Row {number} of {run.metrics} is that of iteration {iteration}, but rows have the "
                "iterations 1, 2, 3, … once each. The file was altered or damaged; put back the one that "
                "`costate train` wrote."
            )
        rows[iteration] = row
    if not rows:
        raise RunDirectoryError(
            f"{run.path} has logged no iteration yet, so there is nothing to compare with."
        )
    return rows


def reproducible_iterations(run: Run) -> tuple[int | None, str]:
    """Return how many iterations of a run can be reproduced, and why no more; None if all can be."""
    for stretch in run.stretches:
        if stretch.elsewhere:
            where = "; ".join(stretch.elsewhere)
            return (
                stretch.from_iteration,
                f"after iteration {stretch.from_iteration} it was continued on another setup ({where}), "
                "which changes the last bits",
            )
    noted = max(stretch.slowdowns for stretch in run.stretches)
    records = [*readable_records(run.milestones), *readable_records(run.checkpoints)]
    if max((record.slowdowns for record in records), default=0) > noted:
        # States saved before the first slowdown were computed from the config alone.
        before = max((record.iteration for record in records if record.slowdowns == 0), default=0)
        return (
            before,
            f"it diverged and slowed down after iteration {before} or later, but when exactly was not "
            "recorded",
        )
    return None, ""


def _all_saved(run: Run) -> dict[Saved, pathlib.Path]:
    """Return the folders of everything that a run saved, oldest first."""
    places = (("milestone", run.milestones), ("checkpoint", run.checkpoints), ("best policy", run.best))
    found = {Saved(steps_of(folder), kind): folder for kind, place in places for folder in folders(place)}
    return dict(sorted(found.items()))


def _compare_saved(
    run: Run, which: Saved, folder: pathlib.Path, moment: Moment
) -> tuple[int | None, list[str]]:
    """Return the number of compared arrays and a sentence for each mismatch.

    The number is None if the folder belongs to a part of the run that was trained again since.
    """
    learner = learner_for(run.config)
    template, ring = learner.detach_replay(state_template(run.config))
    mine, remembered = learner.detach_replay(moment.state)
    try:
        if which.kind == "checkpoint":
            record, state, stored = load(folder, run.config, template, ring)
            left = to_tensors(state) | _named("replay", stored)
            right = to_tensors(mine) | _named("replay", remembered)
        else:
            record, shown, _ = load(folder, run.config, jax.eval_shape(learner.insight, template))
            left, right = to_tensors(shown), to_tensors(learner.insight(mine))
    except (CheckpointError, ConfigError) as error:
        return 0, [str(error)]
    if which.kind == "best policy" and from_json(record.config).total_steps != moment.steps_asked:
        return None, []
    return len(left), [*_differing_counts(record, moment), *_differing_arrays(left, right)]


def _named(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    return {} if tree is None else {f"{prefix}.{name}": tensor for name, tensor in to_tensors(tree).items()}


def _differing_counts(record: Checkpoint, moment: Moment) -> list[str]:
    found = (
        []
        if record.iteration == moment.iteration
        else [f"its iteration is {record.iteration}, and {moment.iteration} when trained again"]
    )
    return (
        found
        if record.restarts == moment.restarts
        else [*found, "its counts of started episodes differ when trained again"]
    )


def _differing_arrays(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> list[str]:
    """Return a sentence about arrays that differ in any bit, if there are any."""
    different = [name for name in left if left[name].tobytes() != right[name].tobytes()]
    if not different:
        return []
    named = f"{', '.join(different[:SHOWN])}{', …' if len(different) > SHOWN else ''}"
    return [f"{len(different)} of {len(left)} arrays differ when trained again: {named}"]


def compare(
    logged: Sequence[dict[str, Any]], again: Sequence[dict[str, Any]]
) -> tuple[int, tuple[Difference, ...]]:
    """Return how many numbers were compared, and those that differ in any bit.

    A missing number counts as NaN.
    """
    numbers, differences = 0, []
    for row, other in zip(logged, again, strict=True):
        for name in sorted(row.keys() | other.keys()):
            if name.startswith((*CLOCKS, BESIDE)):
                continue
            numbers += 1
            left, right = (float(each.get(name, math.nan)) for each in (row, other))
            both_missing = math.isnan(left) and math.isnan(right) and name in row and name in other
            if left != right and not both_missing:
                differences.append(Difference(int(other["iteration"]), name, left, right))
    return numbers, tuple(differences)
