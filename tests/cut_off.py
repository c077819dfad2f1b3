"""Interrupted runs, and the numbers that must be the same after a resume."""

from costate.training.console import AbstractReporter, Progression


class Breaker(AbstractReporter):
    """Interrupts a run after some iterations, as a power failure would, and records its messages."""

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(self, progression: Progression) -> None:
        if progression.row["iteration"] == self.after:
            raise KeyboardInterrupt

    def close(self) -> None:
        pass


def numbers(run) -> list[dict[str, float]]:
    """Return all logged metrics except times."""
    return [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "training/sps"}
        for row in run.read_metrics()
    ]
