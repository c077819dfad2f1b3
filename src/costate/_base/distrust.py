"""Read untrusted files: bounded in size, parsed without executing anything, and refused with a reason."""

import json
import os
import pathlib
import stat
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from costate._base.errors import CheckpointError

# Records are a few kilobytes; this is far more than any needs, and still little memory.
LARGEST_RECORD = 16 * 2**20
# The header of a safetensors file: names, types and offsets of its tensors.
LARGEST_HEADER = 4 * 2**20


def read_bounded(path: pathlib.Path, limit: int) -> bytes:
    """Return the bytes of a plain file of at most ``limit`` bytes.

    Devices and pipes, which have no end, are refused.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode):
                raise CheckpointError(f"{path} is not a plain file, so it is not read.")
            if kind.st_size > limit:
                raise CheckpointError(
                    f"{path} has {kind.st_size:,} bytes, but at most {limit:,} are possible. "
                    "It is damaged or was altered."
                )
            return file.read(limit)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def read_json(path: pathlib.Path) -> Any:
    """Return the content of a small JSON file."""
    try:
        return json.loads(read_bounded(path, LARGEST_RECORD))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is truncated or was altered: it is not JSON.") from error


def parse_tensors(content: bytes, path: pathlib.Path) -> dict[str, np.ndarray]:
    """Parse the bytes of a safetensors file into arrays by name."""
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
            f"{path} is not a safetensors file of arrays that NumPy can read: {error}."
        ) from error
