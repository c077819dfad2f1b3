"""The list of files that costate puts into a run is complete, so that ``--overwrite`` finds foreign files."""

import dataclasses
import pathlib

import pytest

from costate.cli import main
from costate.config.run_config import RunConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_contents import foreign_entries, listed
from costate.runs.run_directory import check_free
from costate.training.loop import resume, train

SMALL = RunConfig(
    "CartpoleSwingup",
    steps=4000,
    policy=PolicyConfig(hidden_size=4),
    rollout=RolloutConfig(environments=4),
    learner=PPOConfig(epochs=1, minibatches=1),
)


def test_a_run_that_was_trained_stopped_and_continued_holds_nothing_foreign(
    quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    run = train(dataclasses.replace(quick_config, steps=8000), tmp_path / "run").run
    with open(run.metrics, "a") as file:
        file.write("damaged\n")
    resume(run.path)
    assert run.damaged_metrics.exists()
    assert foreign_entries(run.path) == []
    check_free(run.path, overwrite=True)


@pytest.mark.thorough
def test_no_command_puts_anything_into_the_folder_of_a_run_that_is_not_known(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = train(SMALL, tmp_path / "run", wandb="costate").run
    where, few = str(run.path), ["--episodes", "2"]
    for arguments in (
        ["evaluate", where, *few],
        ["evaluate", where, *few, "--noise", "0.1"],
        ["robustness", where, *few, "--dropouts", "0", "0.5"],
        ["robustness", where, *few, "--over", "burst-length", "--values", "1", "4"],
        ["align", where, "--episodes", "2", "--steps", "20", "--horizon", "5", "--knockout-episodes", "2"],
        *(["export", where, "--format", form] for form in ("bundle", "numpy", "onnx", "stablehlo")),
        ["export", where, "--format", "onnx", "--out", where],
        ["video", where, "--seconds", "0.1", "--width", "64", "--height", "64"],
        ["video", where, "--grid", "--seconds", "0.1", "--width", "64", "--height", "64"],
        ["report", where],
    ):
        assert main(arguments) == 0, arguments
        assert foreign_entries(run.path) == [], arguments
    folders = {path.name for path in run.path.iterdir() if path.is_dir()}
    assert folders >= {
        "checkpoints",
        "milestones",
        "evaluations",
        "alignment",
        "export",
        "videos",
        "report",
        "wandb",
    }
    check_free(run.path, overwrite=True)


def test_of_many_names_the_first_are_listed() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([*"abcdefg"]) == "a, b, c, d, e and 2 more"
