"""One job of a sweep, in a process of its own: train or continue some runs, evaluate them, and leave a record if that fails.

Both backends start the same process, so a run does not depend on where it runs. ``python -m costate.experiments.work JOB`` is for them, not for
people.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Sequence

import jax

from costate._errors import ConfigError, CostateError
from costate._files import explained_errors, remove, write_atomically
from costate.experiments.processors import claim_cores

# Exit codes of the process.
DONE, FAILED, STOPPED = 0, 1, 130

FAILURES = "failures"


@dataclasses.dataclass(frozen=True)
class Job:
    """Seeds of one cell that train together, as plain data that can be handed to another process or machine."""

    folder: str
    """Folder of the sweep, on storage that every worker reaches."""
    runs: tuple[str, ...]
    """Folders of the runs in it."""
    configs: tuple[str, ...]
    """Their configs, as JSON."""
    cores: int
    dropouts: tuple[float, ...]
    episodes: int

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
    """Bring the job to its end from wherever it stands; returns an exit code. Errors are recorded for each run."""
    for run in job.runs:
        remove(failure_file(job.folder, run))
    try:
        if not _train(job):
            return STOPPED
        for path in job.paths:
            evaluate_missing(path, job.dropouts, job.episodes)
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        what = str(error) if isinstance(error, CostateError) else f"{type(error).__name__}: {error}"
        for run in job.runs:
            record_failure(job.folder, run, what, traceback.format_exc())
        return FAILED
    return DONE


def _train(job: Job) -> bool:
    """True if all runs have used up their budgets."""
    # Imported here, because they take seconds and the sweep itself needs only the records.
    from costate.checkpoint import folders
    from costate.config import from_json
    from costate.run_directory import CONFIG_FILE, open_run
    from costate.training import resume_together, train_together

    configs = [from_json(json.loads(config)) for config in job.configs]
    started = [(path / CONFIG_FILE).is_file() and folders(path / "checkpoints") != [] for path in job.paths]
    if not all(started):
        # A run that died before its first checkpoint has nothing to lose. In a group, those that have something are not touched: the sweep puts
        # only runs of one state together.
        if any(started):
            raise ConfigError(f"Some of {', '.join(job.runs)} were started and some were not, so they cannot train together.")
        return all(outcome.finished for outcome in train_together(configs, job.paths, overwrite=True))
    for path, config in zip(job.paths, configs, strict=True):
        if open_run(path).config != config:
            raise ConfigError(f"{path} holds a run of another config than its name says. Move it away, and the sweep will make a new one.")
    return all(outcome.finished for outcome in resume_together(job.paths))


def evaluate_missing(path: pathlib.Path, dropouts: Sequence[float], episodes: int) -> None:
    """Evaluate a run at those blackout probabilities at which its newest checkpoint has not been evaluated yet."""
    from costate.evaluation import evaluate, find_evaluation
    from costate.run_directory import open_run

    run = open_run(path)
    for dropout in dropouts:
        if find_evaluation(run, dropout, episodes) is None:
            evaluate(run, dropout=dropout, episodes=episodes)


def failure_file(folder: str | pathlib.Path, run: str) -> pathlib.Path:
    return pathlib.Path(folder) / FAILURES / f"{run}.json"


def record_failure(folder: str | pathlib.Path, run: str, error: str, trace: str) -> None:
    path = failure_file(folder, run)
    with explained_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    document = {"error": error, "traceback": trace, "written": time.strftime("%Y-%m-%dT%H:%M:%S")}
    write_atomically(path, json.dumps(document, indent=1).encode())


def read_failure(folder: str | pathlib.Path, run: str) -> str | None:
    """What ended a run, in one line; None if it did not fail."""
    path = failure_file(folder, run)
    if not path.is_file():
        return None
    try:
        return str(json.loads(path.read_text())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return "its record of the error cannot be read"


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when the one that started it is gone, so that no run is ever trained by two."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(STOPPED)


def main(arguments: Sequence[str]) -> int:
    parent, text = arguments
    end_with_parent(int(parent))
    # A parent with threads of its own, like Ray's, may hand on a mask under which no request to stop would ever arrive.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    job = Job.from_text(text)
    claim = claim_cores(job.cores)
    if claim is not None:
        os.sched_setaffinity(0, claim.cores)
    # As many devices as cores were asked for, whether or not they could be claimed: the order of floating-point sums depends on their number.
    jax.config.update("jax_num_cpu_devices", job.cores)
    code = perform(job)
    if claim is not None:
        claim.release()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
