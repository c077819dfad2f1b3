"""Training from Python by a task and options, as from the shell."""

import dataclasses

import pytest

import costate
from costate._base.errors import ConfigError
from costate.cli import main
from costate.config.presets import PRESETS, preset, usual_preset
from costate.config.run_config import RunConfig, with_overrides
from costate.learners import LEARNERS
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.cores.cornn import CoRNNConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.policy import PolicyConfig
from costate.training.options import run_config


def test_options_are_those_of_the_command_line():
    options = {
        "steps": 64_000,
        "seed": 3,
        "dropout": 0.75,
        "costate_coef": 0.1,
        "hidden_size": 32,
        "core": {"name": "cornn", "time_step": 0.3},
    }
    config = run_config("CartpoleSwingup", None, None, options | {"readout": "tanh", "hide": ["velocity"]})
    assert (config.task, config.steps, config.seed, config.sensors.dropout) == (
        "CartpoleSwingup",
        64_000,
        3,
        0.75,
    )
    assert (config.learner.costate_coef, config.policy.hidden_size, config.sensors.hide) == (
        0.1,
        32,
        ("velocity",),
    )
    assert config.policy.core == CoRNNConfig(time_step=0.3)
    assert run_config("WalkerStand", "ctrnn", None, {}) == preset("ctrnn", "WalkerStand")
    assert run_config("WalkerStand", None, "sac", {}) == preset("nc-sac-gru", "WalkerStand")
    whole = RunConfig("WalkerStand")
    assert run_config(whole, None, None, {}) is whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CartpoleSwingup", None, None, {"droput": 0.5}), r"Unknown option 'droput'. Did you mean dropout"),
        (
            ("CartpoleSwingup", None, None, {"steps_per_update": 4}),
            r"It is one of sac, and the algorithm is ppo: give algorithm='sac'",
        ),
        (("CartpoleSwingup", None, "sad", {}), r"Unknown algorithm 'sad'. Did you mean sac"),
        (("CartpoleSwingup", "gru", "sac", {}), r"The preset gru is one of ppo"),
        (("CartpoleSwing", None, None, {}), r"Did you mean CartpoleSwingup"),
        (("CartpoleSwingup", None, None, {"dropout": "much"}), r"sensors.dropout is 'much'"),
        ((RunConfig("WalkerStand"), None, None, {"seed": 1}), r"seed cannot be given beside a RunConfig"),
    ],
)
def test_what_cannot_be_is_answered_with_what_can(arguments, message):
    with pytest.raises(ConfigError, match=message):
        run_config(*arguments)


def test_the_front_door_names_what_it_has():
    assert {"train", "load", "evaluate", "export", "Policy", "TASKS"} <= set(dir(costate))
    assert all(getattr(costate, name) is not None for name in costate.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = costate.trian


def by_command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """Return the config that `costate train` would train."""
    seen: list[RunConfig] = []

    def note(configs: list[RunConfig], outs: object, **_: object) -> None:
        seen.extend(configs)
        raise KeyboardInterrupt

    monkeypatch.setattr("costate.training.loop.train_together", note)
    assert main(["train", *arguments]) == 130
    return seen[0]


@pytest.mark.parametrize("task", ["WalkerStand", "LQG", "FishSwim"])
@pytest.mark.parametrize("words", [{}, {"algorithm": "ppo"}, {"algorithm": "sac"}], ids=str)
def test_the_same_words_are_the_same_settings_in_python_and_on_the_command_line(
    task, words, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    wanted = RunConfig(task, learner=LEARNERS[words.get("algorithm", "ppo")]())
    assert run_config(task, None, words.get("algorithm"), {}) == wanted
    assert (
        by_command(
            [task, *(part for name, value in words.items() for part in (f"--{name}", value))], monkeypatch
        )
        == wanted
    )
    assert preset(usual_preset(words.get("algorithm")), task) == wanted


@pytest.mark.parametrize("task", ["WalkerStand", "LQG", "FishSwim"])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_same_by_all_ways(task, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert (
        run_config(task, name, None, {})
        == by_command([task, "--preset", name], monkeypatch)
        == preset(name, task)
    )


def test_a_part_of_which_some_is_given_has_the_rest_from_the_learner(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    written = RunConfig(
        "WalkerStand",
        diverged="slow-down",
        policy=PolicyConfig(core=CTRNNConfig()),
        rollout=RolloutConfig(environments=32),
        learner=SACConfig(costate_coef=0.1, replay=ReplayConfig(window=36)),
    )
    assert (written.rollout.rollout_length, written.rollout.noise_colour) == (91, 1.0)
    options = {
        "diverged": "slow-down",
        "core": "ctrnn",
        "environments": 32,
        "costate_coef": 0.1,
        "replay.window": 36,
    }
    assert run_config("WalkerStand", None, "sac", options) == written
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    assert by_command(["WalkerStand", "--algorithm", "sac", *flags], monkeypatch) == written
    assert RunConfig("WalkerStand", rollout=RolloutConfig(environments=8)).rollout == RolloutConfig(
        8, 1000, noise_colour=0.0
    )


def test_another_learner_starts_from_what_it_needs():
    assert with_overrides(RunConfig("LQG", seed=3), {"algorithm": "sac"}) == RunConfig(
        "LQG", seed=3, learner=SACConfig()
    )
    assert with_overrides(RunConfig("LQG", seed=3, learner=SACConfig()), {"algorithm": "ppo"}) == RunConfig(
        "LQG", seed=3
    )
    assert dataclasses.replace(RunConfig("LQR"), task="LQG") == RunConfig("LQG")
