"""Show the progress of a run: a live bar on a terminal, aligned lines elsewhere, nothing in a library."""

import abc
import dataclasses
import io
import math
import os
import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from costate.runs.metrics_log import Row

# Columns for learning, beside the return and the co-state loss: metric, title and format.
ON_POLICY = (("losses/approx_kl", "KL", "8.4f"), ("losses/explained_variance", "expl.var", "8.2f"))
OFF_POLICY = (("losses/q", "Q", "8.2f"), ("training/temperature", "entropy α", "9.4f"))


@dataclasses.dataclass(frozen=True)
class Progression:
    """Progress of a run after an iteration."""

    row: Row
    total_steps: int
    seconds_left: float


class AbstractReporter(abc.ABC):
    """Receiver of the events of a run."""

    @abc.abstractmethod
    def say(self, text: str) -> None:
        """Print a sentence that stays on the screen."""

    def compiled(self, about: str) -> None:
        """Report that the programs are compiled and that the first iteration starts."""
        self.say(about)

    @abc.abstractmethod
    def progress(self, progression: Progression) -> None:
        """Report that an iteration has ended."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the terminal. Nothing is reported afterwards."""


class SilentReporter(AbstractReporter):
    """Report nothing, for use as a library."""

    def say(self, text: str) -> None:
        pass

    def progress(self, progression: Progression) -> None:
        pass

    def close(self) -> None:
        pass


class PlainReporter(AbstractReporter):
    """Print one aligned line every few seconds, for logs and pipes."""

    def __init__(self, interval: float = 5.0) -> None:
        self._interval = interval
        self._last = -math.inf
        self._has_header = False

    def say(self, text: str) -> None:
        print(text, flush=True)

    def progress(self, progression: Progression) -> None:
        now = time.monotonic()
        finished = progression.row["env_steps"] >= progression.total_steps
        if now - self._last < self._interval and not finished:
            return
        self._last = now
        if not self._has_header:
            self.say(plain_header(progression.row))
            self._has_header = True
        self.say(plain_line(progression))

    def close(self) -> None:
        pass


class LiveReporter(AbstractReporter):
    """Show a progress bar that stays on one line of a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            BarColumn(bar_width=10),
            TextColumn("{task.fields[status]}"),
            console=console,
            # Redrawn after every iteration. A thread for it would take time from the physics.
            auto_refresh=False,
        )
        self._task = self._progress.add_task("", total=1.0, status="compiling …")
        self._progress.start()
        self._progress.refresh()

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def progress(self, progression: Progression) -> None:
        done = progression.row["env_steps"] / progression.total_steps
        self._progress.update(self._task, completed=done, status=live_status(progression))
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


def reporter_for_stdout() -> AbstractReporter:
    return LiveReporter() if can_redraw(sys.stdout) else PlainReporter()


def can_redraw(stream: TextIO | io.TextIOBase | None) -> bool:
    """Return whether a written line can be overwritten: true on a terminal that is not dumb.

    A closed stream is None.
    """
    return (
        stream is not None
        and stream.isatty()
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    )


def _columns(row: Row) -> tuple[tuple[str, str, str], ...]:
    evaluated = (("eval/episode_reward", "evaluated", "9.1f"),) if "eval/episode_reward" in row else ()
    return (
        ("training/episode_reward", "return", "8.1f"),
        *evaluated,
        ("losses/costate", "co-state", "9.3f"),
        *(OFF_POLICY if "training/updates" in row else ON_POLICY),
    )


def plain_header(row: Row) -> str:
    titles = " ".join(title.rjust(int(form.split(".")[0])) for _, title, form in _columns(row))
    return f"{'steps':>12} {titles} {'steps/s':>9} {'left':>8}"


def plain_line(progression: Progression) -> str:
    row = progression.row
    numbers = " ".join(_number(row, name, form) for name, _, form in _columns(row))
    speed, left = row["training/sps"], duration(progression.seconds_left)
    return f"{int(row['env_steps']):>12,} {numbers} {speed:>9,.0f} {left:>8}"


def live_status(progression: Progression) -> str:
    row = progression.row
    # Short enough for a terminal of 80 columns.
    steps = f"{row['env_steps'] / 1e6:.1f}/{progression.total_steps / 1e6:.1f}M"
    evaluated = (
        f" (evaluated {_number(row, 'eval/episode_reward', '.0f')})" if "eval/episode_reward" in row else ""
    )
    gained, costate = _number(row, "training/episode_reward", ".0f"), _number(row, "losses/costate", ".2f")
    numbers = f"return {gained}{evaluated} co-state {costate}"
    return f"{steps} {numbers} {row['training/sps']:,.0f} steps/s {duration(progression.seconds_left)} left"


def _number(row: Row, name: str, spec: str) -> str:
    """Format a number, or a dash of the same width if there is none yet."""
    width = spec.split(".")[0] or "1"
    value = row.get(name, math.nan)
    return format(value, spec) if math.isfinite(value) else "–".rjust(int(width))


def duration(seconds: float) -> str:
    """Format seconds as 1:02:03 or 2:03."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
