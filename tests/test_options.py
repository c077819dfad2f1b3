"""Training from Python by a task and options, as from the shell."""

import pytest

import costate
from costate._errors import ConfigError
from costate.config import RunConfig
from costate.cores.cornn import CoRNNConfig
from costate.options import run_config
from costate.presets import preset


def test_options_are_those_of_the_command_line():
    options = {"steps": 64_000, "seed": 3, "dropout": 0.75, "costate_coef": 0.1, "hidden_size": 32, "core": {"name": "cornn", "time_step": 0.3}}
    config = run_config("CartpoleSwingup", None, None, options | {"readout": "tanh", "hide": ["velocity"]})
    assert (config.task, config.steps, config.seed, config.sensors.dropout) == ("CartpoleSwingup", 64_000, 3, 0.75)
    assert (config.ppo.costate_coef, config.policy.hidden_size, config.sensors.hide) == (0.1, 32, ("velocity",))
    assert config.policy.core == CoRNNConfig(time_step=0.3)
    assert run_config("WalkerStand", "ctrnn", None, {}) == preset("ctrnn", "WalkerStand")
    assert run_config("WalkerStand", None, "sac", {}) == preset("nc-sac-gru", "WalkerStand")
    whole = RunConfig("WalkerStand")
    assert run_config(whole, None, None, {}) is whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CartpoleSwingup", None, None, {"droput": 0.5}), r"Unknown option 'droput'. Did you mean dropout"),
        (("CartpoleSwingup", None, None, {"steps_per_update": 4}), r"It is one of sac, and the algorithm is ppo: give algorithm='sac'"),
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
