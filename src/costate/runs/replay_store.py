"""Store the replay on disk in chunks of rows.

Each row is written once, and a checkpoint lists the chunks that it needs.

Writing the whole ring with every checkpoint would cost as much as the rest of a short run.
"""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from costate._base.distrust import LARGEST_HEADER, parse_tensors, read_bounded
from costate._base.errors import CheckpointError
from costate._base.files import PARTIAL, explained_errors, make_folders, write_atomically
from costate.learners.replay import Replay, ReplayRows

# Row numbers have 32 bits.
LAST_ROW = 2**31 - 1
# A chunk, or the partial file that a killed process left of one.
FILE = re.compile(
    rf"rows_\d{{12}}_\d{{12}}\.safetensors|\.rows_\d{{12}}_\d{{12}}\.safetensors{re.escape(PARTIAL)}(-\d+)?"
)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A file with consecutive rows of all streams. Rows are numbered from the first that was ever written."""

    file: str
    start: int
    stop: int
    sha256: str


def save_new_rows(directory: pathlib.Path, replay: Replay, before: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Write the rows that the chunks ``before``, of the previous checkpoint, do not contain.

    Return the chunks that contain the whole replay.
    """
    written = int(replay.written)
    oldest = written - min(written, replay.capacity)
    start = max(oldest, before[-1].stop if before else 0)
    kept = tuple(chunk for chunk in before if chunk.stop > oldest)
    return kept if start == written else (*kept, _write(directory, replay, start, written))


def _write(directory: pathlib.Path, replay: Replay, start: int, stop: int) -> Chunk:
    places = np.arange(start, stop) % replay.capacity
    tensors = {name: np.ascontiguousarray(np.asarray(ring)[places]) for name, ring in _fields(replay).items()}
    for name, tensor in tensors.items():
        if tensor.dtype != bool and not np.isfinite(tensor).all():
            raise CheckpointError(
                f"Not saved: the {name} of the newest rows of the replay is not finite. Earlier checkpoints "
                "are kept."
            )
    content = safetensors.numpy.save(tensors)
    file = directory / f"rows_{start:012d}_{stop:012d}.safetensors"
    with explained_errors(directory):
        make_folders(directory)
    write_atomically(file, content)
    return Chunk(file.name, start, stop, hashlib.sha256(content).hexdigest())


def load_rows(directory: pathlib.Path, chunks: Sequence[Chunk], template: Replay) -> Replay:
    """Rebuild the ring that the chunks were written from.

    Anything missing, truncated or altered raises an error that names the file.
    """
    rings = {name: np.zeros(ring.shape, ring.dtype) for name, ring in _fields(template).items()}
    capacity = template.capacity
    _check(chunks, capacity)
    written = chunks[-1].stop if chunks else 0
    for chunk in chunks:
        tensors = _read(directory / chunk.file, chunk, rings)
        remembered = np.arange(max(chunk.start, written - capacity), chunk.stop)
        for name, ring in rings.items():
            ring[remembered % capacity] = tensors[name][remembered - chunk.start]
    rows = ReplayRows(**{name: jnp.asarray(ring) for name, ring in rings.items()})
    return Replay(rows, jax.device_put(np.int32(written)))


def _check(chunks: Sequence[Chunk], capacity: int) -> None:
    """Raise unless the chunks are consecutive rows in files of the expected names.

    A record from elsewhere could name any file, more rows than there can be, or rows with gaps.
    """
    before = None
    for chunk in chunks:
        in_range = (
            type(chunk.start) is int
            and type(chunk.stop) is int
            and 0 <= chunk.start < chunk.stop <= min(chunk.start + capacity, LAST_ROW)
        )
        named = in_range and chunk.file == f"rows_{chunk.start:012d}_{chunk.stop:012d}.safetensors"
        if not named or (before is not None and chunk.start != before):
            raise CheckpointError(
                f"A checkpoint lists rows {chunk.start} to {chunk.stop} of its replay in {chunk.file!r}, "
                "which is impossible. It was altered."
            )
        before = chunk.stop


def _fields(replay: Replay) -> dict[str, Any]:
    """Return the arrays that are stored, by name."""
    values = {field.name: getattr(replay.rows, field.name) for field in dataclasses.fields(ReplayRows)}
    return {name: value for name, value in values.items() if value is not None}


def _read(file: pathlib.Path, chunk: Chunk, rings: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    rows = chunk.stop - chunk.start
    content = read_bounded(file, sum(rows * ring[0].nbytes for ring in rings.values()) + LARGEST_HEADER)
    if hashlib.sha256(content).hexdigest() != chunk.sha256:
        raise CheckpointError(
            f"{file} is truncated or was altered: its digest does not match the recorded one."
        )
    tensors = parse_tensors(content, file)
    if "seen" in rings and "seen" not in tensors and "observation" in tensors:
        # Earlier versions did not store this mask. They took an observation of zeros for a blackout.
        tensors["seen"] = np.any(tensors["observation"] != 0.0, axis=-1)
    for name, ring in rings.items():
        wanted = (chunk.stop - chunk.start, *ring.shape[1:])
        if name not in tensors or tensors[name].shape != wanted or tensors[name].dtype != ring.dtype:
            raise CheckpointError(
                f"{file} does not fit this run's replay: {name} should be {ring.dtype}{list(wanted)}."
            )
    return tensors


def remove_unused(directory: pathlib.Path, used: Iterable[Chunk]) -> None:
    """Delete the chunks that no checkpoint needs any more."""
    names = {chunk.file for chunk in used}
    for file in directory.iterdir() if directory.is_dir() else ():
        if FILE.fullmatch(file.name) and file.name not in names and not file.is_dir():
            with explained_errors(file):
                file.unlink()
