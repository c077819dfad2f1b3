"""Run jobs on a backend until none is left.

Jobs start when there is room for them, start again if their worker died, and stop when the user asks.
"""

import abc
import collections
import time
from collections.abc import Callable, Sequence

from costate.experiments.work import DONE, FAILED, STOPPED, Job, record_failure
from costate.runs.interrupts import StopRequest

# Seconds between two checks of the workers.
POLL = 0.25

DIED = None
"""Exit code of a job whose worker was killed or whose node has gone."""


class AbstractBackend(abc.ABC):
    """A place that runs jobs."""

    @abc.abstractmethod
    def places(self) -> int:
        """Return the number of jobs that could run at once now."""

    @abc.abstractmethod
    def start(self, job: Job) -> None:
        """Start a job without waiting for it."""

    @abc.abstractmethod
    def ended(self) -> list[tuple[Job, int | None]]:
        """Return the jobs that have ended since the last call, with their exit codes.

        The code of a killed job is :data:`DIED`.
        """

    @abc.abstractmethod
    def ask_to_stop(self) -> None:
        """Ask every job to save and stop."""

    @abc.abstractmethod
    def close(self) -> None:
        """Kill the remaining jobs and release all resources."""


def run_jobs(
    backend: AbstractBackend,
    jobs: Sequence[Job],
    retries: int,
    stop: StopRequest,
    watch: Callable[[Sequence[Job]], None],
    poll: float = POLL,
) -> bool:
    """Run all jobs. Return False if the user stopped them.

    ``watch`` is called at every check with the running jobs.
    """
    waiting, running = collections.deque(jobs), list[Job]()
    deaths: collections.Counter[Job] = collections.Counter()
    asked_to_stop = False
    while running or (waiting and not stop.asked):
        if stop.asked and not asked_to_stop:
            backend.ask_to_stop()
            asked_to_stop = True
        while waiting and not stop.asked and len(running) < backend.places():
            job = waiting.popleft()
            backend.start(job)
            running.append(job)
        for job, code in backend.ended():
            running.remove(job)
            if code in (DONE, FAILED) or stop.asked:
                continue
            # The worker was killed, or stopped from outside. The job continues from its checkpoints.
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
            # The reader of the output has gone (a closed terminal, a pipe into `head`): save and stop, as for
            # Ctrl-C.
            stop.ask()
            watch = _ignore
        if running or waiting:
            time.sleep(poll)
    return not stop.asked


def _ignore(running: Sequence[Job]) -> None:
    """Show nothing."""
