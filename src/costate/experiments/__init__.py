"""From runs to evidence: sweeps, statistics, figures and reports."""

from typing import Any

from costate._base.lazy import lazy_module


def __getattr__(name: str) -> Any:
    return lazy_module(__name__, name)
