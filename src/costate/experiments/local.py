"""The local backend: jobs in processes of this machine, each on its own cores."""

import os
import pathlib
import signal
import subprocess
import sys
from typing import IO

from costate._base.errors import ConfigError
from costate._base.files import open_to_append, output_folder
from costate.experiments.schedule import DIED, AbstractBackend
from costate.experiments.work import DONE, FAILED, STOPPED, Job

LOGS = "logs"


def worker_command(job: Job) -> list[str]:
    """Return the command that starts a worker. The calling process must be its parent."""
    return [sys.executable, "-m", "costate.experiments.work", str(os.getpid()), job.to_text()]


def open_log(job: Job) -> IO[bytes]:
    """Open the file for a worker's own output."""
    return open_to_append(output_folder(pathlib.Path(job.folder) / LOGS) / f"{job.runs[0]}.log")


def exit_code(code: int) -> int | None:
    """Return the exit code of a worker, or :data:`DIED` for a code that a worker never chooses."""
    return code if code in (DONE, FAILED, STOPPED) else DIED


class LocalBackend(AbstractBackend):
    """Run as many processes as there are cores for."""

    def __init__(self, cores_per_job: int) -> None:
        cores = len(os.sched_getaffinity(0))
        if cores_per_job > cores:
            raise ConfigError(
                f"resources.cores is {cores_per_job}, but this machine has {cores} available. Lower it, or "
                "use a cluster with --backend ray."
            )
        self._places = cores // cores_per_job
        self._processes: dict[Job, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def places(self) -> int:
        return self._places

    def start(self, job: Job) -> None:
        log = open_log(job)
        # In a new session, so that Ctrl-C in the terminal reaches only this process, which then stops the
        # workers.
        process = subprocess.Popen(
            worker_command(job), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self._processes[job] = process, log

    def ended(self) -> list[tuple[Job, int | None]]:
        over = [job for job, (process, _) in self._processes.items() if process.poll() is not None]
        return [(job, exit_code(self._forget(job))) for job in over]

    def ask_to_stop(self) -> None:
        for process, _ in self._processes.values():
            process.send_signal(signal.SIGINT)

    def close(self) -> None:
        for process, _ in self._processes.values():
            process.kill()
        for job in list(self._processes):
            self._forget(job)

    def _forget(self, job: Job) -> int:
        process, log = self._processes.pop(job)
        log.close()
        return process.wait()
