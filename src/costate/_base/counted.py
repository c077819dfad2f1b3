"""Count with a noun: 1 state, 2 states."""


def counted(number: int, noun: str) -> str:
    """Return ``number`` and ``noun``, in the plural unless the number is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
