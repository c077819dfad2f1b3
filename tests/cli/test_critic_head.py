"""The critic's head, a part of a learner that is chosen by name: on the command line, in Python, in names."""

import pytest

from costate.cli import main
from costate.config.naming import variant_name
from costate.config.run_config import RunConfig, config_hash, from_json, stored, with_overrides
from costate.learners.sac.config import SACConfig
from costate.policies.heads.categorical import CategoricalHeadConfig
from costate.policies.heads.scalar import ScalarHeadConfig
from costate.training.options import run_config


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Return the config that words on the command line ask for, instead of training."""
    monkeypatch.chdir(tmp_path)
    seen = []

    def note(configs, outs, **_):
        seen.append(configs[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("costate.training.loop.train_together", note)

    def ask(*words: str) -> RunConfig:
        assert main(["train", "LQR", "--algorithm", "sac", *words]) == 130
        return seen.pop()

    return ask


CHOICES = [
    ((), {}, ScalarHeadConfig(), "nc-sac-gru"),
    (
        ("--critic-head.count", "3"),
        {"critic_head.count": 3},
        ScalarHeadConfig(count=3),
        "nc-sac-gru+critic-head.count=3",
    ),
    (
        ("--critic-head", "categorical"),
        {"critic_head": "categorical"},
        CategoricalHeadConfig(),
        "nc-sac-gru+critic-head=categorical",
    ),
    (
        ("--critic-head", "categorical", "--critic-head.bins", "51", "--critic-head.low", "0"),
        {"critic_head": {"name": "categorical", "bins": 51, "low": 0.0}},
        CategoricalHeadConfig(bins=51, low=0.0),
        "nc-sac-gru+critic-head=categorical+critic-head.bins=51+critic-head.low=0",
    ),
]


@pytest.mark.parametrize(("words", "options", "head", "name"), CHOICES)
def test_shell_and_python_ask_for_the_same_heads(asked, words, options, head, name):
    config = asked(*words)
    assert config.learner.critic_head == head
    assert run_config("LQR", None, "sac", options) == config
    assert from_json(stored(config)) == config
    assert variant_name(config) == name


def test_a_config_that_was_stored_before_there_were_heads_means_two_scalar_ones():
    config = RunConfig("LQR", learner=SACConfig())
    data = stored(config)
    del data["learner"]["critic_head"]
    assert from_json(data) == config
    other = with_overrides(config, {"sac": {"critic_head": {"name": "categorical"}}})
    assert config_hash(other) != config_hash(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--algorithm", "sac", "--critic-head", "categorial"],
            "Unknown critic head 'categorial'. Did you mean categorical?",
        ),
        (
            ["--algorithm", "sac", "--critic-head.bins", "51"],
            "another critic-head was chosen. Add --critic-head categorical",
        ),
        (
            ["--critic-head.count", "3"],
            "--critic-head.count is a setting of soft actor-critic, and PPO has no such",
        ),
        (["--algorithm", "sac", "--critic-head.count", "0"], "a critic needs at least 1 head"),
    ],
)
def test_heads_that_cannot_be_are_refused(words, message, capsys):
    assert main(["train", "LQR", *words]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
