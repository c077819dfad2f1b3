"""Run one job of a sweep in its own process: train or continue some runs, evaluate them, and record failures.

Both backends start the same process, so a run does not depend on where it runs. ``python -m
costate.experiments.work JOB`` is for them, not for people.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence

import jax

from costate._base.checks import printable
from costate._base.errors import ConfigError, CostateError, RunDirectoryError
from costate._base.files import explained_errors, remove_file, remove_folder, try_lock, write_atomically
from costate._base.lean import this_process_is_ours
from costate._base.out_of_memory import out_of_memory
from costate._base.streams import make_writable
from costate._base.task_files import load_task_files
from costate.config.run_config import RunConfig, differing_fields, from_json, to_json, without_changeable
from costate.experiments.processors import claim_cores
from costate.runs.checkpoint import newest_steps
from costate.runs.interrupts import INTERRUPTED
from costate.runs.run_contents import foreign_entries
from costate.runs.run_directory import CONFIG_FILE, open_run
from costate.runs.sentinel import guarded
from costate.trained.robustness import measure
from costate.training.loop import resume, resume_together, train_together

# Exit codes of the process. A recorded failure is not 1, which Python returns for an unexpected error.
DONE, FAILED, STOPPED = 0, 3, INTERRUPTED

FAILURES = "failures"
LOCKS = "locks"
# Seconds to wait for a run that another process has locked. A process that was just killed releases its lock
# at once.
LOCK_TIMEOUT = 30.0


@dataclasses.dataclass(frozen=True)
class Job:
    """Seeds of one cell that train together, as plain data that can be sent to another process or machine."""

    folder: str
    """Folder of the sweep, on storage that every worker can reach."""
    runs: tuple[str, ...]
    """Folders of the runs, relative to it."""
    configs: tuple[str, ...]
    """Configs of the runs, as JSON."""
    cores: int
    dropouts: tuple[float, ...]
    episodes: int
    wandb: str | None = None

    def split(self) -> "tuple[Job, ...]":
        """Return the same work as jobs of one run each."""
        return tuple(
            dataclasses.replace(self, runs=(run,), configs=(config,))
            for run, config in zip(self.runs, self.configs, strict=True)
        )

    def to_text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Job":
        data = json.loads(text)
        return cls(**data | {name: tuple(data[name]) for name in ("runs", "configs", "dropouts")})

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        return tuple(pathlib.Path(self.folder) / run for run in self.runs)


def perform(job: Job) -> int:
    """Continue the job from its current state to its end.

    Return an exit code, and record the error of a failed run.
    """
    try:
        with contextlib.ExitStack() as stack:
            for run in job.runs:
                stack.enter_context(_locked(pathlib.Path(job.folder) / LOCKS / run))
                remove_file(failure_file(job.folder, run))
            return _perform(job)
    except KeyboardInterrupt:
        return STOPPED


def _perform(job: Job) -> int:
    try:
        if not _train(job):
            return STOPPED
        for path in job.paths if job.dropouts else ():
            measure(open_run(path), job.dropouts, job.episodes, 0, print)
    except Exception as error:
        if len(job.runs) > 1:
            # A seed that diverges must not end the others: each continues alone, from its own newest
            # checkpoint.
            return max(_perform(alone) for alone in job.split())
        what = (
            str(error)
            if isinstance(error, CostateError)
            else out_of_memory(error) or f"{type(error).__name__}: {error}"
        )
        record_failure(job.folder, job.runs[0], what, traceback.format_exc())
        return FAILED
    return DONE


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Lock a run against other workers inside this block.

    The lock ends with the process, however that happens.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT
    while (lock := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise RunDirectoryError(
                f"Another process is training {path.name}, and two processes cannot train one run."
            )
        time.sleep(0.1)
    with lock:
        yield


def _train(job: Job) -> bool:
    """Train the runs of a job. Return True if all of them have used up their budgets."""
    configs = [from_json(json.loads(config)) for config in job.configs]
    started = [has_begun(path) for path in job.paths]
    if not all(started):
        if any(started):
            raise ConfigError(
                f"Some of {', '.join(job.runs)} have checkpoints and some have not, so they cannot train "
                "together."
            )
        for path in job.paths:
            _clear(path)
        return all(
            outcome.finished
            for outcome in train_together(configs, job.paths, overwrite=True, wandb=job.wandb)
        )
    for path, config in zip(job.paths, configs, strict=True):
        there, planned = (without_changeable(to_json(each)) for each in (open_run(path).config, config))
        if there != planned:
            raise ConfigError(
                f"{path} holds a run with another config than the sweep plans there: "
                f"{'; '.join(differing_fields(there, planned))}. Move it away, and the sweep will train a "
                f"new one."
            )
    if all(
        open_run(path).config.steps == config.steps for path, config in zip(job.paths, configs, strict=True)
    ):
        return all(outcome.finished for outcome in resume_together(job.paths, wandb=job.wandb))
    return all(
        _train_resized(path, config, job.wandb) for path, config in zip(job.paths, configs, strict=True)
    )


def _train_resized(path: pathlib.Path, config: RunConfig, wandb: str | None) -> bool:
    """Train a run whose length was changed by hand.

    It keeps its length, but gets at least the steps that the sweep asks for.
    """
    run = open_run(path)
    if newest_steps(run.checkpoints) >= config.final_steps:
        return True
    print(
        f"{path.name} was changed to {run.config.total_steps:,} steps by hand; the sweep asks for "
        f"{config.total_steps:,}"
    )
    return resume(path, steps=max(run.config.total_steps, config.total_steps), wandb=wandb).finished


def has_begun(path: pathlib.Path) -> bool:
    """Return True if a run has a checkpoint to continue from.

    A run that ended before its first real checkpoint has nothing to lose.
    """
    return (path / CONFIG_FILE).is_file() and newest_steps(path / "checkpoints") > 0


def _clear(path: pathlib.Path) -> None:
    """Remove the remains of a worker that was killed while it created or replaced a run's folder.

    Folders with anything else in them stay.
    """
    if not path.is_dir() or path.is_symlink() or (path / CONFIG_FILE).exists():
        return
    if not foreign_entries(path):
        remove_folder(path)


def failure_file(folder: str | pathlib.Path, run: str) -> pathlib.Path:
    return pathlib.Path(folder) / FAILURES / f"{run}.json"


def record_failure(folder: str | pathlib.Path, run: str, error: str, trace: str) -> None:
    path = failure_file(folder, run)
    with explained_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    document = {"error": error, "traceback": trace, "written": time.strftime("%Y-%m-%dT%H:%M:%S")}
    write_atomically(path, json.dumps(document, indent=1).encode())


def read_failure(folder: str | pathlib.Path, run: str) -> str | None:
    """Return the error that ended a run, in one line; None if it did not fail."""
    path = failure_file(folder, run)
    if not path.is_file():
        return None
    try:
        return printable(str(json.loads(path.read_text())["error"]))
    except (OSError, ValueError, KeyError, TypeError):
        return "the record of its error cannot be read"


def end_with_parent(parent: int) -> None:
    """Let the system kill this process when its parent ends, so that two processes never train one run."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(STOPPED)


def main(arguments: Sequence[str]) -> int:
    parent, text = arguments
    end_with_parent(int(parent))
    # A parent with threads, such as Ray's, may pass on a signal mask that blocks every request to stop.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    job = Job.from_text(text)
    claim = claim_cores(job.cores)
    if claim is not None:
        os.sched_setaffinity(0, claim.cores)
    # As many devices as requested cores, claimed or not: the order of floating-point sums depends on their
    # number.
    jax.config.update("jax_num_cpu_devices", job.cores)
    load_task_files()
    this_process_is_ours()
    make_writable()
    with guarded():
        code = perform(job)
    if claim is not None:
        claim.release()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
