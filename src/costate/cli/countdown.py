"""Show the progress of a job and its remaining time.

On a terminal this is one live line, elsewhere a line from time to time. It is always on stderr: standard
output belongs to the result, whether a person or a script reads it.
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

# Seconds between two lines if nothing can be redrawn. A shorter job prints nothing.
INTERVAL = 20.0
# Often enough for a clock to tick, and rare enough to take no time from the physics.
REDRAWN_PER_SECOND = 2.0

Clock = Callable[[], float]


class Estimate:
    """Estimate of the remaining time, assuming that progress continues at the average speed so far."""

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
        """Return the time left, or the time since the start while the share is unknown."""
        if self._end is None:
            return f"{duration(self.elapsed)} so far"
        return f"{duration(self._end - self._clock())} left"


class AbstractCountdown(abc.ABC):
    """Receiver of the progress of a job."""

    @abc.abstractmethod
    def tell(self, share: float | None, what: str) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class PlainCountdown(AbstractCountdown):
    """A line from time to time, for logs and pipes."""

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
    """A progress bar on one line of a terminal, removed when the job is done."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._estimate = Estimate(clock)
        self._progress = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            _LeftColumn(self._estimate),
            console=console,
            refresh_per_second=REDRAWN_PER_SECOND,
            transient=True,
            # Printed lines appear above the bar. But output to a file or a pipe must not be redirected to the
            # terminal.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def tell(self, share: float | None, what: str) -> None:
        self._estimate.note(share)
        # A total of None shows a bar that only moves.
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
    """The remaining time. It is rendered again at every refresh, so that the clock ticks between reports."""

    def __init__(self, estimate: Estimate) -> None:
        super().__init__()
        self._estimate = estimate

    def render(self, task: Task) -> Text:
        return Text(self._estimate.text())


@contextlib.contextmanager
def countdown() -> Iterator[Tell]:
    """Show the progress that is reported inside this block."""
    shown = LiveCountdown(Console(stderr=True)) if can_redraw(sys.stderr) else PlainCountdown()
    with contextlib.closing(shown):
        yield shown.tell
