"""A number with its noun: 1 state, 2 states."""


def counted(number: int, noun: str) -> str:
    """``number`` and ``noun``, in the plural unless there is exactly one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
