"""Soft actor-critic as a whole, in worlds whose best control and value are known."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._errors import ConfigError
from costate.envs.analytic import AbstractWorld, AnalyticEnv
from costate.envs.probes import TargetAction
from costate.policy import PolicyConfig
from costate.replay import ReplayConfig
from costate.rollout import RolloutConfig, explore
from costate.sac import SACConfig
from costate.sac_learner import SACTrainState, check_sac, fresh_sac, learn, warming_up
from costate.sac_networks import act_once, sac_inputs
from costate.sac_rollout import SACRolloutState, roll_sac

ROLLOUT = RolloutConfig(environments=8, rollout_length=32)
CONFIG = SACConfig(
    learning_rate=3e-3,
    warmup_steps=512,
    steps_per_update=16,
    target_rate=0.05,
    discount=0.9,
    head_width=32,
    replay=ReplayConfig(capacity=8192, window=10, burn_in=2, batch=16),
)


class Regulator(AbstractWorld):
    """x' = ½x + ½u with the reward 1 − x'² and no end but a time limit: the best control is u = −x, which brings x to 0 in one step."""

    observation_size = 1
    action_size = 1
    episode_steps = 12

    def initial(self, key):
        return jax.random.uniform(key, (), minval=-1.0, maxval=1.0)

    def observe(self, state):
        return state[None]

    def advance(self, state, action):
        after = 0.5 * state + 0.5 * action[0]
        return after, 1.0 - after**2, jnp.zeros((), bool)


def trained(world: AbstractWorld, config: SACConfig, iterations: int) -> tuple[AnalyticEnv, SACTrainState, list[dict]]:
    env = AnalyticEnv(world, ROLLOUT.environments)
    state = fresh_sac(config, PolicyConfig(16), ROLLOUT, jax.random.key(0), env.observation_size, env.action_size)
    env_state, timestep = env.reset(jax.random.key(1))
    batch, zeros = ROLLOUT.environments, jnp.zeros(ROLLOUT.environments)
    rolling = SACRolloutState(env_state, timestep, jnp.zeros((batch, 16)), jnp.zeros((batch, env.action_size)), zeros, zeros.astype(jnp.int32))

    @jax.jit
    def iterate(state, rolling, key):
        key_rollout, key_learn = jax.random.split(key)
        warm = warming_up(config, ROLLOUT, state.iteration)
        exploration = explore(env, ROLLOUT, key_rollout)
        actor, stats = state.learner.networks.actor, state.learner.observation_stats
        rolling, rows, episodes = roll_sac(env, ROLLOUT.observation_clip, actor, stats, warm, rolling, exploration)
        state, metrics = learn(config, ROLLOUT, state, key_learn, rows, episodes)
        return state, rolling, metrics

    history = []
    for key in jax.random.split(jax.random.key(2), iterations):
        state, rolling, metrics = iterate(state, rolling, key)
        history.append({name: float(value) for name, value in metrics.items()})
    return env, state, history


@functools.cache
def regulated():
    return trained(Regulator(), CONFIG, 120)


def test_a_linear_regulator_finds_its_best_control_and_its_value():
    env, state, history = regulated()
    learner = state.learner
    x = jnp.linspace(-0.8, 0.8, 9)[:, None]
    inputs = sac_inputs(learner.observation_stats, 10.0, x, jnp.zeros((9, 1)), jnp.ones(9, bool))
    policy, _ = act_once(learner.networks.actor, inputs, jnp.zeros((9, 16)), jnp.ones(9, bool))
    # Best is u = −x; entropy keeps it a little soft, and 1664 updates are few.
    np.testing.assert_allclose(policy.mode()[:, 0], -x[:, 0], atol=0.15)
    # 1 a step for ever: 1/(1 − γ) = 10, less what the noise of exploration costs. That the time limit is no end is why it is not less.
    assert history[-1]["losses/q"] == pytest.approx(10.0, rel=0.12)
    # All episodes end by the time limit, with almost all of the reward.
    assert history[-1]["training/episode_reward"] > 0.95 * env.episode_steps


def test_the_hidden_state_aligns_with_the_co_state_only_if_asked():
    _, _, asked = regulated()
    _, _, plain = trained(Regulator(), dataclasses.replace(CONFIG, costate_coef=0.0), 60)
    assert asked[-1]["losses/costate"] < 0.5
    assert plain[-1]["losses/costate"] > 0.7


def test_while_warming_up_nothing_is_learnt_and_then_statistics_are_frozen():
    _, early, history = trained(TargetAction(), CONFIG, 2)
    # 512 steps of warm-up are two iterations of 256.
    assert [np.isnan(row["losses/value"]) for row in history] == [True, True]
    assert early.learner.observation_stats.count == 512
    _, later, history = trained(TargetAction(), CONFIG, 4)
    assert [np.isnan(row["losses/value"]) for row in history] == [True, True, False, False]
    jax.tree.map(np.testing.assert_array_equal, later.learner.observation_stats, early.learner.observation_stats)


def test_memory_does_not_grow():
    _, few, _ = trained(TargetAction(), CONFIG, 2)
    _, many, _ = trained(TargetAction(), CONFIG, 40)
    assert int(many.replay.written) == 40 * 32 > many.replay.capacity
    assert jax.tree.map(jnp.shape, few) == jax.tree.map(jnp.shape, many)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (dataclasses.replace(CONFIG, steps_per_update=7), "no whole number of updates"),
        (dataclasses.replace(CONFIG, replay=ReplayConfig(capacity=160, window=10)), "fewer than the 32 that one iteration adds"),
    ],
)
def test_settings_that_do_not_fit_the_rollout_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        check_sac(ROLLOUT, config)
    check_sac(ROLLOUT, CONFIG)
