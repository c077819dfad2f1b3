"""Optimal control with no learning in it: what the hidden states of policies are compared with."""

from typing import Any

from costate._base.lazy import lazy_module


def __getattr__(name: str) -> Any:
    return lazy_module(__name__, name)
