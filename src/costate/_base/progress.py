"""How a long job says how far it is, to whoever listens; what that looks like is not its business."""

from collections.abc import Callable

Tell = Callable[[float | None, str], None]
"""Takes the share of the work that is done, from 0 to 1, and what is being done now; None where nobody knows how much is left."""


def nobody(share: float | None, what: str) -> None:
    """Does not listen."""


def within(tell: Tell, first: float, last: float) -> Tell:
    """For a part of the job that takes it from one share to another."""
    return lambda share, what: tell(None if share is None else first + (last - first) * share, what)


def among(tell: Tell, number: int, count: int) -> Tell:
    """For one of so many parts of equal length, counted from 0."""
    return within(tell, number / count, (number + 1) / count)


def named(tell: Tell, name: str) -> Tell:
    """For a part of the job that is to be called by a name."""
    return lambda share, what: tell(share, f"{name}: {what}")
