"""How far a job is and how long it will still take: one live line on a terminal, a line now and then elsewhere. Always on stderr.

Standard output belongs to the result, whether a person reads it or a script.
"""

import abc
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from costate._base.progress import Tell
from costate.training.console import can_redraw, duration

# Seconds between two lines where nothing can be redrawn. A job that takes less says nothing.
INTERVAL = 20.0
# Often enough for a clock to tick, and too seldom to take time from the physics.
REDRAWN_PER_SECOND = 2.0

Clock = Callable[[], float]


class Estimate:
    """The time left: as long for every share of what is left as for those that are done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock()
        self._end: float | None = None

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    def note(self, share: float | None) -> None:
        self._end = self._started + self.elapsed / share if share else None

    def text(self) -> str:
        """Time left, or the time since the start while nothing is known."""
        if self._end is None:
            return f"{duration(self.elapsed)} so far"
        return f"{duration(self._end - self._clock())} left"


class AbstractCountdown(abc.ABC):
    """Receives how far a job is."""

    @abc.abstractmethod
    def tell(self, share: float | None, what: str) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class PlainCountdown(AbstractCountdown):
    """A line now and then, for logs and pipes."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock, self._estimate = clock, Estimate(clock)
        self._last = clock()

    def tell(self, share: float | None, what: str) -> None:
        self._estimate.note(share)
        if self._clock() - self._last >= INTERVAL:
            self._last = self._clock()
            done = "" if share is None else f", {share:.0%} done"
            print(f"{what}{done}, {self._estimate.text()}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class LiveCountdown(AbstractCountdown):
    """A bar on one line of a terminal, which is gone when the job is done."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._estimate = Estimate(clock)
        self._progress = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            _LeftColumn(self._estimate),
            console=console,
            refresh_per_second=REDRAWN_PER_SECOND,
            transient=True,
            # What is printed meanwhile goes above the bar; but what goes into a file or a pipe must not come here.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def tell(self, share: float | None, what: str) -> None:
        self._estimate.note(share)
        # A total of None is a bar that only moves.
        self._progress.update(
            self._task,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            description=what,
            refresh=True,
        )

    def close(self) -> None:
        self._progress.stop()


class _LeftColumn(ProgressColumn):
    """Drawn anew each time, so that the clock ticks while nothing is told."""

    def __init__(self, estimate: Estimate) -> None:
        super().__init__()
        self._estimate = estimate

    def render(self, task: Task) -> Text:
        return Text(self._estimate.text())


@contextlib.contextmanager
def countdown() -> Iterator[Tell]:
    """Shows how far a job is while it is open."""
    shown = LiveCountdown(Console(stderr=True)) if can_redraw(sys.stderr) else PlainCountdown()
    with contextlib.closing(shown):
        yield shown.tell
