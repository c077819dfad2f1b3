"""The state of a sweep on disk: the status of its runs, and the jobs that are left."""

import dataclasses
import enum
import json
import os
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from costate._base.errors import RunDirectoryError
from costate._base.files import note_holder, output_folder, remove_file, try_lock, write_atomically
from costate.config.run_config import RunConfig, stored
from costate.experiments.spec import PlannedRun, SweepSpec
from costate.experiments.work import Job, failure_file, has_begun, read_failure
from costate.runs.checkpoint import newest_steps
from costate.runs.metrics_rows import parse_row
from costate.runs.run_directory import Run
from costate.trained.robustness import is_evaluated

MANIFEST = "sweep.json"
LOCK = "sweep.lock"


class Status(enum.Enum):
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    EVALUATING = "evaluating"
    FINISHED = "finished"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Standing:
    """Progress and status of one run."""

    planned: PlannedRun
    status: Status
    env_steps: int
    total_steps: int
    episode_return: float | None
    steps_per_second: float | None
    """Median over the newest iterations, so that a single pause does not distort the estimated time."""
    error: str | None


def standing(
    folder: pathlib.Path, spec: SweepSpec, planned: PlannedRun, *, running: bool = False
) -> Standing:
    """Read the status of a run from its folder alone, so that it does not matter who trains it, or where."""
    config = planned.config
    run = Run(folder / planned.folder, config)
    total = config.final_steps
    rows = _last_rows(run.metrics)
    row = rows[-1] if rows else {}
    speeds = [row["training/sps"] for row in rows if "training/sps" in row]
    # A run that was extended by hand has all the steps that the sweep asks for.
    steps, trained = int(row.get("env_steps", 0)), newest_steps(run.checkpoints) >= total
    total = max(total, steps)
    evaluated = all(
        is_evaluated(run, dropout, spec.evaluation.episodes) for dropout in spec.evaluation.dropouts
    )
    error = read_failure(folder, planned.folder)
    if running:
        status = Status.EVALUATING if trained else Status.RUNNING
    elif trained and evaluated:
        status = Status.FINISHED
    elif error is not None:
        status = Status.FAILED
    else:
        status = Status.INTERRUPTED if has_begun(run.path) else Status.WAITING
    return Standing(
        planned,
        status,
        steps,
        total,
        row.get("training/episode_reward"),
        statistics.median(speeds) if speeds else None,
        error,
    )


def jobs_left(folder: pathlib.Path, spec: SweepSpec, together: int, wandb: str | None = None) -> list[Job]:
    """Return the jobs that are still to do, in the order of the spec."""
    jobs = []
    for group in groups(spec, together):
        left = [
            planned
            for planned in group
            if standing(folder, spec, planned).status in (Status.WAITING, Status.INTERRUPTED)
        ]
        # A group continues together only if all of its runs are at the same step. Otherwise each continues
        # alone.
        in_step = (
            len(left) == len(group)
            and len({newest_steps(folder / planned.folder / "checkpoints") for planned in group}) == 1
        )
        jobs += [
            _job(folder, spec, part, wandb)
            for part in ([left] if in_step else [[planned] for planned in left])
        ]
    return jobs


def groups(spec: SweepSpec, together: int) -> list[list[PlannedRun]]:
    """Group runs that differ only in their seed, at most ``together`` per group.

    The groups depend on the spec alone, because the order of sums depends on them: an interrupted sweep
    continues with the same groups.
    """
    cells: dict[RunConfig, list[PlannedRun]] = {}
    for planned in spec.runs:
        cells.setdefault(dataclasses.replace(planned.config, seed=0), []).append(planned)
    return [
        cell[start : start + together] for cell in cells.values() for start in range(0, len(cell), together)
    ]


def _job(folder: pathlib.Path, spec: SweepSpec, group: Sequence[PlannedRun], wandb: str | None) -> Job:
    return Job(
        folder=str(folder.resolve()),
        runs=tuple(planned.folder for planned in group),
        configs=tuple(json.dumps(stored(planned.config)) for planned in group),
        cores=spec.resources.cores,
        dropouts=spec.evaluation.dropouts,
        episodes=spec.evaluation.episodes,
        wandb=wandb,
    )


def open_sweep(folder: pathlib.Path, spec: SweepSpec, places: int, *, retry_failed: bool) -> int:
    """Create the folder of a sweep, or reopen an existing one. Return how many seeds train together.

    The manifest tells a report how runs are named, and a later call how they are grouped. Failed runs stay
    failed unless ``retry_failed`` is true. ``places`` is the number of jobs that can run at once.
    """
    output_folder(folder)
    chosen = 2 if len(spec.runs) >= 2 * places else 1
    together = spec.resources.together or _together_before(folder, spec) or chosen
    document = {
        "format": 1,
        "name": spec.name,
        "description": spec.description,
        "source": spec.source,
        "together": together,
        "runs": [
            {"folder": p.folder, "variant": p.variant, "task": p.config.task, "seed": p.config.seed}
            for p in spec.runs
        ],
        "evaluation": dataclasses.asdict(spec.evaluation),
    }
    write_atomically(folder / MANIFEST, json.dumps(document, indent=1, ensure_ascii=False).encode())
    if retry_failed:
        for planned in spec.runs:
            remove_file(failure_file(folder, planned.folder))
    return together


def _together_before(folder: pathlib.Path, spec: SweepSpec) -> int | None:
    """Return the size of this sweep's groups when it began; None for a new sweep."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        same = [run["folder"] for run in manifest["runs"]] == [planned.folder for planned in spec.runs]
        return int(manifest["together"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Lock this folder against other sweeps inside this block.

    The lock ends with the process, however that happens.
    """
    lock = try_lock(folder / LOCK)
    if lock is None:
        who = (folder / LOCK).read_text().strip() or "unknown"
        raise RunDirectoryError(
            f"Another sweep is running in {folder} (process {who}). Wait for it, stop it with Ctrl-C, or "
            "choose another folder with --out."
        )
    with lock:
        note_holder(lock, str(os.getpid()), str.isdecimal)
        yield


def _last_rows(metrics: pathlib.Path) -> list[dict[str, Any]]:
    """Return about ten of the newest intact rows of a metrics file, read from its end."""
    try:
        with open(metrics, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        # The first line is cut off by the read, and the last one may be incomplete while it is written.
        row = parse_row(line)
        if row is not None:
            rows.append(row)
    return rows
