"""Sensors of an evaluation: those of training, changed settings, and conflicts between them."""

import dataclasses
import json

import pytest

from costate._base.errors import ConfigError
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import open_run
from costate.trained.evaluation import evaluate, evaluated_sensors, sensors_at
from costate.trained.robustness import measure
from costate.training.loop import train


def at(dropout: float, **trained) -> SensorConfig:
    """Return sensors at a blackout probability for a policy trained with 50 % blackout and other settings."""
    return sensors_at(RunConfig("LQR", sensors=SensorConfig(0.5, **trained)), dropout)


def test_what_is_inherited_from_training_is_left_out_where_it_has_nothing_to_act_on():
    assert at(0.0, burst_length=10.0) == SensorConfig(0.0)
    assert at(0.0, dark="hold") == SensorConfig(0.0)
    assert at(0.25, burst_length=10.0, dark="hold") == SensorConfig(0.25, burst_length=10.0, dark="hold")
    # Groups still go dark, and what is delayed still has to be waited for.
    assert at(0.0, burst_length=10.0, group_dropout=0.1).burst_length == 10.0
    assert at(0.0, dark="hold", delay=2).dark == "hold"
    stuck = RunConfig("LQR", sensors=SensorConfig(stuck=0.1, stuck_length=5.0))
    assert evaluated_sensors(stuck, dataclasses.replace(stuck.sensors, stuck=0.0)) == SensorConfig()


def test_inherited_bursts_are_as_long_as_a_blackout_needs_and_it_is_said():
    # With one step of sight between two bursts of L steps it is dark for L/(L + 1) of the time: 7/8 with 7
    # steps, 3/4 with 3.
    assert at(0.875, burst_length=5.0).burst_length == 7.0
    assert at(0.75, burst_length=5.0).burst_length == 5.0
    assert at(1.0, burst_length=5.0).burst_length == 5.0
    config, said = RunConfig("LQR", sensors=SensorConfig(burst_length=5.0)), []
    assert evaluated_sensors(config, SensorConfig(sensor_dropout=0.875, burst_length=5.0)).burst_length == 7.0
    evaluated_sensors(config, SensorConfig(0.875, burst_length=5.0), warn=said.append)
    (text,) = said
    assert text.startswith("burst_length is 7 and not 5 as in training")
    assert "dropout is 0.875" in text
    stuck = RunConfig("LQR", sensors=SensorConfig(stuck=0.1, stuck_length=5.0))
    assert evaluated_sensors(stuck, dataclasses.replace(stuck.sensors, stuck=0.875)).stuck_length == 7.0


def test_every_blackout_can_be_evaluated_whatever_was_trained():
    for dropout in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0):
        for trained in (
            {"burst_length": 1.0},
            {"burst_length": 30.0, "dark": "hold"},
            {"dark": "hold", "stuck": 0.9, "stuck_length": 9.5},
        ):
            assert at(dropout, **trained).dropout == dropout


def test_what_is_asked_for_in_an_evaluation_is_not_changed_but_refused():
    config = RunConfig("LQR", sensors=SensorConfig(burst_length=5.0))
    with pytest.raises(ConfigError, match="burst_length is 4, but dropout is 0, so there are no bursts"):
        evaluated_sensors(config, SensorConfig(0.0, burst_length=4.0))
    with pytest.raises(ConfigError, match="Use a burst_length of at least 7"):
        evaluated_sensors(config, SensorConfig(0.875, burst_length=4.0))
    with pytest.raises(ConfigError, match="nothing ever blacks out"):
        evaluated_sensors(config, SensorConfig(0.0, dark="hold"))
    # Also where it is what training had.
    with pytest.raises(ConfigError, match="burst_length is 5, but dropout is 0, so there are no bursts"):
        evaluated_sensors(config, SensorConfig(0.0, burst_length=5.0), given=("dropout", "burst_length"))


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory):
    """Two iterations on a task in JAX, trained through many faults at once."""
    sensors = SensorConfig(0.3, burst_length=3.0, noise=0.05, delay=1, stuck=0.05, mask_input="bit")
    config = RunConfig(
        "LQR", steps=1600, policy=PolicyConfig(hidden_size=8), sensors=sensors, rollout=RolloutConfig(4, 200)
    )
    config = dataclasses.replace(config, learner=PPOConfig(epochs=1, minibatches=1))
    return train(config, tmp_path_factory.mktemp("faults") / "run").run


@pytest.mark.thorough
def test_what_was_trained_under_one_fault_is_evaluated_under_any(faulty_run):
    as_trained, path = evaluate(faulty_run, episodes=4)
    assert as_trained.faults == {"burst_length": 3.0, "noise": 0.05, "delay": 1, "stuck": 0.05}
    assert (
        path.name == "step_000000001600_dropout_0.3_burst_length_3.0_delay_1_noise_0.05_stuck_0.05"
        "_episodes_4_seed_0.json"
    )
    other, _ = evaluate(faulty_run, sensors=SensorConfig(0.0, hide=("velocity",)), episodes=4)
    assert other.faults == {"hide": ("velocity",)}
    assert other.returns != as_trained.returns
    # Read back, and not played again.
    assert measure(faulty_run, (0.3,), 4, 0, print).evaluations == (as_trained,)


@pytest.mark.thorough
def test_a_grid_over_a_fault_on_the_command_line(faulty_run, tmp_path, capsys):
    arguments = [
        "robustness",
        str(faulty_run.path),
        "--over",
        "delay",
        "--values",
        "0",
        "2",
        "--sensors",
        "dropout=0",
        "burst-length=none",
    ]
    for name in ("robustness.json", "robustness.png"):
        (tmp_path / name).write_text("of blackouts")
    assert main([*arguments, "--episodes", "2", "--out", str(tmp_path)]) == 0
    assert "1 run × 2 values of delay × 2 episodes" in capsys.readouterr().out
    assert [(tmp_path / name).read_text() for name in ("robustness.json", "robustness.png")] == [
        "of blackouts"
    ] * 2
    assert (tmp_path / "robustness_delay.png").exists()
    (entry,) = json.loads((tmp_path / "robustness_delay.json").read_text())["runs"]
    assert (entry["parameter"], entry["values"]) == ("delay", [0.0, 2.0])
    for wrong, message in (
        (["--over", "nois", "--values", "1"], "Did you mean noise"),
        (["--over", "delay", "--values", "1.5"], "whole numbers"),
        (["--over", "noise"], "--over noise needs --values"),
        (["--values", "1"], "--values needs --over"),
        (["--sensors", "noise"], "--sensors takes NAME=VALUE"),
        (["--sensors", "mask-input=bits"], "mask_input is bits, but the policy was trained with bit"),
    ):
        assert main(["robustness", str(faulty_run.path), *wrong]) == 1
        assert message in capsys.readouterr().err


def test_evaluate_takes_what_is_not_said_from_training(faulty_run, capsys):
    assert main(["evaluate", str(faulty_run.path), "--noise", "0", "--episodes", "2"]) == 0
    assert "LQR at 30% blackout, burst length 3.0, stuck 0.05, delay 1, 2 episodes" in capsys.readouterr().out
    assert main(["evaluate", str(faulty_run.path), "--mask-input", "none"]) == 1
    assert "mask_input is none, but the policy was trained with bit" in capsys.readouterr().err
    assert open_run(faulty_run.path).config.sensors.noise == 0.05
    # The bursts of training have nothing to act on; those that are asked for are a contradiction, were they
    # also in training.
    assert main(["evaluate", str(faulty_run.path), "--dropout", "0", "--episodes", "2"]) == 0
    assert "LQR at 0% blackout, stuck 0.05, noise 0.05, delay 1, 2 episodes" in capsys.readouterr().out
    assert main(["evaluate", str(faulty_run.path), "--dropout", "0", "--burst-length", "3"]) == 1
    assert "burst_length is 3, but dropout is 0" in capsys.readouterr().err
    assert main(["evaluate", str(faulty_run.path), "--dropout", "0.875", "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "warning: burst_length is 7 and not 3 as in training" in out
    assert "LQR at 88% blackout, burst length 7.0," in out


@pytest.mark.thorough
def test_bursts_of_training_do_not_keep_a_run_from_the_usual_grid(faulty_run, tmp_path, capsys):
    assert main(["robustness", str(faulty_run.path), "--episodes", "2", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "at 0 blackout: " in out
    assert f"warning: {faulty_run.path} at 0.875 blackout: burst_length is 7 and not 3 as in training" in out
    (entry,) = json.loads((tmp_path / "robustness.json").read_text())["runs"]
    assert entry["values"] == [0.0, 0.25, 0.5, 0.625, 0.75, 0.875]
