"""A run on disk: one self-describing folder with config, metrics, checkpoints, evaluations and plots."""

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
# Start of the note about the process that trains a run.
NOTE_START = '{"process": '
# In bytes. A row is about a kilobyte, so this is a million iterations; the longest runs of the paper have two
# thousand.
LARGEST_LOG = 2**30
REPAIR_ADVICE = "Restore the file that `costate train` wrote, or train the run again."


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory and its current config."""

    path: pathlib.Path
    config: RunConfig
    history: tuple[Stretch, ...] = ()
    """How the run was trained so far; empty if its settings never changed."""
    first_hash: str = ""
    """Hash of the config that the run was started with; empty if that is the current one."""

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """History of the run's training, from the start."""
        return self.history or (Stretch(0, self.config.total_steps),)

    @property
    def started_as(self) -> str:
        """Hash of the config that the run was started with. It stays the same when the run is extended."""
        return self.first_hash or config_hash(self.config)

    @property
    def variant(self) -> str:
        """Name of the variant that is trained.

        If two presets are equal, the folder's name decides between them.
        """
        return variant_name(self.config, self.path.resolve().parent.name)

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    @property
    def milestones(self) -> pathlib.Path:
        """Policies saved throughout training, for display. Checkpoints keep only the last few points."""
        return self.path / "milestones"

    @property
    def best(self) -> pathlib.Path:
        """The policy with the best evaluation during training, in the form of a milestone."""
        return self.path / "best"

    @property
    def metrics(self) -> pathlib.Path:
        return self.path / METRICS_FILE

    @property
    def damaged_metrics(self) -> pathlib.Path:
        """Lines that were removed from the metrics because they could not be read."""
        return self.path / DAMAGED_METRICS_FILE

    @property
    def evaluations(self) -> pathlib.Path:
        return self.path / "evaluations"

    @property
    def learning_curve(self) -> pathlib.Path:
        return self.path / "learning_curve.png"

    def read_machine(self) -> dict[str, Any]:
        """Return the description of the machine that the run was started on.

        Empty if that record is missing or damaged, since nothing else depends on it.
        """
        try:
            card = read_json(self.path / MACHINE_FILE)
        except CheckpointError:
            return {}
        return card if isinstance(card, dict) else {}

    @property
    def seeds_together(self) -> tuple[int, ...]:
        """The seeds that were trained together with this run, including its own.

        Only its own if that is unknown.
        """
        seeds = self.read_machine().get("seeds_together")
        known = (
            isinstance(seeds, list)
            and all(isinstance(seed, int) for seed in seeds)
            and self.config.seed in seeds
        )
        return tuple(seeds) if isinstance(seeds, list) and known else (self.config.seed,)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows logged so far, oldest first, without lines that are damaged or cut off."""
        return list(self.read_log().rows)

    def read_log(self) -> MetricsRows:
        """Return the rows logged so far, and the lines that cannot be read."""
        if not self.metrics.exists():
            return parse_rows(b"")
        with _run_directory_errors():
            return parse_rows(read_bounded(self.metrics, LARGEST_LOG))


def create_run(path: pathlib.Path, config: RunConfig, machine: dict[str, Any], *, overwrite: bool) -> Run:
    """Create the folder of a new run. An existing run is replaced only if ``overwrite`` is true.

    A run that is replaced is renamed first and removed last. If this is interrupted, either the old run or
    the new one exists.
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
    """Write the files that a run has before it is trained.

    The config comes last: a folder without it is not a run.
    """
    with explained_errors(path):
        make_folders(path / "checkpoints")
    write_atomically(path / MACHINE_FILE, json.dumps(machine, indent=1).encode())
    write_config(Run(path, config))


def write_config(run: Run) -> None:
    """Write the run's config and its training history in one step.

    If this is interrupted, the file is either the old one or the new one.
    """
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
    """Remove a run that was replaced.

    Its config goes first, so that the remains cannot be taken for a run.
    """
    (old / CONFIG_FILE).unlink(missing_ok=True)
    remove_folder(old)


def recover_run(path: pathlib.Path) -> None:
    """Clean up after a process that was killed while it replaced a run.

    The old run is restored if there is no new one. Otherwise the remains of the old run, and of an unfinished
    new one, are removed.
    """
    if path.name in ("", "..") or not path.parent.is_dir():
        return
    old = path.with_name(f".{path.name}{OLD}")
    if old.is_dir() and not old.is_symlink() and not foreign_entries(old):
        lock = try_lock(old / LOCK_FILE)
        if lock is None:
            # Another process is replacing it now.
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
            and all(_is_left_of_new_run(entry) or entry.name == CONFIG_FILE for entry in left.iterdir())
        ):
            remove_folder(left)


@contextlib.contextmanager
def held(*paths: pathlib.Path) -> Iterator[None]:
    """Lock these runs against training by other processes inside this block.

    Folders that are not runs yet are skipped.

    The operating system releases the lock when its process ends, however that happens, so an abandoned lock
    file blocks nobody.
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
            f"{path} is being trained by another process{_holder(path / LOCK_FILE)}. Wait until it is done, "
            "or stop it. To start a new run, choose another folder with --out."
        )
    # The note is for people only: the lock itself does not depend on it.
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
    """Open an existing run."""
    file = path / CONFIG_FILE
    if not path.exists():
        recover_run(path)
    if not path.is_dir():
        raise RunDirectoryError(
            f"There is no run directory {path}. Give the folder that `costate train` printed, for example "
            "runs/…."
        )
    if not file.is_file():
        raise RunDirectoryError(
            f"{path} is not a run directory: it has no {CONFIG_FILE}. Give the folder that `costate train` "
            "printed."
        )
    with _run_directory_errors():
        document = read_json(file)
    if not isinstance(document, dict) or "config" not in document:
        raise RunDirectoryError(
            f"{file} is truncated or was altered: it is not the JSON that `costate train` writes. "
            f"{REPAIR_ADVICE}"
        )
    try:
        history = from_plain(document["history"], str(file)) if "history" in document else ()
        return Run(path, from_json(document["config"]), history, str(document.get("first_hash", "")))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    except RecursionError as error:
        raise RunDirectoryError(
            f"{file} was altered: it is nested more deeply than any config. {REPAIR_ADVICE}"
        ) from error


@contextlib.contextmanager
def _run_directory_errors() -> Iterator[None]:
    """Convert checkpoint errors to run directory errors.

    For a damaged checkpoint there are older ones to fall back to. For a file of the run itself there are
    none.
    """
    try:
        yield
    except CheckpointError as error:
        raise RunDirectoryError(f"{error} {REPAIR_ADVICE}") from error


def check_free(path: pathlib.Path, *, overwrite: bool) -> None:
    """Raise unless a new run may be created in ``path``.

    Nothing may be there, or a run that ``overwrite`` allows to replace.
    """
    if path.is_symlink() and not path.exists():
        raise RunDirectoryError(
            f"{path} is a symbolic link to {os.readlink(path)}, which does not exist. Remove the link, or "
            "choose another folder with --out."
        )
    if not path.exists() or (path.is_dir() and all(map(_is_left_of_new_run, path.iterdir()))):
        return
    if not (path / CONFIG_FILE).is_file():
        raise RunDirectoryError(
            f"{path} exists and is not a run directory, so nothing is written there. Choose another folder "
            "with --out."
        )
    if overwrite:
        check_replaceable_run(path)
        return
    if not is_marked(path):
        raise RunDirectoryError(
            f"{path} {NOT_MARKED}, so nothing is written there. Choose another folder with --out."
        )
    raise RunDirectoryError(
        f"{path} already holds a run. Continue it with `costate train --resume {path}`, choose another "
        "folder with --out, or replace it with --overwrite, which deletes the old run."
    )


NOT_MARKED = f"is not a run directory: its {CONFIG_FILE} was not written by costate, or is damaged"


def check_replaceable_run(path: pathlib.Path) -> None:
    """Raise unless a folder is a run and contains nothing else, so that a new run may replace it."""
    problem = _replacement_problem(path)
    if problem is not None:
        raise RunDirectoryError(
            f"{path} {problem}. Nothing was replaced: --overwrite replaces a folder only if costate wrote "
            "everything in it. Move your files away, or choose another folder with --out."
        )


def _replacement_problem(path: pathlib.Path) -> str | None:
    """Return why a folder may not be replaced by a new run; None if it may."""
    if path.is_symlink():
        target = os.readlink(path)
        return f"is a symbolic link to {target}, whose target is not replaced; name that folder itself"
    real, here = path.resolve(), pathlib.Path.cwd().resolve()
    if real == here or real in here.parents:
        return "is the working directory" if real == here else "contains the working directory"
    with contextlib.suppress(RuntimeError):
        home = pathlib.Path.home().resolve()
        if real == home or real in home.parents:
            return "is or contains your home directory"
    if path.name in ("", ".."):
        return "does not end in a folder's own name, beside which the new run could be created"
    if not is_marked(path):
        return NOT_MARKED
    foreign = foreign_entries(path)
    return f"holds files that costate did not write: {listed(foreign)}" if foreign else None


def is_marked(path: pathlib.Path) -> bool:
    """Return True if a folder has the config that costate writes into a run, of any version."""
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


def _is_left_of_new_run(entry: pathlib.Path) -> bool:
    """Return True for a file that is written before a run's config.

    Only these files remain if the process is killed before the folder is a run.
    """
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
    """Return the run at ``path``, or the runs in it that were started together, ordered by seed.

    A seed that was trained alone in the same folder is not part of that group.
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
