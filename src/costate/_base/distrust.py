"""Files that anybody may have written: read within a bound, parsed without executing anything, and refused with the reason."""

import json
import os
import pathlib
import stat
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from costate._base.errors import CheckpointError

# Records are a few kilobytes; this is far more than any, and nothing to a machine.
LARGEST_RECORD = 16 * 2**20
# Names, types and places of tensors, beside their numbers.
LARGEST_HEADER = 4 * 2**20


def read_bounded(path: pathlib.Path, limit: int) -> bytes:
    """The bytes of a file that has no more than ``limit`` of them; neither a device nor a pipe, which have no end."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode):
                raise CheckpointError(f"{path} is not a plain file, so it is not read.")
            if kind.st_size > limit:
                raise CheckpointError(
                    f"{path} has {kind.st_size:,} bytes, but there can be no more than {limit:,} in it. It was altered."
                )
            return file.read(limit)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def read_json(path: pathlib.Path) -> Any:
    """A small JSON file."""
    try:
        return json.loads(read_bounded(path, LARGEST_RECORD))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is truncated or was altered: it is not JSON.") from error


def parse_tensors(content: bytes, path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays in the bytes of a safetensors file."""
    try:
        return safetensors.numpy.load(content)
    except (
        safetensors.SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise CheckpointError(
            f"{path} is no safetensors file of arrays that NumPy knows: {error}."
        ) from error
