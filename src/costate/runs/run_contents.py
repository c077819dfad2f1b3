"""What may be in the folder of a run: everything that costate itself puts there, by name. Whatever else is found is somebody's, and is never removed.

A command that writes something new into the folder of a run adds its name here; ``tests/runs/test_run_contents.py`` runs them all and compares.
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

# Names that are listed before "and … more".
LISTED = 5
IN_A_RUN = re.compile(
    rf"{re.escape(CONFIG_FILE)}|{re.escape(MACHINE_FILE)}|{re.escape(LOCK_FILE)}|{re.escape(METRICS_FILE)}|{re.escape(DAMAGED_METRICS_FILE)}"
    r"|learning_curve\.png|events\.out\.tfevents\..+|robustness(_[a-z_]+)?\.(json|png)|policy\.(costate|onnx|stablehlo)|costate_policy\.py"
)
# A file that is being written, or what a killed process left of one.
TEMPORARY = re.compile(rf"\.(?P<name>.+){re.escape(PARTIAL)}(-\d+)?")
EVALUATION = re.compile(r"step_\d{12}_dropout_.+\.json|in_training\.jsonl")
ALIGNMENT = re.compile(r"alignment\.json|(over_time|phase|likeness|knockout)\.png")
FILM = re.compile(r".+_(grid|step_\d{12})\.(mp4|gif)")
EXPORTED = re.compile(r"policy\.(costate|onnx|stablehlo)|costate_policy\.py|README\.md")
REPORT = re.compile(r"index\.html|summary\.json|[a-z]+(_[\w.-]+)?\.(svg|png)")
COMPILED = re.compile(r"costate_policy\..+\.pyc")
# What Weights & Biases keeps of a run; inside it is that package's own.
WANDB = re.compile(r"(offline-)?run-.+|latest-run|debug.*\.log|settings|\.gitignore|logs|artifact.*")


def foreign_entries(folder: pathlib.Path) -> list[str]:
    """What is in the folder of a run that costate does not write there, relative to the folder; symbolic links among it."""
    return sorted(_foreign(folder, IN_A_RUN, FOLDERS))


def listed(names: list[str]) -> str:
    """The first few of many names."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


Inspector = Callable[[pathlib.Path], Iterator[str]]


def _foreign(folder: pathlib.Path, files: re.Pattern[str], folders: dict[str, Inspector]) -> Iterator[str]:
    """What is neither a plain file that matches ``files`` nor one of ``folders`` with nothing foreign in it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            inspect = folders.get(entry.name)
            if inspect is not None and entry.is_dir(follow_symlinks=False):
                yield from (f"{entry.name}/{inner}" for inner in inspect(pathlib.Path(entry.path)))
            elif not entry.is_file(follow_symlinks=False) or not files.fullmatch(_whole(entry.name)):
                yield entry.name


def _whole(name: str) -> str:
    """The name that a file has when it is written to its end."""
    partial = TEMPORARY.fullmatch(name)
    return partial["name"] if partial else name


def _plain(files: str | re.Pattern[str], **folders: Inspector) -> Inspector:
    return lambda folder: _foreign(folder, re.compile(files), folders)


def _checkpoints(folder: pathlib.Path) -> Iterator[str]:
    """Checkpoints or milestones, what a killed process left of some, and the replay beside them."""
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
"""Folders in a run by their names, with what finds the foreign entries in each."""
