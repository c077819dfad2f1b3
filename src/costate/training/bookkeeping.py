"""Report on runs while they train: rows for the logs, progress for the reporter, and learning curves."""

import collections
import contextlib
import math
import statistics
import time
from collections.abc import Sequence

from costate.runs.curves import draw_learning_curve
from costate.runs.interrupts import StopRequest
from costate.runs.metrics_log import AbstractLog, Row
from costate.runs.run_directory import Run
from costate.training.console import AbstractReporter, Progression
from costate.training.group import Group, describe
from costate.training.periodic_evaluation import RETURN, interval

# The remaining time is estimated from the last iterations. Off-policy, the first ones only collect and are
# much faster than the rest.
RECENT = 50
# Drawing a picture takes as long as many iterations of a small run.
SECONDS_BETWEEN_PICTURES = 60.0


class Bookkeeper:
    """Keep the clock of a group of runs, write their rows and report their progress."""

    def __init__(
        self,
        group: Group,
        logs: Sequence[Sequence[AbstractLog]],
        reporter: AbstractReporter,
        stop: StopRequest,
    ) -> None:
        self._group = group
        self._logs = logs
        self._reporter = reporter
        self._stop = stop
        # A resumed run's clock continues where it stopped. It includes compiling and saving.
        self._began = time.perf_counter() - _elapsed(group.runs[0])
        self._drawn = time.perf_counter()
        self._recent = collections.deque[float](maxlen=RECENT)
        # NaN reserves a column for evaluations before the first one.
        self._shown: Row = {} if interval(group.config) is None else {RETURN: math.nan}

    def write(self, rows: Sequence[Row], iteration: int) -> None:
        """Log the results of an iteration, a row for each run, and report progress."""
        elapsed = time.perf_counter() - self._began
        rows = [row | {"time/elapsed": elapsed} for row in rows]
        for logs, row in zip(self._logs, rows, strict=True):
            for log in logs:
                log.write(row)
        self._recent.append(rows[0]["time/iteration"])
        # A number without a new value, as between the ends of episodes, keeps its last one.
        self._shown |= {name: value for name, value in _mean_row(rows).items() if math.isfinite(value)}
        left = statistics.fmean(self._recent) * (self._group.config.iterations - iteration)
        try:
            self._reporter.progress(Progression(dict(self._shown), self._group.config.final_steps, left))
        except OSError:
            # The reader is gone (`costate train … | head`, a closed terminal): save and stop, as for Ctrl-C.
            self._stop.ask()

    def draw_now_and_then(self) -> None:
        """Draw the learning curves if ``SECONDS_BETWEEN_PICTURES`` have passed since the last time."""
        if time.perf_counter() - self._drawn >= SECONDS_BETWEEN_PICTURES:
            draw(self._group)
            self._drawn = time.perf_counter()

    def say_if_heard(self, text: str) -> None:
        """Say something at the end of a run, but do not fail if the reader is gone."""
        with contextlib.suppress(OSError):
            self._reporter.say(text)


def draw(group: Group) -> None:
    """Draw the learning curve of every run."""
    for run in group.runs:
        draw_learning_curve(run, describe(run))


def _elapsed(run: Run) -> float:
    """Return the seconds that a run has trained so far, from its log."""
    rows = run.read_metrics()
    return float(rows[-1].get("time/elapsed", 0.0)) if rows else 0.0


def _mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean over the rows of a group, with the speed of all seeds together."""
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    speed = sum(row["training/sps"] for row in rows)
    return mean | {
        "iteration": rows[0]["iteration"],
        "env_steps": rows[0]["env_steps"],
        "training/sps": speed,
    }
