"""Read a folder of runs for a report, without writing anything.

Runs that cannot be reported are listed with the reason.
"""

import dataclasses
import functools
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from costate._base.checks import printable
from costate._base.errors import CostateError, RunDirectoryError
from costate.config.run_config import RunConfig, apart_from, config_hash
from costate.envs.tasks import PAPER_TASKS
from costate.experiments.statistics import Curve
from costate.experiments.sweep import MANIFEST
from costate.experiments.work import read_failure
from costate.runs.checkpoint import newest_steps
from costate.runs.run_directory import CONFIG_FILE, Run, open_run
from costate.trained.evaluation import DRAWS, Evaluation, read_evaluation, sensors_at

RETURN = "training/episode_reward"
COSTATE = "losses/costate"
SPREAD = "costate/spread"
# Number of points in the paper's moving average of learning curves, and in the score at the end of training.
WINDOW = 30


def window_of(curves: Sequence[Curve]) -> int:
    """Return the paper's window, or a quarter of the longest curve if that is shorter.

    Off-policy runs end few episodes, so their curves are short.
    """
    return min(WINDOW, max(1, max(len(curve.steps) for curve in curves) // 4))


def end_of(curve: Curve) -> float:
    """Return the mean of the last points of a curve."""
    return float(curve.values[-window_of([curve]) :].mean())


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run that can be reported."""

    run: Run
    variant: str
    rows: tuple[dict[str, Any], ...]
    evaluations: tuple[Evaluation, ...]
    """Evaluations of the newest checkpoint, ordered by blackout probability."""
    finished: bool
    """True if the run has used up its budget."""
    failure: str | None
    """The error that ended the run, if a sweep recorded one."""

    @property
    def config(self) -> RunConfig:
        return self.run.config

    @property
    def env_steps(self) -> int:
        return int(self.rows[-1]["env_steps"]) if self.rows else 0

    @property
    def label(self) -> str:
        return f"{self.config.task} {self.variant} seed {self.config.seed}"

    @property
    def hours(self) -> float:
        """This run's share of the time in iterations, which seeds that train together divide equally.

        Compiling and waiting are not counted.
        """
        return float(sum(_seconds(row) for row in self.rows)) / 3600.0 / len(self.run.seeds_together)

    def curve(self, metric: str) -> Curve | None:
        """Return a metric over environment steps, without iterations that lack it; None if all do."""
        known = [(row["env_steps"], row[metric]) for row in self.rows if metric in row]
        return (
            Curve(np.array([s for s, _ in known], float), np.array([v for _, v in known], float))
            if known
            else None
        )

    def evaluation(self, dropout: float) -> Evaluation | None:
        return next((evaluation for evaluation in self.evaluations if evaluation.dropout == dropout), None)

    @property
    def final_training_return(self) -> float:
        """Mean of the last points of the learning curve: noisy actions, training blackouts.

        NaN if no episode ended.
        """
        curve = self.curve(RETURN)
        return end_of(curve) if curve else float("nan")


@dataclasses.dataclass(frozen=True)
class Collection:
    """All runs of a report, and the problems found while reading them."""

    name: str
    description: str
    entries: tuple[Entry, ...]
    broken: tuple[tuple[str, str], ...]
    """Runs that cannot be reported, with the reason."""
    incomplete: tuple[tuple[str, str], ...] = ()
    """Runs that are reported in part, with the part that is missing."""

    @functools.cached_property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of the runs: the paper's in its order, then the others."""
        found = {entry.config.task for entry in self.entries}
        return tuple(task for task in PAPER_TASKS if task in found) + tuple(sorted(found - set(PAPER_TASKS)))

    @functools.cached_property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.variant for entry in self.entries))

    def cell(self, task: str, variant: str) -> list[Entry]:
        """Return the runs that differ only in their seed, finished or not."""
        return [entry for entry in self.entries if entry.config.task == task and entry.variant == variant]

    def finished(self, task: str, variant: str) -> list[Entry]:
        """Return the runs of a cell that have used up their budgets. Only these are scored."""
        return [entry for entry in self.cell(task, variant) if entry.finished]

    def evaluated(self, task: str, variant: str) -> list[Entry]:
        """Return the finished runs of a cell that were evaluated at all of ``dropouts``."""
        return [
            entry
            for entry in self.finished(task, variant)
            if entry.evaluations and not _lacking(entry, self.dropouts)
        ]

    @functools.cached_property
    def dropouts(self) -> tuple[float, ...]:
        """Blackout probabilities at which at least half of the finished runs of every cell were evaluated.

        A run that lacks one of them is left out where that evaluation is needed.
        """
        return _common_dropouts(self.entries)


def _common_dropouts(entries: Sequence[Entry]) -> tuple[float, ...]:
    cells: dict[tuple[str, str], list[set[float]]] = {}
    for entry in entries:
        if entry.finished and entry.evaluations:
            cells.setdefault((entry.config.task, entry.variant), []).append(
                {evaluation.dropout for evaluation in entry.evaluations}
            )
    common = [
        {
            dropout
            for grid in grids
            for dropout in grid
            if 2 * sum(dropout in other for other in grids) >= len(grids)
        }
        for grids in cells.values()
    ]
    return tuple(sorted(set.intersection(*common))) if common else ()


def _lacking(entry: Entry, dropouts: Sequence[float]) -> list[float]:
    """Return those of ``dropouts`` at which a run was not evaluated."""
    return [dropout for dropout in dropouts if entry.evaluation(dropout) is None]


def _seconds(row: dict[str, Any]) -> float:
    """Return the duration of an iteration. Older logs contain only its parts."""
    return float(row.get("time/iteration", row.get("time/collect", 0.0) + row.get("time/update", 0.0)))


def read_collection(folder: pathlib.Path) -> Collection:
    """Read all runs below a folder. Raise only if none can be reported."""
    if not folder.is_dir():
        raise RunDirectoryError(
            f"There is no folder {folder}. Give a folder of runs, for example one that `costate sweep` "
            "created."
        )
    manifest = read_manifest(folder)
    entries: list[Entry] = []
    broken: list[tuple[str, str]] = []
    incomplete: list[tuple[str, str]] = []
    for path in sorted(_run_folders(folder)):
        found = _read_entry(path, manifest if path.parent == folder else read_manifest(path.parent))
        name = str(path.relative_to(folder))
        if isinstance(found, str):
            broken.append((name, found))
            continue
        entry, problems = found
        twin = next((other for other in entries if other.config == entry.config), None)
        if twin is not None:
            broken.append(
                (
                    name,
                    f"its config is that of {twin.run.path.relative_to(folder)}, and a run counts only once",
                )
            )
            continue
        entries.append(entry)
        incomplete += [(name, problem) for problem in problems]
    broken += _missing(
        folder, manifest, {entry.run.path.name for entry in entries} | {name for name, _ in broken}
    )
    common, explained = _common_dropouts(entries), {name for name, _ in incomplete}
    for entry in entries:
        lacking = (
            _lacking(entry, common)
            if entry.finished and str(entry.run.path.relative_to(folder)) not in explained
            else []
        )
        if lacking:
            which = ", ".join(f"{dropout:.4g}" for dropout in lacking)
            incomplete.append(
                (
                    str(entry.run.path.relative_to(folder)),
                    f"it has not been evaluated at {which} blackout, unlike the other runs",
                )
            )
    if not entries:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in broken[:5])
        raise RunDirectoryError(
            f"{folder} holds no run that can be reported{f' ({reasons})' if reasons else ''}. Train a run "
            "first."
        )
    order = {record["folder"]: i for i, record in enumerate(manifest["runs"])}
    entries.sort(
        key=lambda entry: (
            order.get(entry.run.path.name, len(order)),
            entry.config.task,
            entry.variant,
            entry.config.seed,
        )
    )
    name = manifest["name"] or folder.resolve().name
    return Collection(
        name,
        manifest["description"],
        tuple(_with_distinct_variants(entries)),
        tuple(broken),
        tuple(incomplete),
    )


def _run_folders(folder: pathlib.Path) -> set[pathlib.Path]:
    """Return the folders of runs, including what looks like the remains of one."""
    marks = (CONFIG_FILE, "metrics.jsonl", "checkpoints")
    found = {path.parent for mark in marks for path in folder.glob(f"**/{mark}")}
    return {
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def _with_distinct_variants(entries: Sequence[Entry]) -> list[Entry]:
    """Add the budget or a hash to the variant of entries that differ in more than their seed."""
    cells: dict[tuple[str, str], set[RunConfig]] = {}
    for entry in entries:
        cells.setdefault((entry.config.task, entry.variant), set()).add(
            dataclasses.replace(entry.config, seed=0)
        )
    result = []
    for entry in entries:
        kinds = cells[entry.config.task, entry.variant]
        only_budget = len({apart_from(config, "steps") for config in kinds}) == 1
        mark = (
            f"{entry.config.total_steps / 1e6:g} M steps"
            if only_budget
            else config_hash(dataclasses.replace(entry.config, seed=0))[:6]
        )
        result.append(
            dataclasses.replace(entry, variant=f"{entry.variant} ({mark})") if len(kinds) > 1 else entry
        )
    return result


def _read_entry(path: pathlib.Path, manifest: dict[str, Any]) -> tuple[Entry, list[str]] | str:
    """Return a run and its problems, or the reason why it cannot be reported."""
    try:
        run = open_run(path)
        config = run.config
        # Read before the log, because a run in training writes its log before its checkpoint.
        newest = newest_steps(run.checkpoints)
        log = run.read_log()
        rows = log.rows
        failure = read_failure(path.parent, path.name)
        logged = rows[-1]["env_steps"] if rows else 0
        if logged < newest:
            return (
                f"its log was cut or damaged: metrics.jsonl has no row after {logged:,} steps, "
                f"but it was trained to {newest:,} steps"
            )
        if any(later["env_steps"] <= earlier["env_steps"] for earlier, later in itertools.pairwise(rows)):
            return "its log is not in order: rows of metrics.jsonl were repeated or moved"
        if not rows and failure is None:
            return "it has no metrics: training did not finish an iteration"
        evaluations, problems = _read_evaluations(run, newest, manifest["episodes"])
        variant = next(
            (record["variant"] for record in manifest["runs"] if record["folder"] == path.name), run.variant
        )
        problems += [*filter(None, [log.complaint]), *_gaps(rows)]
        return Entry(run, variant, rows, evaluations, newest == config.final_steps, failure), problems
    except (CostateError, OSError, ValueError, TypeError, KeyError) as error:
        return printable(str(error)) or type(error).__name__


def _gaps(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Describe the iterations that a log lacks, because lines were lost or moved aside."""
    numbers = [0, *(row.get("iteration", place) for place, row in enumerate(rows, start=1))]
    lost = [(before + 1, after - 1) for before, after in itertools.pairwise(numbers) if after > before + 1]
    if lost:
        which = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in lost[:5])
        one = len(lost) == 1 and lost[0][0] == lost[0][1]
        others = " and others" if len(lost) > 5 else ""
        yield f"its log has gaps: metrics.jsonl lacks iteration{'' if one else 's'} {which}{others}"


def _read_evaluations(
    run: Run, newest: int, planned_episodes: int | None
) -> tuple[tuple[Evaluation, ...], list[str]]:
    """Return the evaluation of the newest checkpoint at every blackout probability, and the problems found.

    If there are several, the planned one is chosen, else the one with most episodes. Evaluations under other
    faults than in training are not comparable and are left out.
    """
    problems, chosen = [], dict[float, Evaluation]()

    def rank(evaluation: Evaluation) -> tuple[bool, int, int]:
        return len(evaluation.returns) == planned_episodes, len(evaluation.returns), -evaluation.seed

    for file in sorted(run.evaluations.glob("*.json")):
        evaluation = read_evaluation(file)
        if evaluation is None:
            problems.append(f"its evaluation {file.name} cannot be read and is left out")
        elif (
            evaluation.env_steps == newest
            and evaluation.faults == sensors_at(run.config, evaluation.dropout).other_faults
            and (evaluation.dropout not in chosen or rank(evaluation) > rank(chosen[evaluation.dropout]))
        ):
            chosen[evaluation.dropout] = evaluation
    older = [f"{dropout:.4g}" for dropout in sorted(chosen) if chosen[dropout].draws != DRAWS]
    if 0 < len(older) < len(chosen):
        problems.append(
            f"its evaluations at {', '.join(older)} blackout were made by an earlier version of costate, "
            "with other random blackouts than the rest; evaluate again to make them comparable"
        )
    return tuple(chosen[dropout] for dropout in sorted(chosen)), problems


def _missing(folder: pathlib.Path, manifest: dict[str, Any], seen: set[str]) -> list[tuple[str, str]]:
    """Return the runs of a sweep that have nothing to report, with the reason."""
    found = []
    for record in manifest["runs"]:
        if record["folder"] not in seen:
            error = read_failure(folder, record["folder"])
            what = f"{record['task']} {record['variant']} seed {record['seed']}"
            found.append(
                (record["folder"], f"not started: {what}" if error is None else f"failed: {what}: {error}")
            )
    return found


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Read the record that a sweep wrote about its runs; empty for other folders, or if it cannot be read."""
    empty: dict[str, Any] = {"name": "", "description": "", "runs": [], "episodes": None}
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        # Names are made printable, since the file is untrusted.
        records = [
            {
                "folder": str(r["folder"]),
                "variant": printable(str(r["variant"])),
                "task": r["task"],
                "seed": r["seed"],
            }
            for r in manifest["runs"]
        ]
        episodes = manifest.get("evaluation", {}).get("episodes")
        name, description = (printable(str(manifest[key])) for key in ("name", "description"))
        return {"name": name, "description": description, "runs": records, "episodes": episodes}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return empty
