"""A folder of runs, read for a report: what can be used, and what cannot with the reason why. Nothing is written here."""

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
# Points of a learning curve over which the paper averages, and over which the end of training is judged.
WINDOW = 30


def window_of(curves: Sequence[Curve]) -> int:
    """The paper's, or a quarter of the longest curve if that is shorter: off-policy, few episodes end."""
    return min(WINDOW, max(1, max(len(curve.steps) for curve in curves) // 4))


def end_of(curve: Curve) -> float:
    """Mean of the last points of a curve."""
    return float(curve.values[-window_of([curve]) :].mean())


@dataclasses.dataclass(frozen=True)
class Entry:
    """One run that can be reported."""

    run: Run
    variant: str
    rows: tuple[dict[str, Any], ...]
    evaluations: tuple[Evaluation, ...]
    """Of the newest checkpoint only, in the order of their blackout probabilities."""
    finished: bool
    """Whether it has used up its budget."""
    failure: str | None
    """The error that ended it, if a sweep recorded one."""

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
        """Its share of the time spent in iterations by the seeds that trained together; compiling and waiting are not counted."""
        return float(sum(_seconds(row) for row in self.rows)) / 3600.0 / len(self.run.seeds_together)

    def curve(self, metric: str) -> Curve | None:
        """A metric over environment steps, without the iterations that have none; None if no iteration has it."""
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
        """Mean of the last points of the learning curve: noisy actions, training blackouts. NaN if no episode ended."""
        curve = self.curve(RETURN)
        return end_of(curve) if curve else float("nan")


@dataclasses.dataclass(frozen=True)
class Collection:
    """Everything that a report is made of."""

    name: str
    description: str
    entries: tuple[Entry, ...]
    broken: tuple[tuple[str, str], ...]
    """Runs that cannot be reported, with the reason."""
    incomplete: tuple[tuple[str, str], ...] = ()
    """Runs that are reported, and what of them is not."""

    @functools.cached_property
    def tasks(self) -> tuple[str, ...]:
        """In the paper's order, others behind."""
        found = {entry.config.task for entry in self.entries}
        return tuple(task for task in PAPER_TASKS if task in found) + tuple(sorted(found - set(PAPER_TASKS)))

    @functools.cached_property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.variant for entry in self.entries))

    def cell(self, task: str, variant: str) -> list[Entry]:
        """Runs that differ only in their seed, as far as they have come."""
        return [entry for entry in self.entries if entry.config.task == task and entry.variant == variant]

    def finished(self, task: str, variant: str) -> list[Entry]:
        """Those of a cell that have used up their budgets; only they are scored."""
        return [entry for entry in self.cell(task, variant) if entry.finished]

    def evaluated(self, task: str, variant: str) -> list[Entry]:
        """Those of them that have been evaluated at all of ``dropouts``."""
        return [
            entry
            for entry in self.finished(task, variant)
            if entry.evaluations and not _lacking(entry, self.dropouts)
        ]

    @functools.cached_property
    def dropouts(self) -> tuple[float, ...]:
        """Blackout probabilities at which every variant was evaluated on every task, by at least half of its finished runs; a run that lacks one of
        them is left out where it is needed.
        """
        return _usual_dropouts(self.entries)


def _usual_dropouts(entries: Sequence[Entry]) -> tuple[float, ...]:
    cells: dict[tuple[str, str], list[set[float]]] = {}
    for entry in entries:
        if entry.finished and entry.evaluations:
            cells.setdefault((entry.config.task, entry.variant), []).append(
                {evaluation.dropout for evaluation in entry.evaluations}
            )
    usual = [
        {
            dropout
            for grid in grids
            for dropout in grid
            if 2 * sum(dropout in other for other in grids) >= len(grids)
        }
        for grids in cells.values()
    ]
    return tuple(sorted(set.intersection(*usual))) if usual else ()


def _lacking(entry: Entry, dropouts: Sequence[float]) -> list[float]:
    """Of some blackout probabilities those at which a run was not evaluated."""
    return [dropout for dropout in dropouts if entry.evaluation(dropout) is None]


def _seconds(row: dict[str, Any]) -> float:
    """Of an iteration; older logs know only its parts."""
    return float(row.get("time/iteration", row.get("time/collect", 0.0) + row.get("time/update", 0.0)))


def read_collection(folder: pathlib.Path) -> Collection:
    """All runs below a folder; raises only if there is none that can be reported."""
    if not folder.is_dir():
        raise RunDirectoryError(
            f"There is no folder {folder}. Give a folder of runs, for example one that `costate sweep` made."
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
                (name, f"the same config as {twin.run.path.relative_to(folder)}, and a run counts once")
            )
            continue
        entries.append(entry)
        incomplete += [(name, problem) for problem in problems]
    broken += _missing(
        folder, manifest, {entry.run.path.name for entry in entries} | {name for name, _ in broken}
    )
    usual, explained = _usual_dropouts(entries), {name for name, _ in incomplete}
    for entry in entries:
        lacking = (
            _lacking(entry, usual)
            if entry.finished and str(entry.run.path.relative_to(folder)) not in explained
            else []
        )
        if lacking:
            which = ", ".join(f"{dropout:.4g}" for dropout in lacking)
            incomplete.append(
                (
                    str(entry.run.path.relative_to(folder)),
                    f"it has not been evaluated at {which} blackout, as the others have",
                )
            )
    if not entries:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in broken[:5])
        raise RunDirectoryError(
            f"{folder} holds no run that can be reported{f' ({reasons})' if reasons else ''}. Train some first."
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
        name, manifest["description"], tuple(_told_apart(entries)), tuple(broken), tuple(incomplete)
    )


def _run_folders(folder: pathlib.Path) -> set[pathlib.Path]:
    """Folders of runs, and what looks like the remains of one."""
    marks = (CONFIG_FILE, "metrics.jsonl", "checkpoints")
    found = {path.parent for mark in marks for path in folder.glob(f"**/{mark}")}
    return {
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def _told_apart(entries: Sequence[Entry]) -> list[Entry]:
    """Entries whose variant names what they share: runs of one name that differ in more than their seed get their budget or hash into it."""
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
    """A run with what is wrong about it, or why it cannot be reported at all."""
    try:
        run = open_run(path)
        config = run.config
        # Before the log, which a run that is being trained writes first.
        newest = newest_steps(run.checkpoints)
        log = run.read_log()
        rows = log.rows
        failure = read_failure(path.parent, path.name)
        logged = rows[-1]["env_steps"] if rows else 0
        if logged < newest:
            return f"its log was cut or damaged: metrics.jsonl has no row after {logged:,} steps, but it was trained to {newest:,} steps"
        if any(later["env_steps"] <= earlier["env_steps"] for earlier, later in itertools.pairwise(rows)):
            return "its log is not in order: rows of metrics.jsonl were repeated or moved"
        if not rows and failure is None:
            return "it has no metrics: training had not finished an iteration"
        evaluations, problems = _read_evaluations(run, newest, manifest["episodes"])
        variant = next(
            (record["variant"] for record in manifest["runs"] if record["folder"] == path.name), run.variant
        )
        problems += [*filter(None, [log.complaint]), *_gaps(rows)]
        return Entry(run, variant, rows, evaluations, newest == config.final_steps, failure), problems
    except (CostateError, OSError, ValueError, TypeError, KeyError) as error:
        return printable(str(error)) or type(error).__name__


def _gaps(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Iterations that a log does not have, in words: lines were lost or set aside."""
    numbers = [0, *(row.get("iteration", place) for place, row in enumerate(rows, start=1))]
    lost = [(before + 1, after - 1) for before, after in itertools.pairwise(numbers) if after > before + 1]
    if lost:
        which = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in lost[:5])
        one = len(lost) == 1 and lost[0][0] == lost[0][1]
        yield f"its log has gaps: metrics.jsonl lacks iteration{'' if one else 's'} {which}{' and others' if len(lost) > 5 else ''}"


def _read_evaluations(
    run: Run, newest: int, planned_episodes: int | None
) -> tuple[tuple[Evaluation, ...], list[str]]:
    """The evaluation of the newest checkpoint for every blackout probability: the planned one, else the one with most episodes.

    Those under other faults than in training are not comparable with them and are left out.
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
            f"its evaluations at {', '.join(older)} blackout were made by an earlier version of costate, which drew other blackouts than for the "
            "others; evaluate again to compare like with like"
        )
    return tuple(chosen[dropout] for dropout in sorted(chosen)), problems


def _missing(folder: pathlib.Path, manifest: dict[str, Any], seen: set[str]) -> list[tuple[str, str]]:
    """Runs of a sweep of which there is nothing to report."""
    found = []
    for record in manifest["runs"]:
        if record["folder"] not in seen:
            error = read_failure(folder, record["folder"])
            what = f"{record['task']} {record['variant']} seed {record['seed']}"
            found.append(
                (record["folder"], f"not begun: {what}" if error is None else f"failed: {what}: {error}")
            )
    return found


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """What a sweep wrote about its runs; an empty one for any other folder, or if it cannot be read."""
    empty: dict[str, Any] = {"name": "", "description": "", "runs": [], "episodes": None}
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        # Names are printed, and anybody may have written this file.
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
