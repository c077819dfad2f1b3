"""Show the progress of a sweep: a live table on a terminal, plain lines elsewhere."""

import abc
import collections
import sys
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from costate.experiments.sweep import Standing, Status
from costate.training.console import can_redraw, duration

STYLES = {
    Status.RUNNING: "cyan",
    Status.EVALUATING: "cyan",
    Status.FINISHED: "green",
    Status.FAILED: "red",
    Status.INTERRUPTED: "yellow",
}


class AbstractWatch(abc.ABC):
    """Receiver of the status of every run, in the order of the spec."""

    @abc.abstractmethod
    def show(self, standings: Sequence[Standing]) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class LiveWatch(AbstractWatch):
    """A table that is redrawn in place. Runs that do not fit on the terminal are only counted."""

    def __init__(self, console: Console | None = None) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, standings: Sequence[Standing]) -> None:
        room = max(4, self._live.console.height - 6)
        self._live.update(render(standings, room), refresh=True)

    def close(self) -> None:
        self._live.stop()


class PlainWatch(AbstractWatch):
    """A line whenever a run changes its status, and a summary every minute, for logs and pipes."""

    def __init__(self, interval: float = 60.0) -> None:
        self._interval = interval
        self._last = -interval
        self._known: dict[str, Status] = {}

    def show(self, standings: Sequence[Standing]) -> None:
        for standing in standings:
            name = standing.planned.folder
            before = self._known.setdefault(
                name,
                standing.status if standing.status in (Status.WAITING, Status.FINISHED) else Status.WAITING,
            )
            if standing.status != before:
                self._known[name] = standing.status
                print(plain_line(standing), flush=True)
        now = time.monotonic()
        if now - self._last >= self._interval:
            self._last = now
            print(summary(standings), flush=True)

    def close(self) -> None:
        pass


def watch_for_stdout() -> AbstractWatch:
    return LiveWatch() if can_redraw(sys.stdout) else PlainWatch()


def render(standings: Sequence[Standing], room: int) -> Group:
    """Return the summary and the runs that fit, the most relevant first.

    Running ones come first, then failed, interrupted, waiting and finished ones.
    """
    table = Table(box=None, pad_edge=False)
    for title, side in (
        ("task", "left"),
        ("variant", "left"),
        ("seed", "right"),
        ("", "left"),
        ("done", "right"),
        ("return", "right"),
        ("left", "right"),
    ):
        table.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    order = [
        Status.RUNNING,
        Status.EVALUATING,
        Status.FAILED,
        Status.INTERRUPTED,
        Status.WAITING,
        Status.FINISHED,
    ]
    ranked = sorted(standings, key=lambda standing: order.index(standing.status))
    for standing in ranked[:room]:
        planned = standing.planned
        status = Text(standing.status.value, style=STYLES.get(standing.status, ""))
        row = (
            planned.config.task,
            planned.variant,
            str(planned.config.seed),
            status,
            f"{_share(standing):.0%}",
            _return(standing),
            _left(standing),
        )
        table.add_row(*row)
    hidden = [Text(f"… and {len(ranked) - room} more", style="dim")] if len(ranked) > room else []
    return Group(Text(summary(standings)), table, *hidden)


def summary(standings: Sequence[Standing]) -> str:
    """Return one line: the number of runs with each status, their total speed, and the time left."""
    counts = collections.Counter(standing.status for standing in standings)
    parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    speed = sum(
        standing.steps_per_second or 0.0 for standing in standings if standing.status is Status.RUNNING
    )
    if speed > 0.0:
        unfinished = [
            standing for standing in standings if standing.status not in (Status.FINISHED, Status.FAILED)
        ]
        steps = sum(standing.total_steps - standing.env_steps for standing in unfinished)
        parts.append(f"{speed:,.0f} steps/s, {duration(steps / speed)} left")
    return f"{len(standings)} runs: {', '.join(parts)}"


def plain_line(standing: Standing) -> str:
    reason = f": {standing.error}" if standing.status is Status.FAILED and standing.error else ""
    value = (
        f", return {_return(standing)}"
        if standing.episode_return is not None and standing.status is not Status.FAILED
        else ""
    )
    return f"{standing.status.value:11} {standing.planned.label}, {_share(standing):.0%}{value}{reason}"


def _share(standing: Standing) -> float:
    return standing.env_steps / standing.total_steps


def _return(standing: Standing) -> str:
    return "–" if standing.episode_return is None else f"{standing.episode_return:.0f}"


def _left(standing: Standing) -> str:
    if standing.status is not Status.RUNNING or not standing.steps_per_second:
        return ""
    return duration((standing.total_steps - standing.env_steps) / standing.steps_per_second)
