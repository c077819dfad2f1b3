"""Checks that several configs share."""

import dataclasses
import math
from typing import Any

from costate._errors import ConfigError

# Controls that are allowed to be larger than this are not bounded in any useful sense; dm_control's LQR tasks give ±1e10.
WIDEST_BOUND = 1e6


def require_finite(config: Any) -> None:
    """Raise if a number in a config is infinite or not one: comparisons with it would pass by accident."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{field.name} is {value}, but it must be a finite number.")


def whole(value: Any) -> Any:
    """A float without a fraction as the whole number that it is, as 1e6 is meant; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
