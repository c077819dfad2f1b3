"""A sweep on disk: which of its runs are finished, interrupted, failed or not begun, and which jobs are left."""

import dataclasses
import enum
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from costate._errors import RunDirectoryError
from costate._files import explained_errors, remove, write_atomically
from costate.checkpoint import folders
from costate.config import to_json
from costate.evaluation import find_evaluation
from costate.experiments.spec import PlannedRun, SweepSpec
from costate.experiments.work import Job, failure_file, read_failure
from costate.run_directory import CONFIG_FILE, Run

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
    """How far one run is."""

    planned: PlannedRun
    status: Status
    env_steps: int
    total_steps: int
    episode_return: float | None
    steps_per_second: float | None
    """Of the newest iteration."""
    error: str | None


def standing(folder: pathlib.Path, spec: SweepSpec, planned: PlannedRun, *, running: bool = False) -> Standing:
    """Read how far a run is from its folder alone, so that it does not matter who trains it, or where."""
    config = planned.config
    run = Run(folder / planned.folder, config)
    total = config.iterations * config.rollout.steps_per_iteration
    row = _last_row(run.metrics)
    steps, trained = int(row.get("env_steps", 0)), (run.checkpoints / f"step_{total:012d}").is_dir()
    evaluated = all(find_evaluation(run, dropout, spec.evaluation.episodes) is not None for dropout in spec.evaluation.dropouts)
    error = read_failure(folder, planned.folder)
    begun = (run.path / CONFIG_FILE).is_file() and bool(folders(run.checkpoints))
    if running:
        status = Status.EVALUATING if trained else Status.RUNNING
    elif trained and evaluated:
        status = Status.FINISHED
    elif error is not None:
        status = Status.FAILED
    else:
        status = Status.INTERRUPTED if begun else Status.WAITING
    return Standing(planned, status, steps, total, row.get("training/episode_reward"), row.get("training/sps"), error)


def jobs_left(folder: pathlib.Path, spec: SweepSpec, places: int) -> list[Job]:
    """What is still to be done, in the order of the spec, for so many jobs at once; seeds of one cell together where that pays."""
    left = [planned for planned in spec.runs if standing(folder, spec, planned).status in (Status.WAITING, Status.INTERRUPTED)]
    together = spec.resources.together or (2 if len(left) >= 2 * places else 1)
    return [_job(folder, spec, group) for group in _groups(folder, left, together)]


def _groups(folder: pathlib.Path, runs: Sequence[PlannedRun], together: int) -> Iterator[list[PlannedRun]]:
    """Runs that differ only in their seed: at most ``together`` new ones, and those that were begun in the groups in which they were begun."""
    cells: dict[Any, list[PlannedRun]] = {}
    for planned in runs:
        key = dataclasses.replace(planned.config, seed=0), _begun_with(folder, planned)
        cells.setdefault(key, []).append(planned)
    for (_, begun_with), cell in cells.items():
        whole = {planned.config.seed for planned in cell} == set(begun_with)
        size = len(cell) if whole else 1 if begun_with else together
        for start in range(0, len(cell), size):
            yield cell[start : start + size]


def _begun_with(folder: pathlib.Path, planned: PlannedRun) -> tuple[int, ...]:
    """Seeds that a run was started together with; none if it has not been started."""
    run = Run(folder / planned.folder, planned.config)
    return run.seeds_together if (run.path / CONFIG_FILE).is_file() and folders(run.checkpoints) else ()


def _job(folder: pathlib.Path, spec: SweepSpec, group: Sequence[PlannedRun]) -> Job:
    return Job(
        folder=str(folder.resolve()),
        runs=tuple(planned.folder for planned in group),
        configs=tuple(json.dumps(to_json(planned.config)) for planned in group),
        cores=spec.resources.cores,
        dropouts=spec.evaluation.dropouts,
        episodes=spec.evaluation.episodes,
    )


def open_sweep(folder: pathlib.Path, spec: SweepSpec, *, retry_failed: bool) -> None:
    """Make the folder of a sweep, or take up one that is there; the manifest tells a report how runs are named.

    Runs that failed stay so, unless ``retry_failed`` says that they are to be tried again.
    """
    with explained_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": 1,
        "name": spec.name,
        "description": spec.description,
        "source": spec.source,
        "runs": [{"folder": p.folder, "variant": p.variant, "task": p.config.task, "seed": p.config.seed} for p in spec.runs],
        "evaluation": dataclasses.asdict(spec.evaluation),
    }
    write_atomically(folder / MANIFEST, json.dumps(document, indent=1, ensure_ascii=False).encode())
    if retry_failed:
        for planned in spec.runs:
            remove(failure_file(folder, planned.folder))


@contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """While open, no other sweep works in this folder. The lock goes with the process, however that ends."""
    with explained_errors(folder):
        lock = open(folder / LOCK, "a+")  # noqa: SIM115  (closed below)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise RunDirectoryError(
                f"Another sweep is at work in {folder} (process {lock.read().strip() or 'unknown'}). Wait for it, stop it with Ctrl-C, or choose "
                "another folder with --out."
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
    finally:
        lock.close()


def _last_row(metrics: pathlib.Path) -> dict[str, Any]:
    """The newest whole row of a metrics file, read from its end; empty if there is none."""
    try:
        with open(metrics, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            return row
    return {}
