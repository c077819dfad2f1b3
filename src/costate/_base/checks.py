"""Checks of numbers and names that several configs share."""

import dataclasses
import math
from collections.abc import Collection, Iterator
from typing import Any

from costate._base.errors import ConfigError

# More than any setting needs. Larger counts overflow in 32 bits, or take all memory.
LARGEST_COUNT = 2**31 - 1
# Computations are in 32-bit floats, in which a larger number is infinite.
LARGEST_NUMBER = 3e38
# Limits of one evaluation and one training: a thousand times what anybody asks for.
MOST_EPISODES = 1_000_000
MOST_SEEDS = 10_000
# Controls with wider bounds than this count as unbounded. dm_control's LQR tasks declare ±1e10.
WIDEST_BOUND = 1e6
# In bytes. File systems allow 255, and some names get a suffix.
LONGEST_NAME = 200


def require_finite(config: Any) -> None:
    """Raise if a number in a config, or in a part of it, is NaN or infinite.

    Comparisons with NaN are false, so it would slip through range checks.
    """
    for name, value in _numbers(config):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} is {value}, but it must be a finite number.")
        if isinstance(value, float) and abs(value) > LARGEST_NUMBER:
            raise ConfigError(
                f"{name} is {value}, but no setting is larger than {LARGEST_NUMBER:g}. Give a smaller number."
            )


def require_countable(config: Any, but: Collection[str]) -> None:
    """Raise if an integer in a config, or in a part of it, is too large.

    ``but`` names fields with limits of their own.
    """
    for name, value in _numbers(config):
        if isinstance(value, int) and name not in but and abs(value) > LARGEST_COUNT:
            raise ConfigError(
                f"{name} is {value}, but no setting is larger than {LARGEST_COUNT:,}. Give a smaller number."
            )


def require_at_most(name: str, value: int, most: int) -> None:
    """Raise if ``value`` is larger than ``most``."""
    if value > most:
        raise ConfigError(f"{name} is {value}, but at most {most:,} are possible. Give a smaller number.")


def _numbers(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of all fields, including those of nested configs and entries of tuples."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value)
        else:
            yield from ((field.name, each) for each in (value if isinstance(value, tuple) else (value,)))


def whole(value: Any) -> Any:
    """Convert a float without a fraction, such as 1e6, to an int. Return anything else unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def folder_name_problem(name: str) -> str | None:
    """Return why ``name`` cannot be the name of a single folder; None if it can."""
    if not name or name != name.strip():
        return "it is empty" if not name.strip() else "it begins or ends with a space"
    if not name.isprintable():
        return "it has control characters"
    if "/" in name or "\\" in name:
        return "it leads to another folder"
    if name.startswith("."):
        return "it begins with a dot"
    return "it is too long" if len(name.encode()) > LONGEST_NAME else None


def printable(text: str) -> str:
    """Escape the control characters of untrusted text, which could steer a terminal. Line breaks stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
        for character in text
    )
