"""The contract that every registered learner must fulfil."""

import dataclasses
import pathlib

import numpy as np
import pytest
from repeating import assert_different, result_of, trained

import costate
from costate._base.plain_data import decode, encode
from costate.config.run_config import RunConfig, from_json, stored, to_json
from costate.learners import LEARNERS, LearnerConfig, learner_for
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import to_tensors
from costate.training.loop import resume, train
from costate.training.programs import fresh_state

every_learner = pytest.mark.parametrize("name", LEARNERS.names())
# Settings in which a run is small, by their names; a learner has some of them.
SMALL = {
    "epochs": 1,
    "minibatches": 2,
    "warmup_steps": 40,
    "steps_per_update": 20,
    "head_width": 4,
    "replay": ReplayConfig(capacity=400, window=12, burn_in=2, batch=2),
}


def small(name: str, **changes: object) -> RunConfig:
    """Four iterations of twenty steps in four environments, shorter than an episode of LQR."""
    kind = LEARNERS[name]
    settings = {field.name: SMALL[field.name] for field in dataclasses.fields(kind) if field.name in SMALL}
    config = RunConfig(
        "LQR",
        seed=3,
        steps=320,
        learner=kind(**settings),
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=4, rollout_length=20),
    )
    return dataclasses.replace(config, **changes)


@every_learner
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(
    name: str, tmp_path: pathlib.Path
) -> None:
    once, again = (trained(small(name), tmp_path / which, (3, 4)) for which in ("once", "again"))
    assert once == again
    assert_different(*once)


@every_learner
def test_a_run_that_is_made_longer_equals_one_that_was_as_long_from_the_start(
    name: str, tmp_path: pathlib.Path
) -> None:
    """At a constant learning rate, from the last checkpoint of the shorter run on."""
    constant = {"learning_rate_decay": "none"}
    config = small(name)
    has = {field.name for field in dataclasses.fields(config.learner)}
    settings = {key: value for key, value in constant.items() if key in has}
    # Between two cycles: LQR has episodes of 200 steps, ten iterations.
    config = dataclasses.replace(config, learner=dataclasses.replace(config.learner, **settings), steps=800)
    whole = train(dataclasses.replace(config, steps=1600), tmp_path / "whole").run
    train(config, tmp_path / "cut")
    cut = resume(tmp_path / "cut", steps=1600).run
    assert result_of(cut) == result_of(whole)


@every_learner
def test_what_is_exported_acts_as_the_trained_policy(name: str, tmp_path: pathlib.Path) -> None:
    run = train(small(name), tmp_path / "run").run
    costate.export(run, "bundle", tmp_path / "policy.costate")
    own, exported = costate.load(run), costate.load(tmp_path / "policy.costate")
    for observation in np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32):
        np.testing.assert_allclose(own.step(observation), exported.step(observation), atol=1e-5)


@every_learner
def test_configs_are_plain_data(name: str) -> None:
    config = small(name)
    assert from_json(to_json(config)) == config
    assert from_json(stored(config)) == config
    assert decode(LearnerConfig, encode(config.learner), "learner") == config.learner
    assert set(LEARNERS[name].presets()) >= {LEARNERS[name].usual_preset(), LEARNERS[name].plain_preset()}


@every_learner
def test_a_learning_rate_that_is_halved_twice_is_a_quarter(name: str) -> None:
    learner = small(name).learner
    assert learner.slowed(2).learning_rate == pytest.approx(0.25 * learner.learning_rate, rel=1e-12)
    assert dataclasses.replace(learner.slowed(2), learning_rate=learner.learning_rate) == learner


@every_learner
def test_states_name_their_arrays_and_come_apart_and_together_again(name: str) -> None:
    """Checkpoints store a state by the names of its arrays, and stored experience apart from it."""
    config = small(name)
    learner, state = learner_for(config), fresh_state(config)
    rest, replay = learner.detach_replay(state)
    assert (replay is None) == (learner.replay_bytes == 0)
    again = to_tensors(learner.attach_replay(rest, replay))
    assert again.keys() == to_tensors(state).keys()
    assert all(np.array_equal(again[key], value) for key, value in to_tensors(state).items())
