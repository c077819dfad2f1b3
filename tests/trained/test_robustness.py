"""Robustness: one checkpoint, a grid of blackouts, nothing retrained."""

import dataclasses
import json

import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import Run, create_run
from costate.trained.evaluation import DRAWS, Evaluation, read_evaluation
from costate.trained.robustness import Degradation, area_under, check_grid, is_evaluated, measure, table
from costate.training.loop import train


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    small = RunConfig(
        "CartpoleSwingup",
        steps=4000,
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=4),
    )
    small = dataclasses.replace(small, learner=PPOConfig(epochs=1, minibatches=1))
    folder = tmp_path_factory.mktemp("robustness")
    return [train(dataclasses.replace(small, seed=seed), folder / f"seed-{seed}").run for seed in (0, 1)]


def test_the_area_is_a_mean_height():
    # ∫ of the straight line from 2 to 4 and then 4 to 0 over twice the range: (3·1 + 2·2)/3.
    assert area_under(np.array([0.0, 1.0, 3.0]), np.array([2.0, 4.0, 0.0])) == pytest.approx(7.0 / 3.0)
    assert area_under(np.array([0.5]), np.array([6.0])) == 6.0


def test_a_grid_is_sorted_and_checked():
    assert check_grid([0.75, 0.0]) == (0.0, 0.75)
    for wrong in ([], [0.5, 0.5], [1.5]):
        with pytest.raises(ConfigError, match="different numbers between 0 and 1"):
            check_grid(wrong)


@pytest.mark.thorough
def test_every_probability_is_evaluated_once_and_read_back_later(runs, monkeypatch):
    said: list[str] = []
    first = measure(runs[0], (0.75, 0.25), 3, 0, print, said.append)
    assert first.values.tolist() == [0.25, 0.75]
    assert {evaluation.env_steps for evaluation in first.evaluations} == {4000}
    assert not any("before" in line for line in said)
    monkeypatch.setattr("costate.trained.robustness.evaluate", None)
    said.clear()
    assert measure(runs[0], (0.25, 0.75), 3, 0, print, said.append) == first
    assert all("(evaluated before)" in line for line in said)


def test_a_damaged_evaluation_is_made_again(runs):
    first = measure(runs[0], (0.125,), 2, 0, print)
    (file,) = runs[0].evaluations.glob("*dropout_0.125_*")
    file.write_text(file.read_text()[:40])
    assert measure(runs[0], (0.125,), 2, 0, print) == first


def test_an_evaluation_without_the_bursts_of_training_is_found_again(tmp_path):
    run = Run(tmp_path, RunConfig("LQR", sensors=SensorConfig(burst_length=5.0)))
    run.evaluations.mkdir()
    record = {
        "task": "LQR",
        "dropout": 0.0,
        "seed": 0,
        "env_steps": 0,
        "returns": [1.0, 2.0],
        "faults": {},
        "draws": DRAWS,
    }
    (run.evaluations / "step_000000000000_dropout_0_episodes_2_seed_0.json").write_text(
        json.dumps({"evaluation": record})
    )
    assert is_evaluated(run, 0.0, 2)
    assert not is_evaluated(run, 0.25, 2)


def test_an_evaluation_with_the_random_numbers_of_an_earlier_version_is_read_but_not_reused(tmp_path):
    """Its blackouts differ from those of new evaluations, which would share a curve with it."""
    run = Run(tmp_path, RunConfig("LQR"))
    run.evaluations.mkdir()
    record = {"task": "LQR", "dropout": 0.5, "seed": 0, "env_steps": 0, "returns": [1.0, 2.0], "faults": {}}
    file = run.evaluations / "step_000000000000_dropout_0.5_episodes_2_seed_0.json"
    file.write_text(json.dumps({"evaluation": record}))
    assert not is_evaluated(run, 0.5, 2)
    old = read_evaluation(file)
    assert old is not None
    assert (old.returns, old.draws) == ((1.0, 2.0), 1)


def test_the_table_shows_means_and_area(runs):
    evaluations = tuple(
        Evaluation("CartpoleSwingup", p, 0, 4000, (r - 1.0, r + 1.0)) for p, r in ((0.0, 100.0), (0.5, 50.0))
    )
    better = tuple(
        dataclasses.replace(evaluation, returns=tuple(r + 20.0 for r in evaluation.returns))
        for evaluation in evaluations
    )
    found = [Degradation(runs[0], evaluations), Degradation(runs[1], better)]
    lines = [line.split() for line in table(found, ["GRU", "GRU"]).splitlines()]
    assert lines[0] == ["run", "0", "0.5", "area", "steps", "folder"]
    assert lines[1] == ["GRU", "seed", "0", "100.0", "50.0", "75.0", "4,000", str(runs[0].path)]
    # Over the two seeds: 100 and 120, 50 and 70, 75 and 95, each with a deviation of √200.
    assert lines[3] == ["GRU", "mean", "110.0", "60.0", "85.0", "4,000", "2", "seeds"]
    assert lines[4] == ["GRU", "±", "14.1", "14.1", "14.1"]
    one = table(
        [Degradation(runs[0], evaluations[:1]), Degradation(runs[1], better[:1])], ["GRU", "NC-GRU"]
    ).splitlines()
    assert len(one) == 3
    assert one[1].split()[3:] == ["100.0", "–", "4,000", str(runs[0].path)]


@pytest.fixture
def played(monkeypatch):
    """Record the run names and sensors of evaluations instead of playing them, each with a return of 1."""
    found: list[tuple[str, SensorConfig]] = []

    def play(run, *, sensors, episodes, seed, **_):
        found.append((run.path.name, sensors))
        return Evaluation(
            run.config.task, sensors.dropout, seed, 0, (1.0,) * episodes, sensors.other_faults
        ), run.path

    monkeypatch.setattr("costate.trained.robustness.evaluate", play)
    return found


def untrained(folder, name, task="LQR", **settings):
    """Return the folder of a run that has a config and nothing else."""
    return str(create_run(folder / name, RunConfig(task, **settings), {}, overwrite=False).path)


def test_what_was_trained_with_faults_that_set_in_is_evaluated_under_any(played, tmp_path, capsys):
    run = untrained(tmp_path, "warm", rollout=RolloutConfig(fault_warmup=0.3))
    assert main(["robustness", run, "--dropouts", "0.5", "--sensors", "delay=2"]) == 0
    assert main(["robustness", run, "--over", "noise", "--values", "0", "0.1", "--sensors", "dropout=0"]) == 0
    assert [sensors for _, sensors in played] == [
        SensorConfig(delay=2),
        SensorConfig(0.0),
        SensorConfig(0.0, noise=0.1),
    ]
    with pytest.raises(ConfigError, match="cannot set in gradually"):
        RunConfig("LQR", rollout=RolloutConfig(fault_warmup=0.3), sensors=SensorConfig(delay=2))


def test_what_is_given_for_a_grid_acts_at_all_values_where_it_can(played, tmp_path, capsys):
    run = untrained(tmp_path, "plain")
    assert main(["robustness", run, "--dropouts", "0", "0.25", "--sensors", "burst-length=5"]) == 0
    assert (
        main(["robustness", run, "--over", "stuck", "--values", "0", "0.1", "--sensors", "stuck-length=5"])
        == 0
    )
    bursts, stuck = (
        [SensorConfig(0.0), SensorConfig(0.25, burst_length=5.0)],
        [SensorConfig(), SensorConfig(stuck=0.1, stuck_length=5.0)],
    )
    assert [sensors for _, sensors in played] == bursts + stuck
    for wrong, message in (
        (
            ["--over", "noise", "--values", "0", "1", "--sensors", "dropout=0", "burst-length=5"],
            "dropout is 0, so there are no bursts",
        ),
        (
            ["--over", "burst-length", "--values", "2", "5", "--sensors", "dropout=0"],
            "dropout is 0, so there are no bursts",
        ),
        (["--sensors", "burst-length=5"], "Use a burst_length of at least 7"),
        (
            ["--over", "noise", "--values", "0", "1", "--dropouts", "0.5"],
            "--dropouts and --over noise were both given",
        ),
        (
            ["--over", "noise", "--values", "0", "1", "--sensors", "noise=2"],
            "--sensors sets noise, but noise is the setting that is varied",
        ),
        (["--sensors", "dropout=0"], "--sensors sets dropout, but dropout is the setting that is varied"),
        (["--sensors", "nois=1"], "unknown field 'nois'. Did you mean noise"),
        (["--sensors", "noise=much"], "sensors.noise is 'much', but it should be float"),
    ):
        played.clear()
        assert main(["robustness", run, *wrong]) == 1
        assert message in capsys.readouterr().err
        assert not played


def test_a_grid_is_checked_for_all_runs_before_the_first_is_played(played, tmp_path, capsys):
    short, long = untrained(tmp_path, "short"), untrained(tmp_path, "long", "CartpoleSwingup")
    assert main(["robustness", short, "--over", "delay", "--values", "0", "500"]) == 1
    assert "delay is 500" in capsys.readouterr().err
    assert not played
    # An episode of the one has 200 steps and of the other 1000.
    assert (
        main(["robustness", short, long, "--over", "delay", "--values", "0", "500", "--out", str(tmp_path)])
        == 0
    )
    out = capsys.readouterr().out
    assert "1 run × 2 values of delay" in out
    assert (
        f"left out: {short}: delay is 500 and delay_jitter 0, but an episode of this task has 200 steps"
        in out
    )
    assert [name for name, _ in played] == ["long", "long"]
    assert main(["robustness", short, long, "--over", "delay", "--values", "inf"]) == 1
    assert "delay is inf, but it is a number of steps" in capsys.readouterr().err


@pytest.mark.thorough
def test_the_command_draws_all_runs_of_a_folder(runs, tmp_path, capsys):
    folder = str(runs[0].path.parent)
    assert (
        main(["robustness", folder, "--dropouts", "0.5", "0.75", "--episodes", "2", "--out", str(tmp_path)])
        == 0
    )
    out = capsys.readouterr().out
    assert "2 runs × 2 blackout probabilities × 2 episodes" in out
    document = json.loads((tmp_path / "robustness.json").read_text())
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    assert (tmp_path / "robustness.png").read_bytes().startswith(b"\x89PNG")
    broken = runs[0].path.parent / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    assert main(["robustness", folder, "--dropouts", "0.5", "--episodes", "2", "--out", str(tmp_path)]) == 0
    assert f"left out: {broken}: " in capsys.readouterr().out
    assert main(["robustness", str(broken)]) == 1
    assert f"No readable run was found in {broken}" in capsys.readouterr().err
    twice = [str(runs[0].path), str(runs[0].path)]
    assert main(["robustness", *twice, "--dropouts", "0.5", "--episodes", "2", "--out", str(tmp_path)]) == 0
    (only,) = json.loads((tmp_path / "robustness.json").read_text())["runs"]
    assert only["variant"].startswith("nc-gru")
    assert main(["robustness", str(tmp_path / "nothing")]) == 1
    assert "no run directory" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_script_gets_one_document_and_progress_never_falls(runs, tmp_path, capsys):
    assert (
        main(
            [
                "robustness",
                str(runs[0].path),
                "--dropouts",
                "0.25",
                "0.75",
                "--episodes",
                "2",
                "--out",
                str(tmp_path),
                "--json",
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["runs"] == json.loads((tmp_path / "robustness.json").read_text())["runs"]
    assert found["runs"][0]["values"] == [0.25, 0.75]
    assert "at 0.75 blackout" in captured.err
    told = []
    # More than the 32 episodes of one round, at a seed that nobody has evaluated: two rounds for each of two
    # values.
    measure(runs[0], (0.25, 0.75), 33, 5, print, tell=lambda share, what: told.append((share, what)))
    assert [share for share, _ in told] == [0.0, 0.25, 0.5, 0.75]
    assert told[1][1] == f"{runs[0].path} at 0.25 blackout: 17 of 33 episodes"
