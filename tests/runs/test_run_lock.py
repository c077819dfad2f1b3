"""Two processes on one run: the second is refused, and an abandoned lock blocks nobody."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from costate._base.errors import RunDirectoryError, StorageError
from costate.config.run_config import RunConfig
from costate.runs.metrics_log import MetricsLog
from costate.runs.run_directory import create_run, held
from costate.training.loop import resume, train

HOLD = """
import pathlib, sys, time
from costate.runs.run_directory import held
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
    # Replacing the run takes a new lock.
    train(config, tmp_path / "run", overwrite=True)


def test_a_link_in_the_place_of_a_lock_is_refused_and_not_followed(
    quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    run, thesis = create_run(tmp_path / "run", quick_config, {}, overwrite=False), tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    (run.path / "run.lock").symlink_to(thesis)
    with (
        pytest.raises(StorageError, match=r"run\.lock: it is a symbolic link to .*thesis\.tex"),
        held(run.path),
    ):
        pass
    assert thesis.read_text() == "years of work"


def test_a_file_of_somebody_else_that_has_the_name_of_a_lock_is_kept(
    quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    """This includes a hard link, which looks like any other file."""
    run, thesis = create_run(tmp_path / "run", quick_config, {}, overwrite=False), tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    (run.path / "run.lock").hardlink_to(thesis)
    with (
        pytest.raises(
            StorageError,
            match=r"run\.lock should be a lock file, but it contains something that costate did not write",
        ),
        held(run.path),
    ):
        pass
    assert thesis.read_text() == "years of work"
    # The beginning of a note, left by a process that was killed while it wrote it.
    thesis.write_text('{"proc')
    with held(run.path):
        assert '"process": ' in thesis.read_text()


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "metrics.damaged.jsonl", "events.out.tfevents.2000000000.here.0", "wandb"]
)
def test_nothing_in_the_folder_of_a_run_is_written_through_a_link(
    name: str, quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    run, thesis = create_run(tmp_path / "run", quick_config, {}, overwrite=False), tmp_path / "thesis.tex"
    thesis.write_text('years of work\n{"env_steps": 4000}\n')
    if name == "metrics.damaged.jsonl":
        run.metrics.write_text("damaged\n")
    (run.path / name).symlink_to(thesis)
    with pytest.raises(StorageError, match=rf"{re.escape(name)}: it is a symbolic link to .*thesis\.tex"):
        MetricsLog(run, 0, 0, lambda _: None)
    assert thesis.read_text() == 'years of work\n{"env_steps": 4000}\n'
    assert (run.path / name).is_symlink()
