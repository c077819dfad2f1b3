"""Report the progress of a long job to a callback. The callback decides how to show it."""

from collections.abc import Callable

Tell = Callable[[float | None, str], None]
"""A callback for progress.

It takes the share of the work that is done, from 0 to 1 or None if unknown, and a description of the current
step.
"""


def nobody(share: float | None, what: str) -> None:
    """Ignore progress."""


def within(tell: Tell, first: float, last: float) -> Tell:
    """Return a callback for a part of the job that takes the total share from ``first`` to ``last``."""
    return lambda share, what: tell(None if share is None else first + (last - first) * share, what)


def among(tell: Tell, number: int, count: int) -> Tell:
    """Return a callback for part ``number`` (from 0) of ``count`` parts of equal length."""
    return within(tell, number / count, (number + 1) / count)


def named(tell: Tell, name: str) -> Tell:
    """Return a callback for a part of the job whose descriptions begin with ``name``."""
    return lambda share, what: tell(share, f"{name}: {what}")
