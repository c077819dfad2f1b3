"""Names of everything that costate puts into the folder of a run.

Anything else belongs to the user and is never removed. A command that writes something new into a run's
folder adds its name here; ``tests/runs/test_run_contents.py`` runs all commands and compares.
"""

import os
import pathlib
import re
from collections.abc import Callable, Iterator

from costate._base.files import PARTIAL
from costate.runs.checkpoint import LEFT_OVER, NAME, REPLAY_FOLDER, foreign_to_checkpoint
from costate.runs.replay_store import FILE as CHUNK

CONFIG_FILE, MACHINE_FILE, LOCK_FILE = "config.json", "machine.json", "run.lock"
METRICS_FILE, DAMAGED_METRICS_FILE = "metrics.jsonl", "metrics.damaged.jsonl"

# Number of names that are listed before "and … more".
LISTED = 5
IN_A_RUN = re.compile(
    rf"{re.escape(CONFIG_FILE)}|{re.escape(MACHINE_FILE)}|{re.escape(LOCK_FILE)}"
    rf"|{re.escape(METRICS_FILE)}|{re.escape(DAMAGED_METRICS_FILE)}"
    r"|learning_curve\.png|events\.out\.tfevents\..+|robustness(_[a-z_]+)?\.(json|png)"
    r"|policy\.(costate|onnx|stablehlo)|costate_policy\.py"
)
# A file that is being written, or that a killed process left unfinished.
TEMPORARY = re.compile(rf"\.(?P<name>.+){re.escape(PARTIAL)}(-\d+)?")
EVALUATION = re.compile(r"step_\d{12}_dropout_.+\.json|in_training\.jsonl")
ALIGNMENT = re.compile(r"alignment\.json|(over_time|phase|likeness|knockout)\.png")
FILM = re.compile(r".+_(grid|step_\d{12})\.(mp4|gif)")
EXPORTED = re.compile(r"policy\.(costate|onnx|stablehlo)|costate_policy\.py|README\.md")
REPORT = re.compile(r"index\.html|summary\.json|[a-z]+(_[\w.-]+)?\.(svg|png)")
COMPILED = re.compile(r"costate_policy\..+\.pyc")
# Entries that Weights & Biases keeps of a run. Their content is that package's business.
WANDB = re.compile(r"(offline-)?run-.+|latest-run|debug.*\.log|settings|\.gitignore|logs|artifact.*")


def foreign_entries(folder: pathlib.Path) -> list[str]:
    """Return the entries in a run's folder that costate does not write, as relative paths.

    Symbolic links are foreign.
    """
    return sorted(_foreign(folder, IN_A_RUN, FOLDERS))


def listed(names: list[str]) -> str:
    """Join the first few of many names."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


Inspector = Callable[[pathlib.Path], Iterator[str]]


def _foreign(folder: pathlib.Path, files: re.Pattern[str], folders: dict[str, Inspector]) -> Iterator[str]:
    """Yield all entries but plain files that match ``files`` and ``folders`` without foreign content."""
    with os.scandir(folder) as entries:
        for entry in entries:
            inspect = folders.get(entry.name)
            if inspect is not None and entry.is_dir(follow_symlinks=False):
                yield from (f"{entry.name}/{inner}" for inner in inspect(pathlib.Path(entry.path)))
            elif not entry.is_file(follow_symlinks=False) or not files.fullmatch(_final_name(entry.name)):
                yield entry.name


def _final_name(name: str) -> str:
    """Return the name that a partial file gets when it is finished."""
    partial = TEMPORARY.fullmatch(name)
    return partial["name"] if partial else name


def _plain(files: str | re.Pattern[str], **folders: Inspector) -> Inspector:
    return lambda folder: _foreign(folder, re.compile(files), folders)


def _checkpoints(folder: pathlib.Path) -> Iterator[str]:
    """Yield foreign entries in a folder of checkpoints or milestones.

    Unfinished checkpoints and the replay beside them are not foreign.
    """
    for entry in folder.iterdir():
        if entry.name == REPLAY_FOLDER and entry.is_dir() and not entry.is_symlink():
            yield from (f"{entry.name}/{inner}" for inner in _foreign(entry, CHUNK, {}))
        elif NAME.fullmatch(entry.name) or LEFT_OVER.fullmatch(entry.name):
            inside = entry.is_dir() and not entry.is_symlink()
            yield from (
                f"{entry.name}/{inner}" if inside else inner for inner in foreign_to_checkpoint(entry)
            )
        else:
            yield entry.name


def _wandb(folder: pathlib.Path) -> Iterator[str]:
    return (entry.name for entry in folder.iterdir() if not WANDB.fullmatch(entry.name))


FOLDERS: dict[str, Inspector] = {
    "checkpoints": _checkpoints,
    "milestones": _checkpoints,
    "best": _checkpoints,
    "evaluations": _plain(EVALUATION),
    "alignment": _plain(ALIGNMENT),
    "videos": _plain(FILM),
    "export": _plain(EXPORTED, numpy=_plain(EXPORTED, __pycache__=_plain(COMPILED))),
    "report": _plain(REPORT),
    "wandb": _wandb,
}
"""Folders in a run → the function that finds foreign entries in each."""
