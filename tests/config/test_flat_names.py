"""Flags have no prefix, so settings must differ in their names. What a learner ignores is refused."""

import dataclasses
from typing import ClassVar

import pytest

from costate._base.errors import ConfigError
from costate.config.flat_names import places_of
from costate.config.run_config import RunConfig
from costate.learners import LEARNERS, LearnerConfig
from costate.learners.rollout import RolloutConfig
from costate.losses.belief import BeliefConfig


@dataclasses.dataclass(frozen=True)
class OwnConfig(LearnerConfig):
    """A learner that says as little as it may."""

    label: ClassVar[str] = "a learner of one's own"
    discount: float = 0.99

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
        ("belief_coef", "belief_coef"),
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
