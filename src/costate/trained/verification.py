"""Is a run what its folder says? Iterations done again from its config and its seed alone, compared with its log and with all that was saved."""

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

# Clocks are the only numbers that differ between two runs of the same thing.
CLOCKS = ("time/", "training/sps")
# Episodes that are played beside training and do not affect it.
BESIDE = "eval/"
# Arrays that are named where they differ.
SHOWN = 3


class Difference(NamedTuple):
    """A number that came out differently."""

    iteration: int
    metric: str
    logged: float
    again: float


class Saved(NamedTuple):
    """What a run saved at some point."""

    env_steps: int
    kind: str
    """Checkpoint, milestone or best policy."""


class Altered(NamedTuple):
    """What was saved and is not what comes of training."""

    saved: Saved
    what: str


@dataclasses.dataclass(frozen=True)
class Verification:
    """What came of doing iterations of a run again."""

    iterations: int
    """That were done again, counted from the first."""
    numbers: int
    """Of the log that were compared."""
    differences: tuple[Difference, ...]
    machine: tuple[str, ...]
    """In what this machine differs from the one that made the run, as sentences."""
    logged: int = 0
    """Iterations of the run, by its log and by what it saved."""
    arrays: int = 0
    """That were compared in what was saved."""
    saved: tuple[Saved, ...] = ()
    """What of the saved was compared."""
    altered: tuple[Altered, ...] = ()
    """What of that is another."""
    unseen: tuple[Saved, ...] = ()
    """What was saved and not compared."""
    beside: int = 0
    """Numbers of evaluations during training in the log, which are not done again."""
    stopped: str = ""
    """Why no more can be done again; empty if all that was asked for was."""

    @property
    def same(self) -> bool:
        """Whether everything that was compared is the same, bit for bit."""
        return not self.differences and not self.altered

    @property
    def largest(self) -> float:
        """Relative size of the largest difference; infinite where a number is finite in one only."""
        sizes = [abs(d.logged - d.again) / max(abs(d.logged), abs(d.again), 1e-30) for d in self.differences]
        return max((size if math.isfinite(size) else math.inf for size in sizes), default=0.0)


def verify(run: Run, iterations: int | None = 2, tell: Tell = nobody) -> Verification:
    """Train the first ``iterations`` of a run again, all in its log if that is None; nothing is written."""
    if iterations is not None and iterations < 1:
        raise ConfigError(
            f"iterations is {iterations}, but at least 1 must be done again to compare anything."
        )
    rows, saved, per_iteration = (
        _rows_by_iteration(run),
        _all_saved(run),
        run.config.rollout.steps_per_iteration,
    )
    # A log that was cut off ends before what was saved after it.
    reached = min(max(step // per_iteration for step, _ in saved), run.config.iterations) if saved else 0
    length = max(max(rows), reached)
    asked = length if iterations is None else min(iterations, length)
    reach, reason = possible(run)
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
            compared, faults = _compare_saved(run, which, folder, moment)
            if compared is None:
                continue
            looked_at.append(which)
            arrays += compared
            altered += [Altered(which, fault) for fault in faults]
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
    """The rows of the log by their iterations; one that is missing is found by comparing."""
    rows: dict[int, dict[str, Any]] = {}
    for number, row in enumerate(run.read_metrics(), 1):
        iteration = row.get("iteration") if isinstance(row, dict) else None
        if type(iteration) is not int or iteration < 1 or iteration in rows:
            raise RunDirectoryError(
                f"Row {number} of {run.metrics} is that of iteration {iteration}, but rows have the iterations 1, 2, 3, … once each. "
                "The file was altered or damaged; put back the one that `costate train` wrote."
            )
        rows[iteration] = row
    if not rows:
        raise RunDirectoryError(
            f"{run.path} has logged no iteration yet, so that there is nothing to compare with."
        )
    return rows


def possible(run: Run) -> tuple[int | None, str]:
    """How many iterations can be done again by the history of a run, and why no more; None if all can be."""
    for stretch in run.stretches:
        if stretch.elsewhere:
            where = "; ".join(stretch.elsewhere)
            return (
                stretch.from_iteration,
                f"after iteration {stretch.from_iteration} it was continued elsewhere ({where}), with other last bits",
            )
    noted = max(stretch.slowdowns for stretch in run.stretches)
    records = [*readable_records(run.milestones), *readable_records(run.checkpoints)]
    if max((record.slowdowns for record in records), default=0) > noted:
        # Whatever was saved before the first time was computed from the config alone, and so was all that led to it.
        before = max((record.iteration for record in records if record.slowdowns == 0), default=0)
        return (
            before,
            f"it diverged and slowed down by itself after iteration {before} or later, and nothing was noted of when",
        )
    return None, ""


def _all_saved(run: Run) -> dict[Saved, pathlib.Path]:
    """The folders of everything that a run saved, oldest first."""
    places = (("milestone", run.milestones), ("checkpoint", run.checkpoints), ("best policy", run.best))
    found = {Saved(steps_of(folder), kind): folder for kind, place in places for folder in folders(place)}
    return dict(sorted(found.items()))


def _compare_saved(
    run: Run, which: Saved, folder: pathlib.Path, moment: Moment
) -> tuple[int | None, list[str]]:
    """How many arrays were compared, and what is not as it should be; None if the folder is of a part of the run that was trained again since."""
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
        else [*found, "its counts of episodes that were started differ when trained again"]
    )


def _differing_arrays(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> list[str]:
    """A sentence about arrays that differ in any bit, if there are any."""
    different = [name for name in left if left[name].tobytes() != right[name].tobytes()]
    if not different:
        return []
    named = f"{', '.join(different[:SHOWN])}{', …' if len(different) > SHOWN else ''}"
    return [f"{len(different)} of {len(left)} arrays differ when trained again: {named}"]


def compare(
    logged: Sequence[dict[str, Any]], again: Sequence[dict[str, Any]]
) -> tuple[int, tuple[Difference, ...]]:
    """How many numbers there are, and which of them differ in any bit. One that is missing in either counts as not a number."""
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
