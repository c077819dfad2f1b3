"""Checks that several configs share, of numbers and of names."""

import dataclasses
import math
from collections.abc import Collection, Iterator
from typing import Any

from costate._base.errors import ConfigError

# More than any setting needs; what counts beyond it overflows in 32 bits, or takes all memory.
LARGEST_COUNT = 2**31 - 1
# What is computed with has 32 bits, in which more than this is infinite.
LARGEST_NUMBER = 3e38
# Of whatever is played or trained in a row; a thousand times what anybody asks for.
MOST_EPISODES = 1_000_000
MOST_SEEDS = 10_000
# Controls that are allowed to be larger than this are not bounded in any useful sense; dm_control's LQR tasks give ±1e10.
WIDEST_BOUND = 1e6
# Bytes; file systems allow 255, and some names get an ending.
LONGEST_NAME = 200


def require_finite(config: Any) -> None:
    """Raise if a number in a config, or in a part of it, is infinite or NaN: comparisons with it would pass by accident."""
    for name, value in _numbers(config):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} is {value}, but it must be a finite number.")
        if isinstance(value, float) and abs(value) > LARGEST_NUMBER:
            raise ConfigError(
                f"{name} is {value}, but no setting is larger than {LARGEST_NUMBER:g}. Give a smaller number."
            )


def require_countable(config: Any, but: Collection[str]) -> None:
    """Raise if a whole number in a config, or in a part of it, is beyond what can be counted; ``but`` names fields with limits of their own."""
    for name, value in _numbers(config):
        if isinstance(value, int) and name not in but and abs(value) > LARGEST_COUNT:
            raise ConfigError(
                f"{name} is {value}, but no setting is larger than {LARGEST_COUNT:,}. Give a smaller number."
            )


def require_at_most(name: str, value: int, most: int) -> None:
    """Raise if there is more to do than could ever be done."""
    if value > most:
        raise ConfigError(f"{name} is {value}, but at most {most:,} are possible. Give a smaller number.")


def _numbers(config: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of all fields, those of parts and the entries of lists included."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value)
        else:
            yield from ((field.name, each) for each in (value if isinstance(value, tuple) else (value,)))


def whole(value: Any) -> Any:
    """A float without a fraction as the whole number that it is, as 1e6 is meant; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def why_no_folder_name(name: str) -> str | None:
    """Why a name cannot be that of one folder inside another; None if it can."""
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
    """Text that may come from a stranger, for a terminal: control characters, which could steer it, are shown as escapes; lines stay lines."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
        for character in text
    )
