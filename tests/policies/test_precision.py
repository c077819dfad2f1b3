"""A whole update in float32 by the fast way against float64 by the plain way: only rounding may differ."""

import dataclasses
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_networks import randomised

from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.update import initial_state, update
from costate.learners.replay import ReplayConfig, ReplayRows, append, empty_replay, sample
from costate.learners.rollout import RolloutConfig, begin, collect
from costate.learners.sac.config import SACConfig
from costate.learners.sac.update import SACState, initial_sac_state, make_sac_optimiser, sac_update
from costate.policies.cores import CORES, AbstractCore
from costate.policies.policy import PolicyConfig, build_policy
from costate.policies.running_stats import empty_stats, merge

ROLLOUT = RolloutConfig(environments=16, rollout_length=40)
PPO = PPOConfig()
HIDDEN, ITERATIONS = 16, 10
# Components of a gradient have errors of about 1e-8 in float32, a rounding of the largest (0.2), and Adam
# divides them by ε = 1e-5 or more, so that each of the sixteen steps is wrong by at most a thousandth of a
# learning rate.
TOLERANCE = 1e-3 * PPO.learning_rate * PPO.epochs * PPO.minibatches


class PlainCore(AbstractCore):
    """A core without its fast way: what reads it scans single steps and differentiates them automatically."""

    core: AbstractCore

    @property
    def hidden_size(self) -> int:
        return self.core.hidden_size

    @property
    def state_size(self) -> int:
        return self.core.state_size

    def step(self, feature, state):
        return self.core.step(feature, state)

    def expose(self, state):
        return self.core.expose(state)


def with_plain_cores(tree):
    is_core = lambda node: isinstance(node, AbstractCore)  # noqa: E731
    return jax.tree.map(lambda node: PlainCore(node) if is_core(node) else node, tree, is_leaf=is_core)


def double(tree):
    return jax.tree.map(
        lambda a: jnp.asarray(np.asarray(a, np.float64)) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree
    )


def numbers(tree) -> list[np.ndarray]:
    """All floating-point arrays of a tree, in its order, which a plain core leaves as it is."""
    return [
        np.asarray(leaf, np.float64)
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]


def largest_difference(left, right) -> float:
    return max(np.abs(a - b).max(initial=0.0) for a, b in zip(numbers(left), numbers(right), strict=True))


@functools.cache
def collected():
    """A rollout with ends, starts and ignored actions by a GRU in mid-episode, and its statistics."""
    env = SensorEnv(AnalyticEnv(RememberedCue(), ROLLOUT.environments), SensorConfig(0.3))
    policy = policy_with("gru")
    run = jax.jit(functools.partial(collect, env, ROLLOUT, PPO.discount))
    between, first, _ = run(
        policy, empty_stats((1,)), begin(env, policy, jax.random.key(1)), jax.random.key(2)
    )
    seen = jax.jit(merge)(empty_stats((1,)), first.observation, jnp.ones_like(first.valid))
    _, trajectory, final_value = run(policy, seen, between, jax.random.key(3))
    return seen, trajectory, final_value


def policy_with(core: str):
    return randomised(
        build_policy, PolicyConfig(hidden_size=HIDDEN, core=CORES[core]()), jax.random.key(0), 1, 1
    )


@functools.cache
def before(core: str):
    """The arguments of an update of a policy that did not act, so that some rows are clipped."""
    seen, trajectory, final_value = collected()
    random = np.random.default_rng(1)
    policy = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.1 * random.normal(size=leaf.shape), jnp.float32), policy_with(core)
    )
    state = jax.jit(lambda policy: initial_state(PPO, policy, jax.random.key(4), 1))(policy)
    return dataclasses.replace(state, observation_stats=seen), trajectory, final_value


@functools.cache
def update_by(config: PPOConfig):
    return jax.jit(functools.partial(update, config, ROLLOUT, ITERATIONS))


def updated(config: PPOConfig, given):
    return jax.device_get(update_by(config)(*given))


@functools.cache
def in_float64(core: str):
    given = before(core)  # collected in float32, whoever asks first
    with jax.enable_x64(True):
        after, metrics = updated(PPO, with_plain_cores(double(given)))
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(after.policy)), (
        "nothing may fall back to float32"
    )
    return after, metrics


@pytest.mark.parametrize("core", ["gru", pytest.param("ctrnn", marks=pytest.mark.slow)])
def test_an_update_in_float32_by_the_fast_way_is_that_in_float64_by_the_plain_one(core):
    given = before(core)
    (narrow, metrics), (wide, expected) = updated(PPO, given), in_float64(core)
    assert largest_difference(narrow.policy, given[0].policy) > 500 * TOLERANCE, "the policy has moved"
    assert 0.0 < metrics["losses/clip_fraction"] < 1.0, "some rows are clipped and some are not"
    assert largest_difference(narrow.policy, wide.policy) <= TOLERANCE
    for name in ("observation_stats", "return_stats"):
        # Sums over 640 rows, each of which may lose a rounding.
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
            getattr(narrow, name),
            getattr(wide, name),
        )
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        # Means over the last epoch, whose parameters are right to 1e-6 or so; some of them are differences of
        # numbers of order 1.
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=2e-6, err_msg=name)
    assert narrow.iteration == wide.iteration == 1


def test_a_discount_that_is_wrong_by_a_thousandth_would_be_noticed():
    """The comparison above has power."""
    state, trajectory, final_value = before("gru")
    wrong, _ = updated(
        PPO, (state, dataclasses.replace(trajectory, discount=0.999 * trajectory.discount), final_value)
    )
    assert largest_difference(wrong.policy, in_float64("gru")[0].policy) > 2 * TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [{"adam_epsilon": 1.1e-5}, {"costate_coef": 0.0501}, {"clip_epsilon": 0.2002}, {"trace_decay": 0.9505}],
)
def test_settings_that_are_a_little_wrong_would_be_noticed(setting):
    wrong, _ = updated(dataclasses.replace(PPO, **setting), before("gru"))
    assert largest_difference(wrong.policy, in_float64("gru")[0].policy) > 2 * TOLERANCE


SAC = SACConfig(
    head_width=16, critic="recurrent", replay=ReplayConfig(capacity=640, window=20, burn_in=5, batch=8)
)


@pytest.mark.slow
def test_a_step_of_soft_actor_critic_in_float32_is_that_in_float64():
    """Return the gradient from Adam's first moment.

    Adam's first step has the size of the learning rate, whatever the size of a component.
    """
    _, trajectory, _ = collected()
    shape = trajectory.reward.shape
    ended = jnp.concatenate([jnp.zeros_like(trajectory.ends[:1]), trajectory.ends[:-1]])
    rows = ReplayRows(
        trajectory.observation,
        jnp.tanh(trajectory.action),
        trajectory.reward,
        trajectory.discount,
        trajectory.is_first,
        ended,
        jnp.ones(shape, bool),
    )
    replay = jax.jit(append)(empty_replay(*shape, 1, 1), rows)
    windows = jax.jit(lambda replay: sample(replay, jax.random.key(0), 20, 8))(replay)
    noise = np.random.default_rng(2).normal(size=(15, 8, 1)).astype(np.float32)
    fresh = functools.partial(
        randomised,
        initial_sac_state,
        SAC,
        PolicyConfig(hidden_size=HIDDEN),
        jax.random.key(0),
        empty_stats((1,)),
        1,
    )
    networks, target = fresh().networks, fresh(seed=1).target
    state = SACState(networks, target, jax.jit(make_sac_optimiser(SAC).init)(networks), collected()[0])

    def stepped(state, windows, noise):
        # What is drawn depends on the width of numbers, so it is handed in.
        drawn = (
            mock.patch("costate.learners.sac.update.sample", return_value=windows),
            mock.patch("jax.random.normal", return_value=jnp.asarray(noise)),
        )
        with drawn[0], drawn[1]:
            return jax.device_get(
                jax.jit(lambda state: sac_update(SAC, 10.0, state, replay, jax.random.key(0)))(state)
            )

    narrow, metrics = stepped(state, windows, noise)
    with jax.enable_x64(True):
        wide, expected = stepped(with_plain_cores(double(state)), double(windows), np.float64(noise))
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(wide.networks)), (
        "nothing may fall back to float32"
    )
    for found, gradient in zip(numbers(narrow.optimiser), numbers(wide.optimiser), strict=True):
        np.testing.assert_allclose(found, gradient, rtol=1e-4, atol=2e-6 * np.abs(gradient).max())
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=2e-6, err_msg=name)
    assert metrics["losses/grad_norm"] > 0.1
