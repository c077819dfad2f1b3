"""Runs jobs on a backend until none is left: starts them where there is room, starts those again whose worker died, stops them when asked."""

import abc
import collections
import time
from collections.abc import Callable, Sequence

from costate.experiments.work import DONE, FAILED, STOPPED, Job, record_failure
from costate.runs.interrupts import StopRequest

# Seconds between two looks at the workers.
POLL = 0.25

DIED = None
"""Stands for the exit code of a job whose worker was killed or whose node is gone."""


class AbstractBackend(abc.ABC):
    """A place where jobs run."""

    @abc.abstractmethod
    def places(self) -> int:
        """How many jobs could run at once now."""

    @abc.abstractmethod
    def start(self, job: Job) -> None:
        """Start a job; returns at once."""

    @abc.abstractmethod
    def ended(self) -> list[tuple[Job, int | None]]:
        """Jobs that have ended since the last call, with their exit codes; :data:`DIED` for those that were killed."""

    @abc.abstractmethod
    def ask_to_stop(self) -> None:
        """Have every job save and stop."""

    @abc.abstractmethod
    def close(self) -> None:
        """Kill what still runs and release everything."""


def run_jobs(
    backend: AbstractBackend,
    jobs: Sequence[Job],
    retries: int,
    stop: StopRequest,
    watch: Callable[[Sequence[Job]], None],
    poll: float = POLL,
) -> bool:
    """Run all jobs; true unless it was asked to stop. ``watch`` is told at every look which ones are running."""
    waiting, running = collections.deque(jobs), list[Job]()
    deaths: collections.Counter[Job] = collections.Counter()
    told = False
    while running or (waiting and not stop.asked):
        if stop.asked and not told:
            backend.ask_to_stop()
            told = True
        while waiting and not stop.asked and len(running) < backend.places():
            job = waiting.popleft()
            backend.start(job)
            running.append(job)
        for job, code in backend.ended():
            running.remove(job)
            if code in (DONE, FAILED) or stop.asked:
                continue
            # Killed, or stopped by somebody else than us: its checkpoints are there, so it goes on where it was.
            deaths[job] += 1
            if deaths[job] <= retries:
                waiting.appendleft(job)
            else:
                what = "was stopped from outside" if code == STOPPED else "was killed, or its node went away"
                for run in job.runs:
                    record_failure(
                        job.folder,
                        run,
                        f"The worker {what} {deaths[job]} times. Out of memory is a common reason.",
                        "",
                    )
        try:
            watch(tuple(running))
        except OSError:
            # Nobody is looking any more (a closed terminal, a pipe into `head`): save and stop, as for Ctrl-C.
            stop.ask()
            watch = _nobody
        if running or waiting:
            time.sleep(poll)
    return not stop.asked


def _nobody(running: Sequence[Job]) -> None:
    """Nobody watches."""
