"""Two processes on one run: the second is refused, and a lock that nobody holds is no obstacle."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from costate._errors import RunDirectoryError
from costate.config import RunConfig
from costate.run_directory import create_run, held
from costate.training import resume, train

HOLD = """
import pathlib, sys, time
from costate.run_directory import held
with held(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def taken(quick_config: RunConfig, tmp_path: pathlib.Path):
    """A run that another process is training."""
    run = create_run(tmp_path / "run", quick_config, {}, overwrite=False)
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield run, process
    process.kill()
    process.wait()


def test_nobody_else_can_resume_or_replace_a_run_that_is_trained(taken, quick_config: RunConfig) -> None:
    run, process = taken
    message = rf"run is being trained by another process \({process.pid} on .+, since \d{{4}}-"
    with pytest.raises(RunDirectoryError, match=message):
        resume(run.path)
    with pytest.raises(RunDirectoryError, match=message):
        train(quick_config, run.path, overwrite=True)
    assert (run.path / "config.json").is_file()


def test_the_lock_of_a_process_that_was_killed_is_no_obstacle(taken) -> None:
    run, process = taken
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (run.path / "run.lock").read_text()
    with held(run.path):
        pass


def test_training_holds_its_run_and_lets_go(quick_config: RunConfig, tmp_path: pathlib.Path) -> None:
    from cut_off import Breaker

    config = dataclasses.replace(quick_config, steps=2 * 4 * 1000)
    refused: list[str] = []

    class Meddler(Breaker):
        def progress(self, progression) -> None:
            with pytest.raises(RunDirectoryError, match="another process") as caught, held(tmp_path / "run"):
                pass
            refused.append(str(caught.value))

    train(config, tmp_path / "run", reporter=Meddler())
    assert len(refused) == 2
    with held(tmp_path / "run"):
        pass
    # Replacing it takes a new lock.
    train(config, tmp_path / "run", overwrite=True)
