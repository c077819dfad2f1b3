"""Soft actor-critic as a whole, in worlds whose best control and value are known."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimised import optimised_jit

from costate._base.errors import ConfigError
from costate.envs.worlds.analytic import AbstractWorld, AnalyticEnv
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig, explore, iteration_keys
from costate.learners.sac.between_rollouts import SACTrainState, fresh_sac, learn, warming_up
from costate.learners.sac.checks import check_rollout
from costate.learners.sac.config import SACConfig
from costate.learners.sac.rollout import SACRolloutState, roll_sac
from costate.policies.heads import HeadConfig
from costate.policies.heads.categorical import CategoricalHeadConfig
from costate.policies.heads.scalar import ScalarHeadConfig
from costate.policies.policy import PolicyConfig
from costate.policies.sac_networks import act_once, read_window, sac_inputs

ROLLOUT = RolloutConfig(environments=8, rollout_length=32)
CONFIG = SACConfig(
    critic="recurrent",
    learning_rate=3e-3,
    warmup_steps=512,
    steps_per_update=16,
    target_rate=0.05,
    discount=0.9,
    head_width=32,
    replay=ReplayConfig(capacity=8192, window=10, burn_in=2, batch=16),
)


class Regulator(AbstractWorld):
    """x' = ½x + ½u with reward 1 − x'² and only a time limit.

    The best control is u = −x, which brings x to 0 in one step.
    """

    observation_size = 1
    action_size = 1
    episode_steps = 12

    def initial(self, key):
        return jax.random.uniform(key, (), minval=-1.0, maxval=1.0)

    def observe(self, state, key):
        return state[None]

    def advance(self, state, action, key):
        after = 0.5 * state + 0.5 * action[0]
        return after, 1.0 - after**2, jnp.zeros((), bool)


@functools.cache
def trained(
    costate_coef: float,
    iterations: int,
    statistics: str = "running",
    head: HeadConfig = ScalarHeadConfig(),  # noqa: B008  (frozen)
) -> tuple[list[SACTrainState], list[dict]]:
    """The regulator's states before training and after every iteration, and what was logged."""
    config = dataclasses.replace(
        CONFIG, costate_coef=costate_coef, observation_statistics=statistics, critic_head=head
    )
    env = AnalyticEnv(Regulator(), ROLLOUT.environments)
    state = fresh_sac(
        config, PolicyConfig(16), ROLLOUT, jax.random.key(0), env.observation_size, env.action_size
    )
    env_state, timestep = env.reset(jax.random.key(1))
    batch, zeros = ROLLOUT.environments, jnp.zeros(ROLLOUT.environments)
    rolling = SACRolloutState(
        env_state,
        timestep,
        jnp.zeros((batch, 16)),
        None,
        jnp.zeros((batch, env.action_size)),
        zeros,
        zeros.astype(jnp.int32),
    )

    # Optimising takes as long as dozens of iterations.
    @optimised_jit if iterations > 10 else jax.jit
    def iterate(state, rolling):
        warm = warming_up(config, ROLLOUT, state.iteration)
        exploration = explore(env, ROLLOUT, iteration_keys(state.key).rollout)
        actor, stats = state.learner.networks.actor, state.learner.observation_stats
        rolling, rows, episodes = roll_sac(
            env, ROLLOUT.observation_clip, actor, None, stats, warm, rolling, exploration
        )
        state, metrics = learn(config, ROLLOUT, state, rows, episodes)
        return state, rolling, metrics

    states, history = [state], []
    for _ in range(iterations):
        state, rolling, metrics = iterate(state, rolling)
        states.append(state)
        history.append({name: float(value) for name, value in metrics.items()})
    return states, history


@pytest.mark.thorough
@pytest.mark.parametrize(
    "head",
    [ScalarHeadConfig(), CategoricalHeadConfig(low=-20.0, high=20.0, bins=41)],
    ids=["scalar", "categorical"],
)
def test_a_linear_regulator_finds_its_best_control_and_its_value(head):
    states, history = trained(0.05, 300, head=head)
    learner = states[-1].learner
    x = jnp.linspace(-0.8, 0.8, 9)[:, None]
    inputs = sac_inputs(
        learner.observation_stats, 10.0, x, jnp.ones(9, bool), jnp.zeros((9, 1)), jnp.ones(9, bool)
    )
    policy, _ = act_once(learner.networks.actor, inputs, jnp.zeros((9, 16)), jnp.ones(9, bool))
    # Best is u = −x; entropy keeps it a little soft, and 4544 updates are few.
    np.testing.assert_allclose(policy.mode()[:, 0], -x[:, 0], atol=0.15)
    # 1 a step for ever: 1/(1 − γ) = 10, less what the noise of exploration costs. That the time limit is no
    # end is why it is not less.
    assert history[-1]["losses/q"] == pytest.approx(10.0, rel=0.12)
    # The best control leads to x' = 0 whatever x is, so all that a control costs is what it leaves over: Q(x,
    # u) = Q(x, −x) − ((x + u)/2)². Where episodes spend their time, this is what the critic has learnt, for
    # controls that nobody does any more as well.
    near, critic = slice(2, 7), learner.networks.critic
    hidden = read_window(critic, inputs[None], jnp.ones((1, 9), bool), 0).hiddens[0]
    best = np.mean(critic.values(hidden, -x), axis=0)
    for u in (-0.8, -0.4, 0.0, 0.4, 0.8):
        cost = best - np.mean(critic.values(hidden, jnp.full((9, 1), u)), axis=0)
        np.testing.assert_allclose(cost[near], np.square((x[near, 0] + u) / 2.0), atol=0.1)
    # All episodes end by the time limit, with almost all of the reward.
    assert history[-1]["training/episode_reward"] > 0.95 * Regulator.episode_steps


@pytest.mark.thorough
def test_the_hidden_state_aligns_with_the_co_state():
    assert trained(0.05, 200)[1][-1]["losses/costate"] < 0.5


@pytest.mark.slow
def test_without_the_loss_it_does_not():
    assert trained(0.0, 60)[1][-1]["losses/costate"] > 0.7


def test_while_warming_up_nothing_is_learnt():
    states, history = trained(0.05, 4, "running")
    # 512 steps of warm-up are two iterations of 256.
    assert [np.isnan(row["losses/value"]) for row in history[:4]] == [True, True, False, False]
    jax.tree.map(np.testing.assert_array_equal, states[0].learner.networks, states[2].learner.networks)


@pytest.mark.parametrize("statistics", ["running", "frozen"])
def test_statistics_are_those_of_all_steps_or_of_the_warm_up(statistics):
    """Clipping must not hide large speeds: a moving body is ten deviations away from a trembling one."""
    states, _ = trained(0.05, 4, statistics)
    for iteration, state in enumerate(states[1:], start=1):
        taken = min(iteration, 2) if statistics == "frozen" else iteration
        rows = np.asarray(state.replay.rows.observation)[: 32 * taken].astype(np.float64)
        seen = rows[rows.any(-1)]
        stats = state.learner.observation_stats
        assert stats.count == len(seen)
        # Rounding of float32, of numbers around 1.
        np.testing.assert_allclose(stats.mean, seen.mean(0), atol=1e-6)
        np.testing.assert_allclose(stats.variance, seen.var(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (dataclasses.replace(CONFIG, steps_per_update=7), "which does not divide an iteration of"),
        (
            dataclasses.replace(CONFIG, replay=ReplayConfig(capacity=160, window=10)),
            "fewer than the 32 of one iteration",
        ),
        (
            dataclasses.replace(CONFIG, explorers=8),
            "explorers is 8, but there are 8 environments.*Use at most 7",
        ),
    ],
)
def test_settings_that_do_not_fit_the_rollout_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        check_rollout(ROLLOUT, config, 100)
    check_rollout(ROLLOUT, CONFIG, 100)
    check_rollout(ROLLOUT, dataclasses.replace(CONFIG, explorers=7), 100)
