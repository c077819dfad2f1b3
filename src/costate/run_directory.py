"""A run on disk: one self-describing folder with its config, metrics, checkpoints, evaluations and pictures."""

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import time
from collections.abc import Iterator
from typing import IO, Any

from costate._distrust import read_bounded, read_json
from costate._errors import CheckpointError, RunDirectoryError
from costate._files import explained_errors, make_folders, remove, try_lock, write_atomically
from costate.config import RunConfig, config_hash, from_json, to_json
from costate.history import Stretch, from_plain, to_plain
from costate.naming import variant_name

CONFIG_FILE = "config.json"
LOCK_FILE = "run.lock"
# A row is about a kilobyte, so this is a million iterations; the longest runs of the paper have two thousand.
LARGEST_LOG = 2**30
MEND = "Put the file back that `costate train` wrote, or train the run again."


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory and the config that it has now."""

    path: pathlib.Path
    config: RunConfig
    history: tuple[Stretch, ...] = ()
    """How it was trained so far; empty if it was trained in one way from the start."""
    first_hash: str = ""
    """Hash of the config that it was started with; empty if that is the one it has now."""

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """How it was trained so far, from the start."""
        return self.history or (Stretch(0, self.config.total_steps),)

    @property
    def started_as(self) -> str:
        """Hash of the config that it was started with, which stays the same when the run is made longer."""
        return self.first_hash or config_hash(self.config)

    @property
    def variant(self) -> str:
        """The name of what is trained. Where two presets are the same, the folder says which of them was asked for."""
        return variant_name(self.config, self.path.resolve().parent.name)

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    @property
    def milestones(self) -> pathlib.Path:
        """Policies from the start of training to its end, to be looked at; checkpoints are the last few points only."""
        return self.path / "milestones"

    @property
    def best(self) -> pathlib.Path:
        """The policy that did best where it was evaluated during training, in the form of a milestone."""
        return self.path / "best"

    @property
    def metrics(self) -> pathlib.Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> pathlib.Path:
        return self.path / "evaluations"

    @property
    def learning_curve(self) -> pathlib.Path:
        return self.path / "learning_curve.png"

    def read_machine(self) -> dict[str, Any]:
        """What the run was started with; empty if that record is missing or damaged, since nothing else depends on it."""
        try:
            card = read_json(self.path / "machine.json")
        except CheckpointError:
            return {}
        return card if isinstance(card, dict) else {}

    @property
    def seeds_together(self) -> tuple[int, ...]:
        """The seeds that the run was started with; its own alone if that is not known."""
        seeds = self.read_machine().get("seeds_together")
        known = isinstance(seeds, list) and all(isinstance(seed, int) for seed in seeds) and self.config.seed in seeds
        return tuple(seeds) if isinstance(seeds, list) and known else (self.config.seed,)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The rows logged so far, oldest first; a last line that was cut off by a crash is left out."""
        if not self.metrics.exists():
            return []
        rows = []
        with _as_of_the_run():
            content = read_bounded(self.metrics, LARGEST_LOG)
        for line in content.splitlines():
            try:
                rows.append(json.loads(line))
            except RecursionError as error:
                raise RunDirectoryError(
                    f"{self.metrics} was altered: row {len(rows) + 1} is nested too deeply to be read, but a row is numbers under their names. {MEND}"
                ) from error
            except ValueError:
                break
        return rows


def create_run(path: pathlib.Path, config: RunConfig, machine: dict[str, Any], *, overwrite: bool) -> Run:
    """Make the folder of a new run; an existing one is never touched unless ``overwrite`` says so."""
    check_free(path, overwrite=overwrite)
    if (path / CONFIG_FILE).is_file():
        remove(path)
    with explained_errors(path):
        make_folders(path / "checkpoints")
    run = Run(path, config)
    write_atomically(path / "machine.json", json.dumps(machine, indent=1).encode())
    write_config(run)
    return run


def write_config(run: Run) -> None:
    """Write what a run computes and how it was trained so far, in one step: whenever this is interrupted, the file is the old one or the new one."""
    document: dict[str, Any] = {"format": 1, "hash": config_hash(run.config), "config": to_json(run.config)}
    if run.history:
        document["history"] = to_plain(run.history)
    if run.first_hash:
        document["first_hash"] = run.first_hash
    write_atomically(run.path / CONFIG_FILE, json.dumps(document, indent=1).encode())


@contextlib.contextmanager
def held(*paths: pathlib.Path) -> Iterator[None]:
    """While open, no other process can train in these folders; those that are no run yet are left alone.

    The lock is the operating system's and goes with the process that holds it, however that ends, so a lock that nobody holds is no obstacle.
    """
    with contextlib.ExitStack() as stack:
        for path in paths:
            if (path / CONFIG_FILE).is_file():
                stack.callback(_locked(path).close)
        yield


def _locked(path: pathlib.Path) -> IO[str]:
    lock = try_lock(path / LOCK_FILE)
    if lock is None:
        raise RunDirectoryError(
            f"{path} is being trained by another process{_holder(path / LOCK_FILE)}. Wait until it is done, or stop it; a new run can go "
            f"into another folder with --out."
        )
    # For people only: what counts is the lock itself.
    lock.truncate(0)
    lock.write(json.dumps({"process": os.getpid(), "machine": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}))
    lock.flush()
    return lock


def _holder(path: pathlib.Path) -> str:
    try:
        noted = json.loads(path.read_text())
        return f" ({noted['process']} on {noted['machine']}, since {noted['since']})"
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def open_run(path: pathlib.Path) -> Run:
    """An existing run."""
    file = path / CONFIG_FILE
    if not path.is_dir():
        raise RunDirectoryError(f"There is no run directory {path}. Give the folder that `costate train` printed, for example runs/….")
    if not file.is_file():
        raise RunDirectoryError(f"{path} is not a run directory: it has no {CONFIG_FILE}. Give the folder that `costate train` printed.")
    with _as_of_the_run():
        document = read_json(file)
    if not isinstance(document, dict) or "config" not in document:
        raise RunDirectoryError(f"{file} is truncated or was altered: it is not the JSON that `costate train` writes. {MEND}")
    try:
        history = from_plain(document["history"], str(file)) if "history" in document else ()
        return Run(path, from_json(document["config"]), history, str(document.get("first_hash", "")))
    except RecursionError as error:
        raise RunDirectoryError(f"{file} was altered: it is nested more deeply than any config. {MEND}") from error


@contextlib.contextmanager
def _as_of_the_run() -> Iterator[None]:
    """What is wrong with a file of the run's folder is no matter of checkpoints, for which there would be older ones to fall back to."""
    try:
        yield
    except CheckpointError as error:
        raise RunDirectoryError(f"{error} {MEND}") from error


def check_free(path: pathlib.Path, *, overwrite: bool) -> None:
    """Raise unless a new run may be made in ``path``: nothing is there, or a run that ``overwrite`` allows to replace."""
    if not path.exists() or (path.is_dir() and all(map(_is_of_no_run_yet, path.iterdir()))):
        return
    if not (path / CONFIG_FILE).is_file():
        raise RunDirectoryError(f"{path} exists and is not a run directory, so nothing is written there. Choose another folder with --out.")
    if not overwrite:
        raise RunDirectoryError(
            f"{path} already holds a run. Continue it with `costate train --resume {path}`, choose another folder with --out, "
            "or replace it with --overwrite, which deletes what is there."
        )


def _is_of_no_run_yet(entry: pathlib.Path) -> bool:
    """Whether a process leaves this that is killed before its run has a config, which is written last."""
    if entry.name == "checkpoints":
        return entry.is_dir() and not any(entry.iterdir())
    return entry.name in ("machine.json", ".machine.json.partial", f".{CONFIG_FILE}.partial") and entry.is_file()


def runs_in(path: pathlib.Path) -> list[pathlib.Path]:
    """The run itself, or the runs in a folder that were started together, in the order of their seeds.

    Other runs in the same folder are none of their business: a seed that was trained alone must not be drawn in.
    """
    if (path / CONFIG_FILE).is_file() or not path.is_dir():
        return [path]
    folders = {run.config.seed: run for run in map(open_run, sorted(p for p in path.glob("seed-*") if (p / CONFIG_FILE).is_file()))}
    groups = {seeds for run in folders.values() if len(seeds := run.seeds_together) > 1 and set(seeds) <= folders.keys()}
    if len(groups) == 1:
        return [folders[seed].path for seed in groups.pop()]
    listed = ", ".join(str(run.path) for run in folders.values())
    if not folders:
        return [path]
    found = "several groups of seeds" if groups else "no seeds that were trained together"
    raise RunDirectoryError(f"{path} holds {found}, so it is not clear what to continue. Give one of the runs in it: {listed}.")
