"""Keeping real time: how many control steps are due by the clock."""

# Seconds that may be made up for after a hitch; what is older is let go, so that a slow machine shows slow motion and not jumps.
LARGEST_BACKLOG = 0.25


class Pace:
    """Counts steps against a clock that the caller reads."""

    def __init__(self, timestep: float, now: float) -> None:
        self._timestep = timestep
        self._last = now
        self._owed = 0.0

    def due(self, now: float, speed: float) -> int:
        """Steps to make now, if a second of the clock shows ``speed`` seconds of the robot's time."""
        self._owed += min(now - self._last, LARGEST_BACKLOG) * speed / self._timestep
        self._last = now
        steps = int(self._owed)
        self._owed -= steps
        return steps

    def skip(self, now: float) -> None:
        """Time passes that nothing is owed for, as in a pause."""
        self._last = now
        self._owed = 0.0
