"""Checks that several configs share."""

import dataclasses
import math
from collections.abc import Collection, Iterator
from typing import Any

from costate._errors import ConfigError

# More than any setting needs; what counts beyond it overflows in 32 bits, or takes all memory.
LARGEST_COUNT = 2**31 - 1
# Of whatever is played or trained in a row; a thousand times what anybody asks for.
MOST_EPISODES = 1_000_000
MOST_SEEDS = 10_000
# Controls that are allowed to be larger than this are not bounded in any useful sense; dm_control's LQR tasks give ±1e10.
WIDEST_BOUND = 1e6


def require_finite(config: Any) -> None:
    """Raise if a number in a config, or in a part of it, is infinite or NaN: comparisons with it would pass by accident."""
    for name, value in _numbers(config):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} is {value}, but it must be a finite number.")


def require_countable(config: Any, but: Collection[str]) -> None:
    """Raise if a whole number in a config, or in a part of it, is beyond what can be counted; ``but`` names fields with limits of their own."""
    for name, value in _numbers(config):
        if isinstance(value, int) and name not in but and abs(value) > LARGEST_COUNT:
            raise ConfigError(f"{name} is {value}, but no setting is larger than {LARGEST_COUNT:,}. Give a smaller number.")


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
