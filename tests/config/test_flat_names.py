"""Flags have no prefix, so settings must differ in their names. What a learner ignores is refused."""

import dataclasses
import subprocess
import sys
from typing import ClassVar

import pytest

from costate._base.errors import ConfigError
from costate.config.flat_names import places_of
from costate.config.presets import preset_names, usual_preset
from costate.config.run_config import RunConfig, apart_from, with_overrides
from costate.learners import LEARNERS, LearnerConfig
from costate.learners.rollout import RolloutConfig
from costate.losses.belief import BeliefConfig
from costate.training.options import run_config


@dataclasses.dataclass(frozen=True)
class OwnConfig(LearnerConfig):
    """A learner that says as little as it may."""

    label: ClassVar[str] = "a learner of one's own"
    discount: float = 0.99
    learning_rate: float = 1e-3

    def slowed(self, times):
        return self

    def build(self, setup):
        raise AssertionError("nothing is trained here")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(LEARNERS._items, "own", OwnConfig)


@pytest.mark.parametrize("name", LEARNERS.names())
def test_settings_of_every_learner_have_names_of_their_own(name):
    places = places_of(LEARNERS[name])
    assert places["dropout"] == ("sensors",)
    assert places["discount"] == ("learner",)
    assert places["steps"] == ()


@pytest.mark.parametrize(
    ("taken", "owner"),
    [
        ("noise", "sensors.noise"),
        ("hidden_size", "policy.hidden_size"),
        ("seed", "seed"),
        ("out", "out"),
    ],
)
def test_a_name_that_is_taken_is_refused_with_its_owner(taken, owner, monkeypatch):
    clashing = dataclasses.make_dataclass("Clashing", [(taken, float, 1.0)], bases=(OwnConfig,), frozen=True)
    monkeypatch.setitem(LEARNERS._items, "clash", clashing)
    with pytest.raises(
        ConfigError, match=rf"learner clash has a setting '{taken}', but .*{owner}\), and both are the flag"
    ):
        places_of(clashing, "out")


def test_what_a_learner_would_ignore_is_refused():
    with pytest.raises(ConfigError, match=r"losses was given, but the learner own .* ignores it"):
        RunConfig("LQR", learner=OwnConfig(), losses=(BeliefConfig(0.1),))
    with pytest.raises(ConfigError, match=r"fault_warmup was given, but the learner own .* ignores it"):
        RunConfig("LQR", learner=OwnConfig(), rollout=RolloutConfig(fault_warmup=0.5))
    assert RunConfig("LQR", learner=OwnConfig()).rollout.environments == 32


def test_a_loss_whose_setting_is_taken_is_told_to_be_renamed(monkeypatch):
    clashing = dataclasses.make_dataclass(
        "Clashing", [("belief_coef", float, 1.0)], bases=(OwnConfig,), frozen=True
    )
    monkeypatch.setitem(LEARNERS._items, "clash", clashing)
    with pytest.raises(ConfigError, match="auxiliary loss belief makes the setting 'belief_coef'"):
        places_of(clashing)


def test_a_learner_is_not_called_as_a_setting(monkeypatch):
    monkeypatch.setitem(LEARNERS._items, "policy", OwnConfig)
    monkeypatch.delitem(LEARNERS._items, "own")
    with pytest.raises(ConfigError, match="A learner is called 'policy'"):
        places_of(OwnConfig)


def test_the_default_learner_does_not_depend_on_what_is_registered(monkeypatch):
    """A file that is imported before all others."""
    monkeypatch.setattr(LEARNERS, "_items", {"a": OwnConfig, **LEARNERS._items})
    monkeypatch.delitem(LEARNERS._items, "own")
    assert usual_preset(None) == "nc-gru"
    assert run_config("WalkerStand", None, None, {}).learner_name == "ppo"
    assert preset_names()[0] == "a"


def test_a_preset_that_two_learners_have_is_refused(monkeypatch):
    monkeypatch.setitem(LEARNERS._items, "gru", OwnConfig)
    monkeypatch.delitem(LEARNERS._items, "own")
    with pytest.raises(ConfigError, match=r"There are 2 presets called 'gru' \(of .*\)"):
        preset_names()


def test_a_rollout_of_which_a_learner_says_some_has_the_rest_from_the_paper(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Few(OwnConfig):
        usual_rollout: ClassVar[dict] = {"environments": 8}

    monkeypatch.setitem(LEARNERS._items, "own", Few)
    config = RunConfig("LQR", learner=Few())
    assert (config.rollout.environments, config.rollout.rollout_length) == (8, 1000)
    assert with_overrides(config, {"algorithm": "ppo"}).rollout == RunConfig("LQR").rollout


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learner": None}, "config.learner is None, but it should be the name of a learner"),
        ({"learner": "dqn"}, "Unknown learner 'dqn'"),
        ({"algorithm": "sac", "learner": {"name": "ppo"}}, "algorithm is 'sac', but learner.name is 'ppo'"),
        (
            {"ppo": {"epochs": 2}, "learner": {"epochs": 3}},
            "epochs is given twice, as learner.epochs and as ppo.epochs",
        ),
        ({"losses": [{"name": "belief"}]}, "The auxiliary loss belief has the weight 0"),
        ({"losses": [{"name": "belief", "coef": 0.1}] * 2}, "The auxiliary loss belief is given 2 times"),
    ],
)
def test_overrides_that_contradict_each_other_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        with_overrides(RunConfig("LQR"), overrides)


def test_a_learner_can_be_given_by_its_name():
    assert with_overrides(RunConfig("LQR"), {"learner": "sac"}) == RunConfig("LQR", learner=LEARNERS["sac"]())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("learner='sac'", "learner is 'sac', but it should be the settings of a learner"),
        ("losses=[]", "losses is [], but it should be a tuple"),
    ],
)
def test_parts_of_another_type_are_refused(settings, message):
    """In a program of its own, because types are checked while tests run."""
    program = f"from costate.config.run_config import RunConfig; RunConfig('LQR', {settings})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert f"ConfigError: {message}" in done.stderr


def test_configs_with_losses_can_be_compared_without_some_fields():
    one, other = (RunConfig("LQR", seed=seed, losses=(BeliefConfig(0.1),)) for seed in (1, 2))
    assert apart_from(one, "seed") == apart_from(other, "seed")
    assert apart_from(one, "seed") != apart_from(RunConfig("LQR", seed=1), "seed")
