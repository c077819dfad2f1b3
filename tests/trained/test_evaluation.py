"""Evaluation: deterministic, frozen, whole episodes."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import CheckpointError, ConfigError
from costate.config.presets import preset
from costate.envs.factory import make_env
from costate.envs.sensors import SensorConfig
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import DelayedReward, EndlessReward, TargetAction
from costate.learners.episodes import first_episodes
from costate.learners.rollout import RolloutConfig, explore, iteration_keys
from costate.policies.controllers import PolicyController
from costate.policies.policy import PolicyConfig, build_policy
from costate.policies.running_stats import empty_stats
from costate.trained.evaluation import evaluate, find_evaluation, round_keys
from costate.trained.true_costates import discount_of, record_run
from costate.training.loop import train
from costate.training.programs import fresh_state


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from costate.config.run_config import RunConfig
    from costate.learners.ppo.config import PPOConfig

    config = RunConfig(
        "CartpoleSwingup",
        steps=4000,
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=4),
        learner=PPOConfig(epochs=1, minibatches=1),
    )
    return train(config, tmp_path_factory.mktemp("evaluation") / "run").run


def test_the_same_evaluation_gives_the_same_returns_and_is_written_whole(run):
    first, path = evaluate(run, dropout=0.75, episodes=5)
    second, _ = evaluate(run.path, dropout=0.75, episodes=5)
    assert first == second
    assert len(first.returns) == 5
    document = json.loads(path.read_text())
    assert document["evaluation"]["returns"] == list(first.returns)
    np.testing.assert_allclose(document["summary"]["median"], np.median(first.returns))
    np.testing.assert_allclose(document["summary"]["mean"], np.mean(first.returns))
    np.testing.assert_allclose(
        [document["summary"]["quartile_low"], document["summary"]["quartile_high"]],
        np.percentile(first.returns, [25, 75]),
    )


def test_many_faults_of_many_digits_still_make_a_name_that_a_file_can_have(run):
    """File systems allow 255 bytes, and a file is written under a longer name first."""
    third = 1.0 / 3.0
    many = {
        "group_dropout": third,
        "sensor_dropout": third,
        "stuck": third,
        "noise": third,
        "drift": third,
        "delay": 2,
        "delay_jitter": 3,
    }
    sensors = SensorConfig(
        third, burst_length=10.0 + third, stuck_length=10.0 + third, hide=("velocity",), **many
    )
    result, path = evaluate(run, sensors=sensors, episodes=2)
    assert len(f".{path.name}.partial".encode()) <= 255
    assert find_evaluation(run, sensors, 2) == result
    # Another fault has another name, however far back it stands.
    other = dataclasses.replace(sensors, stuck_length=10.5)
    assert find_evaluation(run, other, 2) is None
    assert evaluate(run, sensors=other, episodes=2)[1] != path


def test_dropout_defaults_to_that_of_training_and_seeds_differ(run):
    first, _ = evaluate(run, episodes=3)
    assert first.dropout == 0.5
    assert evaluate(run, episodes=3, seed=1)[0].returns != first.returns


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_no_round_of_an_evaluation_draws_the_blackouts_of_a_training_iteration(algorithm):
    """Compare the random numbers of training and evaluation with the same seed and as many environments."""
    seed, environments, steps = 3, 4, 48
    config = preset("nc-gru" if algorithm == "ppo" else "nc-sac-gru", "LQR")
    rollout = RolloutConfig(environments=environments, rollout_length=steps, random_keys="shared")
    config = dataclasses.replace(config, seed=seed, rollout=rollout, steps=100 * rollout.steps_per_iteration)
    env = make_env("LQR", environments, [seed], SensorConfig(0.5))
    key, trained = fresh_state(config).key, set()
    for _ in range(3):
        keys = iteration_keys(key)
        trained.add(_bits(explore(env, rollout, keys.rollout).drawn))
        key = keys.following
    evaluated = set()
    for key in round_keys(seed, 8):
        _, key_steps = jax.random.split(key)
        evaluated.add(_bits(jax.vmap(env.draw)(jax.random.split(key_steps, steps))))
    env.close()
    assert (len(trained), len(evaluated)) == (3, 8)
    assert not trained & evaluated


def _bits(drawn):
    """Return all random numbers of a rollout, for comparison."""
    leaves = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(drawn)
    ]
    return b"".join(np.asarray(leaf).tobytes() for leaf in leaves)


def test_an_older_checkpoint_can_be_chosen(run):
    assert evaluate(run, episodes=1, step=0)[0].env_steps == 0
    with pytest.raises(CheckpointError, match=r"no checkpoint at step 7. Available: 0, 4000"):
        evaluate(run, episodes=1, step=7)


def test_evaluation_leaves_the_run_as_it_was(run):
    before = {path: path.read_bytes() for path in (run.path / "checkpoints").rglob("*") if path.is_file()}
    evaluate(run, episodes=2)
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_run_can_be_recorded_in_dm_control_for_its_true_costates(run):
    episode = record_run(run, steps=3, seed=2)
    assert episode.task.name == "CartpoleSwingup"
    assert episode.hiddens.shape == (3, 8)
    np.testing.assert_array_equal(
        record_run(run.path, steps=3, seed=2, dropout=0.5).controls, episode.controls
    )
    assert not record_run(run, steps=3, dropout=1.0).seen.any()
    assert discount_of(run) == 0.99


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"episodes": 0}, "episodes is 0"), ({"dropout": 2.0}, "between 0 and 1"), ({"seed": -1}, "seed")],
)
def test_impossible_evaluations_are_refused(run, settings, message):
    with pytest.raises(ConfigError, match=message):
        evaluate(run, **settings)


@pytest.mark.parametrize(("world", "expected"), [(DelayedReward(), 1.0), (EndlessReward(), 5.0)])
def test_only_the_first_episode_counts(world, expected):
    env = AnalyticEnv(world, 3)
    env.episode_steps = 11  # longer than an episode: later ones must not be added
    policy = build_policy(PolicyConfig(hidden_size=4), jax.random.key(0), 1, 1)
    state, timestep = env.reset(jax.random.key(1))
    returns = first_episodes(
        env, PolicyController(policy, empty_stats((1,)), 10.0), state, timestep, jax.random.key(2)
    ).returns
    np.testing.assert_array_equal(returns, np.full(3, expected))


def test_actions_are_the_mean():
    env = AnalyticEnv(TargetAction(), 4)
    policy = build_policy(PolicyConfig(hidden_size=4), jax.random.key(0), 1, 1)
    policy = dataclasses.replace(
        policy,
        readout=dataclasses.replace(
            policy.readout, weights=jnp.zeros((4, 1)), bias=jnp.full(1, 0.25), log_std=jnp.full(1, 3.0)
        ),
    )
    state, timestep = env.reset(jax.random.key(1))
    returns = first_episodes(
        env, PolicyController(policy, empty_stats((1,)), 10.0), state, timestep, jax.random.key(2)
    ).returns
    cue = np.asarray(timestep.observation)[:, 0]
    np.testing.assert_allclose(returns, -np.square(0.25 - 0.5 * cue), rtol=1e-6)
