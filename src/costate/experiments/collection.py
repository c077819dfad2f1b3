"""A folder of runs, read for a report: what can be used, and what cannot with the reason why. Nothing is written here."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from costate._errors import CostateError, RunDirectoryError
from costate.checkpoint import folders
from costate.config import RunConfig, variant_name
from costate.envs.tasks import PAPER_TASKS
from costate.evaluation import Evaluation, read_evaluation
from costate.experiments.statistics import Curve
from costate.experiments.sweep import MANIFEST
from costate.experiments.work import read_failure
from costate.run_directory import CONFIG_FILE, Run, open_run

RETURN = "training/episode_reward"
COSTATE = "losses/costate"
# Points of a learning curve over which the paper averages, and over which the end of training is judged.
WINDOW = 30


@dataclasses.dataclass(frozen=True)
class Entry:
    """One run that can be reported."""

    run: Run
    variant: str
    rows: tuple[dict[str, Any], ...]
    evaluations: tuple[Evaluation, ...]
    """Of the newest checkpoint only, in the order of their blackout probabilities."""
    finished: bool

    @property
    def config(self) -> RunConfig:
        return self.run.config

    @property
    def env_steps(self) -> int:
        return int(self.rows[-1]["env_steps"])

    @property
    def hours(self) -> float:
        """Its share of the time spent in iterations by the seeds that trained together; compiling and waiting are not counted."""
        return float(sum(row.get("time/collect", 0.0) + row.get("time/update", 0.0) for row in self.rows)) / 3600.0 / len(self.run.seeds_together)

    def curve(self, metric: str) -> Curve | None:
        """A metric over environment steps, without the iterations that have none; None if no iteration has it."""
        known = [(row["env_steps"], row[metric]) for row in self.rows if metric in row]
        return Curve(np.array([s for s, _ in known], float), np.array([v for _, v in known], float)) if known else None

    def evaluation(self, dropout: float) -> Evaluation | None:
        return next((evaluation for evaluation in self.evaluations if evaluation.dropout == dropout), None)

    @property
    def final_training_return(self) -> float:
        """Mean of the last points of the learning curve: noisy actions, training blackouts. NaN if no episode ended."""
        curve = self.curve(RETURN)
        return float(np.mean(curve.values[-WINDOW:])) if curve else float("nan")


@dataclasses.dataclass(frozen=True)
class Collection:
    """Everything that a report is made of."""

    name: str
    description: str
    entries: tuple[Entry, ...]
    broken: tuple[tuple[str, str], ...]
    """Runs that cannot be reported, with the reason."""

    @functools.cached_property
    def tasks(self) -> tuple[str, ...]:
        """In the paper's order, others behind."""
        found = {entry.config.task for entry in self.entries}
        return tuple(task for task in PAPER_TASKS if task in found) + tuple(sorted(found - set(PAPER_TASKS)))

    @functools.cached_property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.variant for entry in self.entries))

    def cell(self, task: str, variant: str) -> list[Entry]:
        """Runs that differ only in their seed."""
        return [entry for entry in self.entries if entry.config.task == task and entry.variant == variant]

    @functools.cached_property
    def dropouts(self) -> tuple[float, ...]:
        """Blackout probabilities at which any run was evaluated."""
        return tuple(sorted({evaluation.dropout for entry in self.entries for evaluation in entry.evaluations}))


def read_collection(folder: pathlib.Path) -> Collection:
    """All runs below a folder; raises only if there is none that can be reported."""
    if not folder.is_dir():
        raise RunDirectoryError(f"There is no folder {folder}. Give a folder of runs, for example one that `costate sweep` made.")
    manifest = _read_manifest(folder)
    names = {record["folder"]: record["variant"] for record in manifest["runs"]}
    paths = sorted(file.parent for file in folder.glob(f"**/{CONFIG_FILE}") if not file.parent.name.startswith("."))
    entries, broken = [], []
    for path in paths:
        entry = _read_entry(path, names.get(path.name))
        if isinstance(entry, Entry):
            entries.append(entry)
        else:
            broken.append((str(path.relative_to(folder)), entry))
    broken += _failures(folder, manifest["runs"])
    begun = {path.name for path in paths} | {name for name, _ in broken}
    missing = [record for record in manifest["runs"] if record["folder"] not in begun]
    broken += [(record["folder"], f"not begun: {record['task']} {record['variant']} seed {record['seed']}") for record in missing]
    if not entries:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in broken[:5])
        raise RunDirectoryError(f"{folder} holds no run that can be reported{f' ({reasons})' if reasons else ''}. Train some first.")
    order = {record["folder"]: i for i, record in enumerate(manifest["runs"])}
    entries.sort(key=lambda entry: (order.get(entry.run.path.name, len(order)), entry.config.task, entry.variant, entry.config.seed))
    return Collection(manifest["name"] or folder.resolve().name, manifest["description"], tuple(entries), tuple(broken))


def _read_entry(path: pathlib.Path, variant: str | None) -> Entry | str:
    """A run, or why it cannot be reported."""
    try:
        run = open_run(path)
    except CostateError as error:
        return str(error)
    try:
        rows = tuple(row for row in run.read_metrics() if "env_steps" in row)
    except (OSError, ValueError, TypeError) as error:
        return f"its metrics cannot be read: {error}"
    if not rows:
        return "it has no metrics: training had not finished an iteration"
    config = run.config
    total = config.iterations * config.rollout.steps_per_iteration
    saved = folders(run.checkpoints)
    newest = int(saved[-1].name.removeprefix("step_")) if saved else 0
    found = [read_evaluation(file) for file in sorted(run.evaluations.glob("*.json"))]
    evaluations = {evaluation.dropout: evaluation for evaluation in found if evaluation is not None and evaluation.env_steps == newest}
    ordered = tuple(evaluations[dropout] for dropout in sorted(evaluations))
    return Entry(run, variant or variant_name(config), rows, ordered, newest == total)


def _failures(folder: pathlib.Path, records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    known = [(record, read_failure(folder, record["folder"])) for record in records]
    return [(r["folder"], f"failed: {r['task']} {r['variant']} seed {r['seed']}: {error}") for r, error in known if error is not None]


def _read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """What a sweep wrote about its runs; an empty one for any other folder, or if it cannot be read."""
    empty: dict[str, Any] = {"name": "", "description": "", "runs": []}
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        records = [{"folder": str(r["folder"]), "variant": str(r["variant"]), "task": r["task"], "seed": r["seed"]} for r in manifest["runs"]]
        return {"name": str(manifest["name"]), "description": str(manifest["description"]), "runs": records}
    except (OSError, ValueError, KeyError, TypeError):
        return empty
