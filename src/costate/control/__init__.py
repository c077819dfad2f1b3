"""Optimal control without learning: reference co-states to compare the hidden states of policies with."""

from typing import Any

from costate._base.lazy import lazy_module


def __getattr__(name: str) -> Any:
    return lazy_module(__name__, name)
