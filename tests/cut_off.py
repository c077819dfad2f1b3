"""Runs that are cut off, and what must be the same after they were resumed."""

from costate.training.console import AbstractReporter, Progression


class Breaker(AbstractReporter):
    """Cuts a run off after some iterations, as a power failure would; remembers what was said."""

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
    """All logged metrics but those that are times."""
    return [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "training/sps"}
        for row in run.read_metrics()
    ]
