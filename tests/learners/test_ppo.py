"""The learner: every loss by hand, the first ratio, c₃ = 0, truncation, the optimiser."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_networks import randomised

from costate._base.errors import ConfigError
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue
from costate.learners.ppo.batch import Batch, make_batch, take_minibatch
from costate.learners.ppo.checks import check_divisible
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.losses import clipped_value_loss, surrogate_loss, total_loss
from costate.learners.ppo.update import (
    Learnt,
    adapted,
    bootstrap_key,
    initial_state,
    make_optimiser,
    optimise,
    update,
)
from costate.learners.rollout import RolloutConfig, Trajectory, begin, collect, iteration_keys
from costate.learners.sharding import ALONE
from costate.policies.policy import PolicyConfig, act, build_policy, unroll_policy
from costate.policies.readouts import Gaussian
from costate.policies.running_stats import empty_stats, merge

ROLLOUT = RolloutConfig(environments=8, rollout_length=20)

# Each compiled as a whole: operation by operation, every one of them would be compiled for itself, which
# takes longer than all the rest.
unrolled_by = jax.jit(unroll_policy)
# ((loss, metrics), gradient), so that tests that look at one of them share a program with those that look at
# the other.
loss_and_gradient = jax.jit(jax.value_and_grad(total_loss, has_aux=True), static_argnames="config")
minibatch_of = jax.jit(take_minibatch)
assemble = jax.jit(make_batch, static_argnums=(0, 1))
merged = jax.jit(merge)
# One gradient step on everything, clipped hard.
ONE_STEP = PPOConfig(minibatches=1, epochs=1, max_gradient_norm=0.01)
update_once = jax.jit(functools.partial(update, ONE_STEP, ROLLOUT, 3))


def double(tree):
    return jax.tree.map(lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree)


@functools.cache
def experience():
    """A rollout with a time limit and ignored actions inside the segment, by a policy with random weights."""
    env = SensorEnv(AnalyticEnv(RememberedCue(), 8), SensorConfig(0.3))
    policy = randomised(build_policy, PolicyConfig(hidden_size=6), jax.random.key(0), 1, 1)
    stats = merged(
        empty_stats((1,)),
        np.random.default_rng(5).normal(size=(50, 2, 1)).astype(np.float32),
        jnp.ones((50, 2), bool),
    )
    start = begin(env, policy, jax.random.key(1))
    run = jax.jit(functools.partial(collect, env, ROLLOUT, 0.99, cut=1))
    state, _, _ = run(policy, stats, start, jax.random.key(2))
    # The second segment starts in the middle of episodes, with something in memory.
    core_state = state.core_state
    _, trajectory, final_value = run(policy, stats, state, jax.random.key(3))
    np.testing.assert_array_equal(trajectory.core_state[0], core_state)
    return policy, stats, trajectory, final_value


def cut_at(trajectory: Trajectory, length: int | None = None) -> Trajectory:
    """The trajectory as a rollout hands it to a learner: hidden states only where streams are cut."""
    return dataclasses.replace(
        trajectory, core_state=trajectory.core_state[:: length or ROLLOUT.rollout_length]
    )


def batch_of(config: PPOConfig) -> Batch:
    _, stats, trajectory, final_value = experience()
    return assemble(config, 10.0, stats, empty_stats(), cut_at(trajectory, config.bptt_length), final_value)


@jax.jit
def log_prob_by(policy, batch: Batch):
    """Return log-probabilities of the recorded controls by the unrolled policy."""
    unrolled = unroll_policy(policy, batch.rows.observation, batch.core_state, batch.rows.is_first)
    return unrolled.control.log_prob(batch.rows.action)


def initial(config: PPOConfig, policy):
    return jax.jit(lambda policy: initial_state(config, policy, jax.random.key(0), 1))(policy)


def test_segment_contains_starts_ends_and_ignored_actions():
    _, _, trajectory, _ = experience()
    assert trajectory.is_first.any()
    assert trajectory.ends.any()
    assert (~trajectory.valid).any()


def test_first_importance_ratio_is_one():
    policy, _, trajectory, _ = experience()
    batch = batch_of(PPOConfig())
    with jax.enable_x64(True):
        # The log-probability at collection, recomputed step by step in float64, against the unrolled one: no
        # part of the two programs differs but rounding.
        wide_policy, wide = double((policy, batch))

        @jax.jit
        def stepwise(policy, rows, hidden):
            means = jax.vmap(lambda y, h, first: act(policy, y, h, first).control.mean)(
                rows.observation, hidden, rows.is_first
            )
            return Gaussian(means, policy.readout.log_std).log_prob(rows.action)

        at_collection = stepwise(wide_policy, wide.rows, np.asarray(trajectory.core_state, np.float64))
        # The stored hidden states are float32, which is what remains.
        np.testing.assert_allclose(
            np.exp(log_prob_by(wide_policy, wide) - at_collection), np.ones((20, 8)), atol=1e-5
        )
    np.testing.assert_allclose(
        np.exp(log_prob_by(policy, batch) - batch.rows.log_prob), np.ones((20, 8)), atol=1e-5
    )


def test_first_minibatch_has_no_divergence_and_clips_nothing():
    policy, _, _, _ = experience()
    config = PPOConfig()
    (_, metrics), _ = loss_and_gradient(policy, minibatch_of(batch_of(config), jnp.arange(4)), config)
    assert abs(float(metrics["losses/approx_kl"])) < 1e-6
    assert float(metrics["losses/clip_fraction"]) == 0.0


def test_merging_statistics_before_the_update_would_be_noticed():
    """The test above has power: normalising with later statistics moves the ratio."""
    policy, stats, trajectory, final_value = experience()
    later = merged(stats, trajectory.observation, jnp.ones_like(trajectory.valid))
    batch = assemble(PPOConfig(), 10.0, later, empty_stats(), cut_at(trajectory), final_value)
    assert np.abs(np.exp(log_prob_by(policy, batch) - batch.rows.log_prob) - 1.0).max() > 1e-3


def plain_ppo_loss(policy, batch: Batch, config: PPOConfig):
    """PPO written out again without any co-state term."""
    unrolled = unroll_policy(policy, batch.rows.observation, batch.core_state, batch.rows.is_first)
    ratio = jnp.exp(unrolled.control.log_prob(batch.rows.action) - batch.rows.log_prob)
    actor = (surrogate_loss(ratio, batch.rows.advantage, config.clip_epsilon) * batch.rows.weight).sum()
    critic = (
        clipped_value_loss(unrolled.value, batch.rows.value, batch.rows.value_target, config.clip_epsilon)
        * batch.rows.weight
    ).sum()
    entropy = unrolled.control.entropy()
    return actor + config.value_coef * critic - config.entropy_coef * entropy


def test_weight_zero_gives_the_gradient_of_plain_ppo_bit_for_bit():
    policy, _, _, _ = experience()
    config = PPOConfig(costate_coef=0.0)
    batch = minibatch_of(batch_of(config), jnp.arange(4))
    ours = jax.jit(jax.grad(lambda p: total_loss(p, batch, config)[0]))(policy)
    plain = jax.jit(jax.grad(lambda p: plain_ppo_loss(p, batch, config)))(policy)
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True))
    assert all(np.array_equal(left, right) for left, right in pairs)
    assert all(np.any(left) for left, _ in pairs), "a gradient of nothing would be equal too"


def test_a_positive_weight_adds_the_gradient_of_the_cosine_distance():
    policy, _, _, _ = experience()
    batch = minibatch_of(batch_of(PPOConfig()), jnp.arange(4))

    def distance(policy, frozen):
        unrolled = unroll_policy(policy, batch.rows.observation, batch.core_state, batch.rows.is_first)
        parts = unroll_policy(frozen, batch.rows.observation, batch.core_state, batch.rows.is_first)
        value = jax.vmap(jax.vmap(jax.grad(lambda x, h: frozen.critic.value(frozen.core.step(x, h)))))
        target = value(frozen.encoder.encode(batch.rows.observation), parts.memory.previous)
        hiddens = unrolled.memory.hiddens
        lengths = jnp.linalg.norm(hiddens, axis=-1) * jnp.linalg.norm(target, axis=-1)
        return ((1.0 - (hiddens * target).sum(-1) / lengths) * batch.rows.weight).sum()

    _, with_loss = loss_and_gradient(policy, batch, PPOConfig(costate_coef=0.5))
    _, without = loss_and_gradient(policy, batch, PPOConfig(costate_coef=0.0))
    extra = jax.jit(jax.grad(distance))(policy, policy)
    # float32; ε = 1e-8 in the cosine is below it.
    jax.tree.map(
        lambda a, b, e: np.testing.assert_allclose(a - b, 0.5 * e, atol=1e-5),
        *jax.device_get((with_loss, without, extra)),
    )
    assert not np.any(extra.critic.weights), "the co-state loss must not move the critic"


def test_hidden_before_reading_is_an_option():
    policy, _, _, _ = experience()
    batch = minibatch_of(batch_of(PPOConfig()), jnp.arange(4))
    after, before = (
        float(loss_and_gradient(policy, batch, PPOConfig(costate_hidden=h))[0][1]["losses/costate"])
        for h in ("after", "before")
    )
    assert after != before


def test_rows_whose_action_was_ignored_are_in_no_loss():
    policy, _, _, _ = experience()
    config = PPOConfig()
    batch = batch_of(config)
    ignored = batch.rows.weight == 0.0
    assert ignored[:, :4].any()
    spoilt = dataclasses.replace(
        batch.rows,
        action=jnp.where(ignored[..., None], 50.0, batch.rows.action),
        advantage=jnp.where(ignored, 1e3, batch.rows.advantage),
        value_target=jnp.where(ignored, 1e3, batch.rows.value_target),
        log_prob=jnp.where(ignored, 1.0, batch.rows.log_prob),
    )
    ours, other = (
        loss_and_gradient(policy, minibatch_of(b, jnp.arange(4)), config)[1]
        for b in (batch, Batch(spoilt, batch.core_state))
    )
    jax.tree.map(np.testing.assert_array_equal, ours, other)


def test_advantages_are_normalised_within_the_minibatch():
    batch = minibatch_of(batch_of(PPOConfig()), jnp.array([1, 4, 6]))
    counted = np.asarray(batch.rows.advantage)[np.asarray(batch.rows.weight) > 0]
    np.testing.assert_allclose([counted.mean(), counted.std()], [0.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(np.sum(batch.rows.weight), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 2.0, -2.4), (0.5, 2.0, -1.0), (1.5, -2.0, 3.0), (0.5, -2.0, 1.6), (1.1, 1.0, -1.1)],
)
def test_surrogate_is_the_pessimistic_clipped_one(ratio, advantage, expected):
    np.testing.assert_allclose(
        surrogate_loss(jnp.array([[ratio]]), jnp.array([[advantage]]), 0.2), [[expected]], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("value", "old", "target", "expected"),
    [(1.0, 0.0, 1.0, 0.32), (0.1, 0.0, 1.0, 0.405), (-1.0, 0.0, 1.0, 2.0)],
)
def test_value_loss_takes_the_worse_of_free_and_clipped(value, old, target, expected):
    # Clipped to within 0.2 of 0: ½·max((v − 1)², (±0.2 − 1)²).
    result = clipped_value_loss(*(jnp.array([[x]]) for x in (value, old, target)), 0.2)
    np.testing.assert_allclose(result, [[expected]], rtol=1e-6)


def test_a_plain_value_loss_is_half_the_mean_square_however_far_values_move():
    policy, _, _, _ = experience()
    batch = minibatch_of(batch_of(PPOConfig()), jnp.arange(8))
    # As if values had been far from what they are now when the data was collected, so that clipping holds
    # them back.
    batch = dataclasses.replace(batch, rows=dataclasses.replace(batch.rows, value=batch.rows.value + 5.0))
    value = np.asarray(
        unrolled_by(policy, batch.rows.observation, batch.core_state, batch.rows.is_first).value, float
    )
    expected = (
        0.5
        * np.square(value - np.asarray(batch.rows.value_target, float))
        * np.asarray(batch.rows.weight, float)
    ).sum()
    (_, plain), free = loss_and_gradient(policy, batch, PPOConfig(value_loss="plain"))
    (_, clipped), held = loss_and_gradient(policy, batch, PPOConfig())
    np.testing.assert_allclose(plain["losses/value"], expected, rtol=1e-5)
    assert float(clipped["losses/value"]) > 1.5 * expected
    # d/db ½ (V − R)² = V − R, for the bias b of a linear critic.
    slope = (
        0.5 * (value - np.asarray(batch.rows.value_target, float)) * np.asarray(batch.rows.weight, float)
    ).sum()
    np.testing.assert_allclose(free.critic.bias, slope, rtol=1e-4, atol=1e-6)
    assert abs(float(held.critic.bias) - slope) > 1e-3


def test_cut_streams_hold_the_same_rows_and_start_from_the_stored_hidden_state():
    _, _, trajectory, _ = experience()
    whole, pieces = jax.device_get((batch_of(PPOConfig()), batch_of(PPOConfig(bptt_length=5))))
    assert pieces.rows.observation.shape == (5, 32, 1)
    for piece, start in enumerate((0, 5, 10, 15)):
        columns = slice(8 * piece, 8 * piece + 8)
        np.testing.assert_array_equal(
            pieces.rows.observation[:, columns], whole.rows.observation[start : start + 5]
        )
        np.testing.assert_array_equal(
            pieces.rows.advantage[:, columns], whole.rows.advantage[start : start + 5]
        )
        np.testing.assert_array_equal(pieces.core_state[columns], trajectory.core_state[start])


def test_truncated_pieces_compute_the_same_values_as_the_whole():
    policy, _, _, _ = experience()
    whole, pieces = batch_of(PPOConfig()), batch_of(PPOConfig(bptt_length=5))
    full = unrolled_by(policy, whole.rows.observation, whole.core_state, whole.rows.is_first).value
    cut = unrolled_by(policy, pieces.rows.observation, pieces.core_state, pieces.rows.is_first).value
    # Same weights, so the stored hidden states are the ones the whole sequence passes through.
    np.testing.assert_allclose(np.concatenate(np.split(np.asarray(cut), 4, axis=1)), full, atol=1e-5)


def test_optimiser_clips_by_global_norm_and_decays_linearly_per_iteration():
    config = PPOConfig(epochs=1, minibatches=2, learning_rate=0.1)
    optimiser = make_optimiser(config, iterations=4)
    parameters = {"a": jnp.zeros(3), "b": jnp.zeros(1)}
    gradient = {"a": jnp.array([3.0, 0.0, 0.0]), "b": jnp.array([4.0])}
    state = optimiser.init(parameters)
    sizes = []
    step = jax.jit(optimiser.update)
    for _ in range(8):
        updates, state = step(gradient, state, parameters)
        sizes.append(float(-updates["b"][0]))
    # The same gradient every time makes Adam's step lr · g / (|g| + ε) with the clipped g = 4 · 0.5/5 = 0.4;
    # two updates an iteration.
    expected = [0.1 * (1 - k // 2 / 4) * 0.4 / (0.4 + 1e-5) for k in range(8)]
    # Adam's bias correction 1 − 0.999ᵏ has three digits fewer than float32.
    np.testing.assert_allclose(sizes, expected, rtol=1e-4)


def test_constant_learning_rate_is_an_option():
    optimiser = make_optimiser(
        PPOConfig(learning_rate_decay="none", learning_rate=0.1, epochs=1, minibatches=1), iterations=2
    )
    state = optimiser.init(jnp.zeros(1))
    step = jax.jit(optimiser.update)
    for _ in range(5):
        updates, state = step(jnp.ones(1), state, jnp.zeros(1))
        np.testing.assert_allclose(updates, [-0.1], rtol=1e-3)


def test_an_adaptive_learning_rate_follows_how_far_the_policy_moved():
    """With target 0.02, the rate rises by half below 0.01 and falls by a third above 0.04.

    It stays within a factor of ten of the initial one.
    """
    multipliers = [
        float(adapted(jnp.float32(1.0), jnp.float32(divergence), 0.02))
        for divergence in (0.0099, 0.0101, 0.0399, 0.0401)
    ]
    np.testing.assert_allclose(multipliers, [1.5, 1.0, 1.0, 1.0 / 1.5], rtol=1e-6)
    np.testing.assert_allclose(
        [
            adapted(jnp.float32(9.0), jnp.float32(0.0), 0.02),
            adapted(jnp.float32(0.11), jnp.float32(1.0), 0.02),
        ],
        [10.0, 0.1],
    )


def test_the_multiplier_is_a_factor_of_the_learning_rate():
    policy, stats, trajectory, final_value = experience()

    @functools.partial(jax.jit, static_argnums=0)
    def moved(rate, lr_multiplier):
        config = dataclasses.replace(ONE_STEP, learning_rate_decay="none", learning_rate=rate)
        batch = make_batch(config, 10.0, stats, empty_stats(), cut_at(trajectory), final_value)
        optimiser = make_optimiser(config, 3)
        learnt = Learnt(policy, optimiser.init(policy))
        key = jax.random.key(0)
        (after, *_), _ = optimise(config, optimiser, learnt, batch, key, ALONE, lr_multiplier=lr_multiplier)
        return jax.tree.map(jnp.subtract, after, policy)

    # Weights of about 1 are known to 1e-7, and a step is 2.5e-4.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=3e-7),
        moved(5e-4, None),
        moved(2.5e-4, jnp.float32(2.0)),
    )


@pytest.mark.parametrize(("target", "factor"), [(1e3, 1.5), (1e-9, 1 / 1.5)])
def test_the_multiplier_follows_from_the_divergence_of_an_iteration(target, factor):
    """The divergence of two epochs lies far below the target 1e3 and far above 1e-9."""
    policy, stats, trajectory, final_value = experience()
    config = PPOConfig(minibatches=2, epochs=2, learning_rate_decay="adaptive", target_kl=target)
    state = dataclasses.replace(initial(config, policy), observation_stats=stats, pace=jnp.float32(2.0))
    after, metrics = jax.jit(functools.partial(update, config, ROLLOUT, 3))(
        state, cut_at(trajectory), final_value
    )
    assert 1e-8 < float(metrics["losses/approx_kl"]) < 1.0
    np.testing.assert_allclose(
        [after.pace, metrics["training/learning_rate"]], [2.0 * factor, 5e-4], rtol=1e-6
    )


def test_update_merges_both_statistics_and_counts_iterations():
    policy, _, trajectory, final_value = experience()
    state = initial(ONE_STEP, policy)
    after, metrics = update_once(state, cut_at(trajectory), final_value)
    assert int(after.iteration) == 1
    data = np.asarray(trajectory.observation).reshape(-1)
    np.testing.assert_allclose(
        [after.observation_stats.mean[0], after.observation_stats.variance[0]],
        [data.mean(), data.var()],
        rtol=1e-5,
    )
    returns = np.asarray(trajectory.discounted_return)[np.asarray(trajectory.valid)]
    np.testing.assert_allclose(after.return_stats.variance, returns.var(), rtol=1e-5)
    ended = np.asarray(trajectory.ends)
    np.testing.assert_allclose(
        metrics["training/episode_reward"], np.asarray(trajectory.episode_return)[ended].mean(), rtol=1e-5
    )
    assert not np.array_equal(jax.random.key_data(after.key), jax.random.key_data(state.key))
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), *jax.device_get((after.policy, policy)))
    assert all(jax.tree.leaves(changed))


def test_every_key_of_every_iteration_is_used_once():
    """Over the first iterations, where derived keys could coincide: all keys and their descendants differ."""
    key, seen = jax.random.key(0), []
    for _ in range(6):
        keys = iteration_keys(key)
        seen += [tuple(np.asarray(jax.random.key_data(k)).tolist()) for k in keys]
        key = keys.following
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("epochs", [1, 4])
def test_critics_shares_are_drawn_by_another_key_than_the_shuffles(epochs):
    """In JAX the i-th key of a split is the key with i folded in."""
    key = jax.random.key(7)
    data = [
        jax.random.key_data(k).tolist()
        for k in (*jax.random.split(key, epochs), bootstrap_key(PPOConfig(epochs=epochs), key))
    ]
    assert len({tuple(each) for each in data}) == epochs + 1


def test_reported_gradient_norm_is_that_before_clipping():
    policy, stats, trajectory, final_value = experience()
    config = ONE_STEP
    state = dataclasses.replace(initial(config, policy), observation_stats=stats)
    _, metrics = update_once(state, cut_at(trajectory), final_value)
    batch = assemble(
        config,
        10.0,
        stats,
        merged(empty_stats(), trajectory.discounted_return, trajectory.valid),
        cut_at(trajectory),
        final_value,
    )
    _, gradient = loss_and_gradient(policy, minibatch_of(batch, jnp.arange(8)), config)
    np.testing.assert_allclose(metrics["losses/grad_norm"], jax.jit(optax.tree.norm)(gradient), rtol=1e-4)
    assert float(metrics["losses/grad_norm"]) > 10 * config.max_gradient_norm


@pytest.mark.parametrize(
    ("rollout", "ppo", "message"),
    [
        (
            RolloutConfig(30, 1000),
            PPOConfig(),
            "30 streams .* 4 minibatches.* 1, 2, 3, 5, 6, 10, 15, 30; .* 28 or 32 environments",
        ),
        (
            RolloutConfig(32, 1000),
            PPOConfig(bptt_length=300),
            "bptt_length 300 does not divide rollout_length 1000.* 250, 500, 1000",
        ),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_those_that_do(rollout, ppo, message):
    with pytest.raises(ConfigError, match=message):
        check_divisible(rollout, ppo)


@pytest.mark.parametrize(
    "setting",
    [
        {"epochs": 0},
        {"discount": 1.5},
        {"costate_coef": -0.1},
        {"terminal_coef": -0.1},
        {"learning_rate": 0.0},
        {"bptt_length": 0},
        {"target_kl": 0.0, "learning_rate_decay": "adaptive"},
        {"target_kl": 0.02},
        {"learning_rate_decay": "adaptive", "epochs": 1},
        {"costate_coef": float("nan")},
        {"value_coef": float("inf")},
    ],
)
def test_impossible_settings_are_refused_by_name(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        PPOConfig(**setting)


def test_the_terminal_condition_is_the_mean_square_of_the_last_hidden_states_before_terminations():
    """Compare with the mean square of hidden states in terminated rows, averaged, times the coefficient."""
    policy, _, trajectory, _ = experience()
    plain, config = PPOConfig(), PPOConfig(terminal_coef=0.7)
    batch = minibatch_of(batch_of(config), jnp.arange(4))
    trajectory = jax.device_get(trajectory)
    last = (trajectory.ends & (trajectory.discount == 0.0) & trajectory.valid)[:, :4]
    assert 0 < last.sum() < last.size
    hiddens = np.asarray(
        unrolled_by(policy, batch.rows.observation, batch.core_state, batch.rows.is_first).memory.hiddens
    )
    by_hand = np.mean([np.mean(h**2) for h in hiddens[last]])
    (without, _), (with_condition, metrics) = (
        loss_and_gradient(policy, batch, c)[0] for c in (plain, config)
    )
    np.testing.assert_allclose(metrics["losses/terminal"], by_hand, rtol=1e-5)
    np.testing.assert_allclose(with_condition - without, 0.7 * by_hand, rtol=1e-4)


def test_without_a_coefficient_the_terminal_condition_is_in_no_number():
    policy, _, _, _ = experience()
    config = PPOConfig()
    batch = minibatch_of(batch_of(config), jnp.arange(4))
    spoilt = Batch(
        dataclasses.replace(batch.rows, terminal=jnp.full_like(batch.rows.terminal, jnp.nan)),
        batch.core_state,
    )
    ours, other = (loss_and_gradient(policy, b, config) for b in (batch, spoilt))
    assert "losses/terminal" not in ours[0][1]
    jax.tree.map(np.testing.assert_array_equal, ours, other)


def test_a_time_limit_is_no_terminal_condition():
    policy, stats, trajectory, final_value = experience()
    endless = dataclasses.replace(cut_at(trajectory), discount=jnp.ones_like(trajectory.discount))
    batch = assemble(PPOConfig(), 10.0, stats, empty_stats(), endless, final_value)
    assert not np.any(batch.rows.terminal)
    (_, metrics), _ = loss_and_gradient(
        policy, minibatch_of(batch, jnp.arange(4)), PPOConfig(terminal_coef=0.7)
    )
    assert float(metrics["losses/terminal"]) == 0.0
