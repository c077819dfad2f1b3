"""Rollouts on worlds whose every number is known."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.config.presets import preset
from costate.envs.factory import make_env
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import DelayedReward, EndlessReward, RememberedCue, TargetAction
from costate.learners import learner_for
from costate.learners.rollout import RolloutConfig, begin, collect, coloured, scheduled_fault_share
from costate.policies.policy import PolicyConfig, act, build_policy
from costate.policies.running_stats import empty_stats, normalise
from costate.training.programs import draw_exploration, fresh_states, roll_seeds, start_episodes


@functools.cache
def fresh_policy(seed):
    return build_policy(PolicyConfig(hidden_size=4), jax.random.key(seed), 1, 1)


def rollout(world, length, batch=3, seed=0, dropout=None, fault_share=None, **config):
    env = AnalyticEnv(world, batch)
    env = env if dropout is None else SensorEnv(env, SensorConfig(dropout))
    policy = fresh_policy(seed)
    config = RolloutConfig(environments=batch, rollout_length=length, **config)
    start = begin(env, policy, jax.random.key(1))
    run = jax.jit(functools.partial(collect, env, config, 0.9, fault_share=fault_share))
    return policy, *run(policy, empty_stats((1,)), start, jax.random.key(2))


def test_episodes_follow_dm_env_semantics():
    # DelayedReward lasts two steps: rows are y=0, y=1, then the last observation whose action is ignored, and
    # again.
    _, _, trajectory, _ = rollout(DelayedReward(), 7)
    np.testing.assert_array_equal(trajectory.observation[:, 0, 0], [0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(trajectory.is_first[:, 0], [1, 0, 0, 1, 0, 0, 1])
    np.testing.assert_array_equal(trajectory.valid[:, 0], [1, 1, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(trajectory.ends[:, 0], [0, 1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(trajectory.discount[:, 0], [1, 0, 1, 1, 0, 1, 1])
    np.testing.assert_array_equal(trajectory.reward[:, 0], [0, 1, 0, 0, 1, 0, 0])


def test_a_time_limit_keeps_discount_one():
    _, _, trajectory, _ = rollout(EndlessReward(), 6)
    np.testing.assert_array_equal(trajectory.ends[:, 0], [0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(trajectory.discount[:, 0], np.ones(6))


def test_returns_and_lengths_are_counted_per_episode():
    _, _, trajectory, _ = rollout(EndlessReward(), 12)
    ends = np.asarray(trajectory.ends)
    np.testing.assert_array_equal(np.asarray(trajectory.episode_return)[ends], np.full(ends.sum(), 5.0))
    np.testing.assert_array_equal(np.asarray(trajectory.episode_length)[ends], np.full(ends.sum(), 5))
    np.testing.assert_allclose(
        trajectory.discounted_return[:5, 0], [1.0, 1.9, 2.71, 3.439, 4.0951], rtol=1e-6
    )
    np.testing.assert_allclose(trajectory.discounted_return[6, 0], 1.0)


def test_memory_starts_empty_in_every_episode():
    policy, _, trajectory, _ = rollout(RememberedCue(), 11)
    for t in np.flatnonzero(np.asarray(trajectory.is_first)[:, 0]):
        observation = normalise(empty_stats((1,)), trajectory.observation[t], 10.0)
        fresh = jax.jit(act)(policy, observation, jnp.zeros((3, 4)), jnp.zeros(3, bool))
        np.testing.assert_allclose(trajectory.value[t], fresh.value, atol=1e-6)


def test_actions_are_stored_unclipped_and_applied_clipped():
    _, _, trajectory, _ = rollout(TargetAction(), 400)
    action, reward = np.asarray(trajectory.action)[..., 0], np.asarray(trajectory.reward)
    valid = np.asarray(trajectory.valid)
    assert np.abs(action).max() > 1.5
    cue = np.asarray(trajectory.observation)[..., 0]
    np.testing.assert_allclose(
        reward[valid], -np.square(np.clip(action, -1, 1) - 0.5 * cue)[valid], rtol=1e-5, atol=1e-6
    )
    # log N(u; μ ≈ 0, 1) of the unclipped action; the mean of a fresh policy is below 0.01.
    np.testing.assert_allclose(
        trajectory.log_prob, -0.5 * np.square(action) - 0.5 * np.log(2 * np.pi), atol=0.05
    )


def test_final_value_is_that_of_the_observation_after_the_last_row():
    policy, state, _, final_value = rollout(RememberedCue(), 6)
    observation = normalise(empty_stats((1,)), state.timestep.observation, 10.0)
    np.testing.assert_allclose(
        final_value,
        jax.jit(act)(policy, observation, state.core_state, state.timestep.is_first).value,
        rtol=1e-6,
    )


@pytest.mark.parametrize(("dropout", "dark"), [(0.0, 0.0), (1.0, 1.0)])
def test_blackout_of_nothing_and_of_everything(dropout, dark):
    _, _, trajectory, _ = rollout(TargetAction(), 50, dropout=dropout)
    assert float((trajectory.observation == 0.0).mean()) == dark


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_faults_that_set_in_strike_that_share_of_the_observations(share):
    """With a share of all blackouts, other readings are those of working sensors.

    The noise on the action is the same.
    """
    _, state, trajectory, _ = rollout(
        TargetAction(), 400, dropout=1.0, fault_share=jnp.float32(share), fault_warmup=0.5
    )
    _, _, usual, _ = rollout(TargetAction(), 400, dropout=1.0)
    # The first observation comes from the reset, before there is a share.
    dark = np.asarray(trajectory.observation)[1:, :, 0] == 0.0
    assert abs(dark.mean() - share) <= 4 * (share * (1 - share) / dark.size) ** 0.5
    # Cues are never 0, and what a policy reads of the last one is what the next rollout begins with.
    assert set(np.unique(np.asarray(trajectory.observation)[1:][~dark])) <= {-1.0, 1.0}
    if share in (0.0, 1.0):
        np.testing.assert_array_equal(state.timestep.observation[:, 0] == 0.0, np.full(3, share == 1.0))
    # Fresh policies hardly react to what they see (their mean is below 0.01), so that the noise can be
    # compared.
    np.testing.assert_allclose(trajectory.action, usual.action, atol=0.05)


def test_the_fault_share_grows_linearly_to_one():
    config = RolloutConfig(fault_warmup=0.2)
    shares = [
        float(scheduled_fault_share(config, 50, jnp.int32(iteration))) for iteration in (0, 1, 5, 10, 30)
    ]
    np.testing.assert_allclose(shares, [0.0, 0.1, 0.5, 1.0, 1.0], rtol=1e-6)
    assert scheduled_fault_share(RolloutConfig(), 50, jnp.int32(0)) is None


@pytest.mark.parametrize("name", ["nc-gru", "nc-sac-gru"])
def test_a_run_whose_faults_set_in_begins_with_sight(name):
    """Over four iterations to full blackout: none dark in the first, half in the third; all if no warm-up."""
    base = dataclasses.replace(
        preset(name, "LQR"), policy=PolicyConfig(hidden_size=4), sensors=SensorConfig(1.0)
    )
    if base.learner_name == "sac":
        base = dataclasses.replace(base, learner=dataclasses.replace(base.learner, warmup_steps=0))
    rollout = dataclasses.replace(base.rollout, environments=4, rollout_length=200)
    shares = []
    for warmup, iteration in ((1.0, 0), (1.0, 2), (0.0, 0)):
        config = dataclasses.replace(
            base, rollout=dataclasses.replace(rollout, fault_warmup=warmup), steps=4 * 800
        )
        algorithm, env, states = (
            learner_for(config),
            make_env(config.task, 4, (0,), config.sensors),
            fresh_states(config, (0,)),
        )
        states = eqx.tree_at(lambda states: states.iteration, states, jnp.full(1, iteration, jnp.int32))
        drawn = draw_exploration(config, env, states.key)
        _, experience = jax.jit(functools.partial(roll_seeds, algorithm, env))(
            algorithm.acting(states), start_episodes(config, env, states), drawn
        )
        # Without those that environments start with.
        shares.append(
            float((np.asarray(algorithm.collected(experience).observation)[0, 1:] == 0.0).all(-1).mean())
        )
    assert shares[0] == 0.0
    assert abs(shares[1] - 0.5) < 4 * (0.25 / 796) ** 0.5
    assert shares[2] == 1.0


def test_sensor_dropout_and_action_noise_have_keys_of_their_own():
    """Blacking out the sensors must not change the noise on the action, and both must be uncorrelated."""
    _, _, seen, _ = rollout(TargetAction(), 400, dropout=0.5)
    _, _, shared, _ = rollout(TargetAction(), 400, dropout=0.5, random_keys="shared")
    noise, dark = np.asarray(seen.action)[..., 0].ravel(), np.asarray(seen.observation)[..., 0].ravel() == 0.0
    assert abs(np.corrcoef(noise, dark)[0, 1]) < 0.12  # four deviations of 1200 draws
    assert not np.array_equal(seen.action, shared.action)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_dropout_that_is_no_probability_is_refused(value):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        SensorConfig(value)


def test_rollout_sizes_below_one_are_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        RolloutConfig(environments=0)
    with pytest.raises(ConfigError, match="observation_clip"):
        RolloutConfig(observation_clip=-1.0)
    with pytest.raises(ConfigError, match=r"fault_warmup is 1\.5, but it is a share"):
        RolloutConfig(fault_warmup=1.5)


# 91 and 64: an odd and an even number of steps have different spectra.
@pytest.mark.parametrize("steps", [91, 64])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_coloured_noise_is_standard_normal_and_its_spectrum_falls_as_said(steps, exponent):
    """Filter every unit impulse: the matrix L of noise = L ε, which gives variances and spectrum."""
    matrix = np.asarray(coloured(jnp.eye(steps, dtype=jnp.float32)[:, :, None], exponent))[:, :, 0].astype(
        np.float64
    )
    np.testing.assert_allclose((matrix**2).sum(1), np.ones(steps), rtol=1e-5)
    # The power at frequency k/T by its definition, |Σ_t L_tj exp(−2πi k t/T)|² for the impulse j = 0.
    times = np.arange(steps)
    power = np.array(
        [abs((matrix[:, 0] * np.exp(-2j * np.pi * k * times / steps)).sum()) ** 2 for k in range(1, 9)]
    )
    np.testing.assert_allclose(power / power[0], np.arange(1.0, 9.0) ** -exponent, rtol=1e-4)


def test_pink_noise_keeps_to_one_side_for_longer_than_white_noise():
    """White noise changes sign in half of the steps.

    Two neighbours of correlation ρ differ in sign with probability arccos(ρ)/π.
    """
    white = jax.random.normal(jax.random.key(0), (91, 200, 2))
    changes = [
        float((np.diff(np.sign(coloured(white, colour)), axis=0) != 0).mean()) for colour in (0.0, 1.0, 2.0)
    ]
    # Correlation of neighbours: the mean of cos(2πk/T) over all frequencies k, weighted by their power.
    frequencies = np.fft.fftfreq(91)
    for found, exponent in zip(changes, (0.0, 1.0, 2.0), strict=True):
        power = np.maximum(np.abs(frequencies), 1 / 91) ** -exponent
        expected = np.arccos((power * np.cos(2 * np.pi * frequencies)).sum() / power.sum()) / np.pi
        # 36,000 steps, of which neighbours are not independent: several standard errors of 0.003.
        assert found == pytest.approx(expected, abs=0.015)
    assert changes[2] < 0.5 * changes[1] < 0.25


def test_a_colour_beyond_red_is_refused():
    with pytest.raises(
        ConfigError, match=r"noise_colour is 3\.0, but it is an exponent between 0 \(white noise\) and 2"
    ):
        RolloutConfig(noise_colour=3.0)


def test_soft_actor_critic_explores_by_pink_noise_and_the_papers_learner_by_white():
    assert preset("nc-sac-gru", "WalkerStand").rollout.noise_colour == 1.0
    assert preset("nc-gru", "WalkerStand").rollout.noise_colour == 0.0
