"""A run on disk: one self-describing folder with its config, metrics, checkpoints, evaluations and pictures."""

import contextlib
import dataclasses
import glob
import json
import os
import pathlib
import re
import socket
import time
from collections.abc import Iterator
from typing import IO, Any

from costate._base.distrust import read_bounded, read_json
from costate._base.errors import CheckpointError, ConfigError, RunDirectoryError
from costate._base.files import (
    OLD,
    PARTIAL,
    explained_errors,
    make_folders,
    note_holder,
    remove_folder,
    replace_folder,
    restore,
    try_lock,
    write_atomically,
)
from costate.config.naming import variant_name
from costate.config.run_config import RunConfig, config_hash, from_json, stored
from costate.runs.history import Stretch, from_plain, to_plain
from costate.runs.metrics_rows import MetricsRows, parse_rows
from costate.runs.run_contents import CONFIG_FILE as CONFIG_FILE
from costate.runs.run_contents import (
    DAMAGED_METRICS_FILE,
    LOCK_FILE,
    MACHINE_FILE,
    METRICS_FILE,
    foreign_entries,
    listed,
)

FORMAT = 1
# How the note about who trains a run begins.
NOTE_START = '{"process": '
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
        return self.path / METRICS_FILE

    @property
    def damaged_metrics(self) -> pathlib.Path:
        """Lines that were taken out of the metrics because they could not be read."""
        return self.path / DAMAGED_METRICS_FILE

    @property
    def evaluations(self) -> pathlib.Path:
        return self.path / "evaluations"

    @property
    def learning_curve(self) -> pathlib.Path:
        return self.path / "learning_curve.png"

    def read_machine(self) -> dict[str, Any]:
        """What the run was started with; empty if that record is missing or damaged, since nothing else depends on it."""
        try:
            card = read_json(self.path / MACHINE_FILE)
        except CheckpointError:
            return {}
        return card if isinstance(card, dict) else {}

    @property
    def seeds_together(self) -> tuple[int, ...]:
        """The seeds that the run was started with; its own alone if that is not known."""
        seeds = self.read_machine().get("seeds_together")
        known = (
            isinstance(seeds, list)
            and all(isinstance(seed, int) for seed in seeds)
            and self.config.seed in seeds
        )
        return tuple(seeds) if isinstance(seeds, list) and known else (self.config.seed,)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The rows logged so far, oldest first, without lines that are damaged or were cut off by a crash."""
        return list(self.read_log().rows)

    def read_log(self) -> MetricsRows:
        """The rows logged so far, and the lines among them that cannot be read."""
        if not self.metrics.exists():
            return parse_rows(b"")
        with _as_of_the_run():
            return parse_rows(read_bounded(self.metrics, LARGEST_LOG))


def create_run(path: pathlib.Path, config: RunConfig, machine: dict[str, Any], *, overwrite: bool) -> Run:
    """Make the folder of a new run; an existing one is never touched unless ``overwrite`` says so.

    A run that is replaced is renamed first and removed last: whenever this is interrupted, the old run is there or the new one.
    """
    recover_run(path)
    check_free(path, overwrite=overwrite)
    if (path / CONFIG_FILE).is_file():
        replace_folder(
            path, lambda new: _write_run(new, config, machine), check_replaceable_run, discard=_discard
        )
    else:
        _write_run(path, config, machine)
    return Run(path, config)


def _write_run(path: pathlib.Path, config: RunConfig, machine: dict[str, Any]) -> None:
    """What a run has before it is trained. Its config is written last: without it, a folder is no run."""
    with explained_errors(path):
        make_folders(path / "checkpoints")
    write_atomically(path / MACHINE_FILE, json.dumps(machine, indent=1).encode())
    write_config(Run(path, config))


def write_config(run: Run) -> None:
    """Write what a run computes and how it was trained so far, in one step: whenever this is interrupted, the file is the old one or the new one."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "hash": config_hash(run.config),
        "config": stored(run.config),
    }
    if run.history:
        document["history"] = to_plain(run.history)
    if run.first_hash:
        document["first_hash"] = run.first_hash
    write_atomically(run.path / CONFIG_FILE, json.dumps(document, indent=1).encode())


def _discard(old: pathlib.Path) -> None:
    """Remove a run for which there is a new one. Its config goes first, so that what is left of it cannot be taken for a run."""
    (old / CONFIG_FILE).unlink(missing_ok=True)
    remove_folder(old)


def recover_run(path: pathlib.Path) -> None:
    """Finish what a process left that was killed while it replaced a run.

    The old run is brought back if there is no new one; otherwise what is left of it is removed, and so is an unfinished new one.
    """
    if path.name in ("", "..") or not path.parent.is_dir():
        return
    old = path.with_name(f".{path.name}{OLD}")
    if old.is_dir() and not old.is_symlink() and not foreign_entries(old):
        lock = try_lock(old / LOCK_FILE)
        if lock is None:
            # Somebody is replacing it now.
            return
        with lock, explained_errors(path):
            if (old / CONFIG_FILE).is_file() and not path.exists():
                restore(path)
            elif is_marked(path):
                _discard(old)
    for left in path.parent.glob(f".{glob.escape(path.name)}{PARTIAL}*"):
        if (
            left.is_dir()
            and not left.is_symlink()
            and all(_is_of_no_run_yet(entry) or entry.name == CONFIG_FILE for entry in left.iterdir())
        ):
            remove_folder(left)


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
    note = json.dumps(
        {"process": os.getpid(), "machine": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    )
    try:
        note_holder(lock, note, lambda text: text.startswith(NOTE_START) or NOTE_START.startswith(text))
    except BaseException:
        lock.close()
        raise
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
    if not path.exists():
        recover_run(path)
    if not path.is_dir():
        raise RunDirectoryError(
            f"There is no run directory {path}. Give the folder that `costate train` printed, for example runs/…."
        )
    if not file.is_file():
        raise RunDirectoryError(
            f"{path} is not a run directory: it has no {CONFIG_FILE}. Give the folder that `costate train` printed."
        )
    with _as_of_the_run():
        document = read_json(file)
    if not isinstance(document, dict) or "config" not in document:
        raise RunDirectoryError(
            f"{file} is truncated or was altered: it is not the JSON that `costate train` writes. {MEND}"
        )
    try:
        history = from_plain(document["history"], str(file)) if "history" in document else ()
        return Run(path, from_json(document["config"]), history, str(document.get("first_hash", "")))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    except RecursionError as error:
        raise RunDirectoryError(
            f"{file} was altered: it is nested more deeply than any config. {MEND}"
        ) from error


@contextlib.contextmanager
def _as_of_the_run() -> Iterator[None]:
    """What is wrong with a file of the run's folder is no matter of checkpoints, for which there would be older ones to fall back to."""
    try:
        yield
    except CheckpointError as error:
        raise RunDirectoryError(f"{error} {MEND}") from error


def check_free(path: pathlib.Path, *, overwrite: bool) -> None:
    """Raise unless a new run may be made in ``path``: nothing is there, or a run that ``overwrite`` allows to replace."""
    if path.is_symlink() and not path.exists():
        raise RunDirectoryError(
            f"{path} is a symbolic link to {os.readlink(path)}, which does not exist. Remove it, or choose another folder with --out."
        )
    if not path.exists() or (path.is_dir() and all(map(_is_of_no_run_yet, path.iterdir()))):
        return
    if not (path / CONFIG_FILE).is_file():
        raise RunDirectoryError(
            f"{path} exists and is not a run directory, so nothing is written there. Choose another folder with --out."
        )
    if overwrite:
        check_replaceable_run(path)
        return
    if not is_marked(path):
        raise RunDirectoryError(
            f"{path} {NOT_MARKED}, so nothing is written there. Choose another folder with --out."
        )
    raise RunDirectoryError(
        f"{path} already holds a run. Continue it with `costate train --resume {path}`, choose another folder with --out, "
        "or replace it with --overwrite, which deletes what is there."
    )


NOT_MARKED = f"is not a run directory: its {CONFIG_FILE} was not written by costate, or is damaged"


def check_replaceable_run(path: pathlib.Path) -> None:
    """Raise unless a folder is a run and nothing else, so that a new one may take its place."""
    found = _why_not_replaceable(path)
    if found is not None:
        raise RunDirectoryError(
            f"{path} {found}. Nothing was replaced: --overwrite replaces a folder only where costate wrote everything in it. "
            "Move away what is yours, or choose another folder with --out."
        )


def _why_not_replaceable(path: pathlib.Path) -> str | None:
    """What speaks against replacing a folder by a new run; None if nothing does."""
    if path.is_symlink():
        return f"is a symbolic link to {os.readlink(path)}, and what it points to is not replaced; name that folder itself"
    real, here = path.resolve(), pathlib.Path.cwd().resolve()
    if real == here or real in here.parents:
        return "is the working directory" if real == here else "holds the working directory"
    with contextlib.suppress(RuntimeError):
        home = pathlib.Path.home().resolve()
        if real == home or real in home.parents:
            return "is or holds your home"
    if path.name in ("", ".."):
        return "is not given by a name of its own, beside which the new run could be made"
    if not is_marked(path):
        return NOT_MARKED
    foreign = foreign_entries(path)
    return f"holds what costate did not write: {listed(foreign)}" if foreign else None


def is_marked(path: pathlib.Path) -> bool:
    """Whether a folder has the config that costate writes into a run, of whatever version."""
    file = path / CONFIG_FILE
    if file.is_symlink() or not file.is_file():
        return False
    try:
        document = read_json(file)
    except CheckpointError:
        return False
    if not isinstance(document, dict) or not document.keys() >= {"format", "hash", "config"}:
        return False
    config = document["config"]
    known = (
        isinstance(config, dict)
        and isinstance(config.get("task"), str)
        and "policy" in config
        and "seed" in config
    )
    return (
        known
        and type(document["format"]) is int
        and re.fullmatch(r"[0-9a-f]{12}", str(document["hash"])) is not None
    )


def _is_of_no_run_yet(entry: pathlib.Path) -> bool:
    """Whether a process leaves this that is killed before its run has a config, which is written last."""
    if entry.is_symlink():
        return False
    if entry.name == "checkpoints":
        return entry.is_dir() and not any(entry.iterdir())
    return (
        re.fullmatch(rf"{MACHINE_FILE}|\.({MACHINE_FILE}|{CONFIG_FILE})\.partial(-\d+)?", entry.name)
        is not None
        and entry.is_file()
    )


def runs_in(path: pathlib.Path) -> list[pathlib.Path]:
    """The run itself, or the runs in a folder that were started together, in the order of their seeds.

    Other runs in the same folder are none of their business: a seed that was trained alone must not be drawn in.
    """
    if (path / CONFIG_FILE).is_file() or not path.is_dir():
        return [path]
    folders = {
        run.config.seed: run
        for run in map(open_run, sorted(p for p in path.glob("seed-*") if (p / CONFIG_FILE).is_file()))
    }
    groups = {
        seeds
        for run in folders.values()
        if len(seeds := run.seeds_together) > 1 and set(seeds) <= folders.keys()
    }
    if len(groups) == 1:
        return [folders[seed].path for seed in groups.pop()]
    listed = ", ".join(str(run.path) for run in folders.values())
    if not folders:
        return [path]
    found = "several groups of seeds" if groups else "no seeds that were trained together"
    raise RunDirectoryError(
        f"{path} holds {found}, so it is not clear what to continue. Give one of the runs in it: {listed}."
    )
