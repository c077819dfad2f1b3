"""Real-time pacing: how many control steps are due by the clock."""

# Seconds of delay that are caught up. Longer delays are dropped, so that a slow machine shows slow motion and
# no jumps.
LARGEST_BACKLOG = 0.25


class Pace:
    """Counts due steps by a clock that the caller reads."""

    def __init__(self, timestep: float, now: float) -> None:
        self._timestep = timestep
        self._last = now
        self._owed = 0.0

    def due(self, now: float, speed: float) -> int:
        """Return the number of steps due now, at ``speed`` seconds of robot time per second of clock time."""
        self._owed += min(now - self._last, LARGEST_BACKLOG) * speed / self._timestep
        self._last = now
        steps = int(self._owed)
        self._owed -= steps
        return steps

    def skip(self, now: float) -> None:
        """Let time pass without steps becoming due, as in a pause."""
        self._last = now
        self._owed = 0.0
