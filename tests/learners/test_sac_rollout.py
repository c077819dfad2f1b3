"""The rollout of soft actor-critic, in worlds whose every step is known."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from costate.envs.base import anything_seen
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import DelayedReward, EndlessReward, TargetAction
from costate.learners.rollout import RolloutConfig, explore
from costate.learners.sac.rollout import SACRolloutState, roll_sac, uniform_control
from costate.policies.heads.scalar import ScalarHeadConfig
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import empty_stats
from costate.policies.sac_networks import (
    act_once,
    build_actor,
    build_critic,
    controls_before,
    read_window,
    sac_inputs,
)


def rolled(
    world,
    steps: int,
    warming_up: bool,
    batch: int = 3,
    critic=None,
    dropout: float | None = None,
    fault_share: float | None = None,
    explorers: int = 0,
):
    """Run a rollout; with ``dropout`` the actor's sensors fail, in ``fault_share`` of the observations."""
    env = (
        AnalyticEnv(world, batch)
        if dropout is None
        else SensorEnv(AnalyticEnv(world, batch), SensorConfig(dropout))
    )
    actor = build_actor(PolicyConfig(4), jax.random.key(0), env.observation_size, env.action_size)
    env_state, timestep = env.reset(jax.random.key(1))
    zeros = jnp.zeros(batch)
    state = SACRolloutState(
        env_state,
        timestep,
        jnp.zeros((batch, 4)),
        None if critic is None else jnp.zeros((batch, 6)),
        jnp.zeros((batch, env.action_size)),
        zeros,
        zeros.astype(jnp.int32),
    )
    exploration = explore(
        env, RolloutConfig(batch, steps, fault_warmup=0.0 if fault_share is None else 0.5), jax.random.key(2)
    )
    share = None if fault_share is None else jnp.float32(fault_share)
    stats = empty_stats((env.observation_size,))
    warming, sighted = jnp.asarray(warming_up), dropout is not None
    program = jax.jit(
        lambda state, exploration: roll_sac(
            env, 10.0, actor, critic, stats, warming, state, exploration, sighted, share, explorers
        )
    )
    return env, actor, stats, exploration, program(state, exploration)


def test_rows_are_those_of_a_loop_over_single_steps():
    env, actor, stats, exploration, (_, rows, _) = rolled(DelayedReward(), 9, warming_up=False)
    env_state, now = env.reset(jax.random.key(1))
    hidden, before = jnp.zeros((3, 4)), jnp.zeros((3, env.action_size))
    for t in range(9):
        np.testing.assert_array_equal(rows.observation[t], now.observation)
        np.testing.assert_array_equal(rows.is_first[t], now.is_first)
        np.testing.assert_array_equal(rows.is_last[t], now.is_last)
        policy, hidden = act_once(
            actor,
            sac_inputs(stats, 10.0, now.observation, anything_seen(now), before, now.is_first),
            hidden,
            now.is_first,
        )
        before = policy.sample(exploration.noise[t])
        np.testing.assert_allclose(rows.action[t], before, atol=1e-6)
        env_state, now = env.advance(
            env_state, before, jax.tree.map(operator.itemgetter(t), exploration.drawn)
        )
        np.testing.assert_allclose(rows.reward[t], now.reward, atol=1e-6)
        np.testing.assert_array_equal(rows.discount[t], now.discount)


def test_while_faults_set_in_the_actor_reads_some_observations_as_working_sensors_show_them():
    *_, (_, rows, _) = rolled(TargetAction(), 300, warming_up=False, dropout=1.0, fault_share=0.3)
    dark = np.asarray(rows.observation)[1:, :, 0] == 0.0
    assert abs(dark.mean() - 0.3) <= 4 * (0.3 * 0.7 / dark.size) ** 0.5
    np.testing.assert_array_equal(
        np.asarray(rows.observation)[1:][~dark], np.asarray(rows.complete)[1:][~dark]
    )


def test_episodes_are_counted():
    world = EndlessReward()
    _, _, _, _, (_, rows, episodes) = rolled(world, 2 * world.episode_steps + 2, warming_up=False)
    ends = np.flatnonzero(episodes.ends[:, 0])
    assert ends.tolist() == [world.episode_steps - 1, 2 * world.episode_steps]
    np.testing.assert_array_equal(episodes.episode_length[ends, 0], world.episode_steps)
    np.testing.assert_allclose(
        episodes.episode_return[ends[0], 0], rows.reward[: world.episode_steps, 0].sum(), rtol=1e-6
    )


def test_controls_of_the_warm_up_are_uniform():
    noise = jax.random.normal(jax.random.key(0), (20_000, 1))
    assert (
        scipy.stats.kstest(np.asarray(uniform_control(noise))[:, 0], "uniform", args=(-1.0, 2.0)).pvalue
        > 0.01
    )
    _, _, _, exploration, (_, rows, _) = rolled(DelayedReward(), 5, warming_up=True)
    np.testing.assert_allclose(rows.action, uniform_control(exploration.noise), atol=1e-6)


def test_explorers_never_stop_doing_uniform_controls_and_nobody_counts_their_episodes():
    world = EndlessReward()
    _, _, _, exploration, (_, rows, episodes) = rolled(
        world, world.episode_steps, warming_up=False, explorers=1
    )
    _, _, _, _, (_, others, every) = rolled(world, world.episode_steps, warming_up=False)
    np.testing.assert_allclose(rows.action[:, :1], uniform_control(exploration.noise)[:, :1], atol=1e-6)
    np.testing.assert_array_equal(rows.action[:, 1:], others.action[:, 1:])
    assert every.ends[-1].tolist() == [True, True, True]
    assert episodes.ends[-1].tolist() == [False, True, True]


def test_a_sighted_critic_gets_what_working_sensors_would_have_shown():
    world = DelayedReward()
    critic = build_critic(
        PolicyConfig(6), ScalarHeadConfig(), 5, jax.random.key(3), world.observation_size, world.action_size
    )
    _, _, stats, _, (state, rows, _) = rolled(world, 9, warming_up=False, critic=critic, dropout=0.5)
    dark = (rows.observation == 0.0).all(-1) & (rows.complete != 0.0).any(-1)
    assert 0.0 < dark.mean() < 1.0
    np.testing.assert_array_equal(np.where(dark[..., None], 0.0, rows.complete), rows.observation)
    assert not rows.seen[dark].any()
    assert 0.0 < rows.seen.mean() < 1.0
    assert (rows.seen & (rows.observation == 0.0).all(-1)).any(), "zeros that are true readings"
    before = controls_before(rows.action, jnp.zeros_like(rows.action[0]))
    inputs = sac_inputs(stats, 10.0, rows.complete, jnp.ones_like(rows.seen), before, rows.is_first)
    hiddens = read_window(critic, inputs, rows.is_first, 0).hiddens
    np.testing.assert_allclose(rows.memory[1:, ..., 4:], hiddens[:-1], atol=1e-6)
    np.testing.assert_allclose(state.critic_state, hiddens[-1], atol=1e-6)


@pytest.mark.thorough
def test_what_both_networks_remembered_is_stored_with_every_row():
    world = DelayedReward()
    critic = build_critic(
        PolicyConfig(6), ScalarHeadConfig(), 5, jax.random.key(3), world.observation_size, world.action_size
    )
    _, actor, stats, _, (state, rows, _) = rolled(world, 9, warming_up=False, critic=critic)
    before = controls_before(rows.action, jnp.zeros_like(rows.action[0]))
    inputs = sac_inputs(stats, 10.0, rows.observation, rows.seen, before, rows.is_first)
    assert rows.is_first[1:].any(), "an episode starts on the way"
    for network, stored, final in (
        (actor, rows.memory[..., :4], state.core_state),
        (critic, rows.memory[..., 4:], state.critic_state),
    ):
        hiddens = read_window(network, inputs, rows.is_first, 0).hiddens
        np.testing.assert_allclose(stored[1:], hiddens[:-1], atol=1e-6)
        np.testing.assert_array_equal(stored[0], 0.0)
        np.testing.assert_allclose(final, hiddens[-1], atol=1e-6)
        # A window that starts there goes on as if it had read everything before.
        later = read_window(network, inputs[4:], rows.is_first[4:], 2, stored[4]).hiddens
        np.testing.assert_allclose(later, hiddens[6:], atol=1e-6)
