"""Advantages and losses at any length, mask and magnitude, against loops and closed forms in float64."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from random_networks import randomised

from costate.learners.ppo.batch import Batch, Rows, take_minibatch, trajectory_advantages
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.losses import clipped_value_loss, surrogate_loss, total_loss
from costate.learners.replay import ReplayConfig, ReplayRows, Windows
from costate.learners.rollout import Trajectory
from costate.learners.sac.config import SACConfig
from costate.learners.sac.losses import loss_weights, sac_loss
from costate.learners.sac.update import initial_sac_state
from costate.policies.costate_loss import costate_distance
from costate.policies.policy import PolicyConfig, build_policy
from costate.policies.running_stats import empty_stats
from costate.policies.squashed import HIGHEST, LOWEST, SquashedGaussian, bounded_log_std

T, S, H = 9, 3, 4
ROUNDING = 2.0**-24
"""Relative error of one float32 operation."""

units = arrays(np.float32, (T, S), elements=st.floats(-1.0, 1.0, width=32))
masks = arrays(np.bool_, (T, S))
sizes = st.sampled_from([0.0, 1e-8, 1e-3, 1.0, 1e3, 1e6])


def wide(array) -> np.ndarray:
    return np.asarray(array, np.float64)


# --- advantages


GOES_ON, TIME_LIMIT, TERMINATION = 0, 1, 2


def rows_of_episodes(outcomes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that count, end an episode, and terminate it.

    The row after an end shows the last observation, and its action is ignored.
    """
    valid, ends = np.ones(outcomes.shape, bool), np.zeros(outcomes.shape, bool)
    for t, b in np.ndindex(outcomes.shape):
        valid[t, b] = t == 0 or not ends[t - 1, b]
        ends[t, b] = valid[t, b] and outcomes[t, b] != GOES_ON
    return valid, ends, ends & (outcomes == TERMINATION)


def trajectory_of(reward, value, valid, ends, terminated) -> Trajectory:
    shape = reward.shape
    zeros, number = jnp.zeros(shape), functools.partial(jnp.asarray, dtype=jnp.float32)
    return Trajectory(
        observation=jnp.zeros((*shape, 1)),
        is_first=jnp.zeros(shape, bool),
        valid=jnp.asarray(valid),
        core_state=jnp.zeros((1, shape[1], 1)),
        action=jnp.zeros((*shape, 1)),
        log_prob=zeros,
        value=number(value),
        reward=number(reward),
        discount=number(1.0 - terminated),
        ends=jnp.asarray(ends),
        episode_return=zeros,
        episode_length=jnp.zeros(shape, jnp.int32),
        discounted_return=zeros,
    )


advantages_of = jax.jit(trajectory_advantages, static_argnums=0)


@given(
    st.sampled_from([1, T]),
    arrays(np.int8, (T, S), elements=st.sampled_from([GOES_ON, GOES_ON, GOES_ON, TIME_LIMIT, TERMINATION])),
    units,
    arrays(np.float32, (T + 1, S), elements=st.floats(-1.0, 1.0, width=32)),
    st.tuples(sizes, sizes),
    st.sampled_from([(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)]),
)
@settings(max_examples=60)
def test_advantages_of_rows_that_count_are_sums_to_the_end_of_their_episode(
    length, outcomes, reward, value, magnitude, factors
):
    """Return Â_t = Σ_k (γλ)^k δ_{t+k} within the episode, with the ignored row's value after a time limit."""
    reward, value = np.float32(magnitude[0] * reward[:length]), np.float32(magnitude[1] * value[: length + 1])
    valid, ends, terminated = rows_of_episodes(outcomes[:length])
    discount, decay = factors
    config = PPOConfig(discount=discount, trace_decay=decay)
    trajectory = trajectory_of(reward, value[:-1], valid, ends, terminated)
    found = np.asarray(advantages_of(config, trajectory, trajectory.reward, jnp.asarray(value[-1])))
    r, v = wide(reward), wide(value)
    for t, b in np.argwhere(valid):
        expected = size = 0.0
        for k in itertools.count():
            after = 0.0 if terminated[t + k, b] else discount * v[t + k + 1, b]
            expected += (discount * decay) ** k * (r[t + k, b] + after - v[t + k, b])
            size += (discount * decay) ** k * (abs(r[t + k, b]) + abs(after) + abs(v[t + k, b]))
            if ends[t + k, b] or t + k + 1 == length:
                break
        # Each term passes through at most four roundings for each of its steps.
        assert abs(found[t, b] - expected) <= 4 * (k + 2) * ROUNDING * size + 1e-30


# --- the losses of PPO, row by row


@jax.jit
def surrogate_and_slope(log_ratio, advantage):
    """Differentiate by the logarithm of the ratio, as the policy gradient does."""

    def total(log_ratio):
        rows = surrogate_loss(jnp.exp(log_ratio), advantage, 0.2)
        return rows.sum(), rows

    slope, rows = jax.grad(total, has_aux=True)(log_ratio)
    return rows, slope


@given(units, units, st.sampled_from([0.0, 1e-3, 0.3, 3.0, 80.0]), sizes)
def test_the_surrogate_is_finite_and_exact_as_far_as_ratios_are_numbers(log_ratio, advantage, spread, size):
    log_ratio, advantage = np.float32(spread * log_ratio), np.float32(size * advantage)
    rows, slope = map(wide, surrogate_and_slope(jnp.asarray(log_ratio), jnp.asarray(advantage)))
    ratio, a = np.exp(wide(log_ratio)), wide(advantage)
    free, held = ratio * a, np.clip(ratio, 0.8, 1.2) * a
    # An error of the exponential: that of its argument, and its own.
    relative = ROUNDING * (16.0 + np.abs(log_ratio))
    assert (np.abs(rows + np.minimum(free, held)) <= relative * np.abs(np.minimum(free, held)) + 1e-30).all()
    assert np.isfinite(slope).all()
    inside, outside = (ratio > 0.81) & (ratio < 1.19), (free > held) & ((ratio < 0.79) | (ratio > 1.21))
    clear = inside | (free < held)
    assert (np.abs(slope + free)[clear] <= (relative * np.abs(free) + 1e-30)[clear]).all()
    assert not slope[outside].any(), "a ratio that has gone far enough is pulled no further"


@jax.jit
def value_loss_and_slope(value, old, target):
    def total(value):
        rows = clipped_value_loss(value, old, target, 0.2)
        return rows.sum(), rows

    slope, rows = jax.grad(total, has_aux=True)(value)
    return rows, slope


@given(units, units, units, st.tuples(sizes, sizes, sizes))
def test_the_value_loss_is_finite_and_exact_at_any_magnitude(value, old, target, size):
    value, old, target = (np.float32(s * a) for s, a in zip(size, (value, old, target), strict=True))
    rows, slope = map(wide, value_loss_and_slope(*map(jnp.asarray, (value, old, target))))
    v, o, r = map(wide, (value, old, target))
    near = o + np.clip(v - o, -0.2, 0.2)
    expected = 0.5 * np.maximum((v - r) ** 2, (near - r) ** 2)
    largest = np.abs([v, o, r]).max(0) + 0.2
    bound = 8 * ROUNDING * largest * (np.sqrt(2.0 * expected) + 8 * ROUNDING * largest)
    assert (np.abs(rows - expected) <= bound).all()
    assert np.isfinite(slope).all()
    assert (np.abs(slope) <= np.abs(v - r) + 8 * ROUNDING * largest).all()


# --- minibatches


def batch_of(advantage: np.ndarray, mask: np.ndarray, log_prob: float = -1.0) -> Batch:
    random = np.random.default_rng(3)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape), jnp.float32)  # noqa: E731
    rows = Rows(
        observation=normal(T, S, 2),
        is_first=jnp.zeros((T, S), bool).at[4, 1].set(True),
        weight=jnp.asarray(mask, jnp.float32),
        action=normal(T, S, 1),
        log_prob=jnp.full((T, S), log_prob),
        value=normal(T, S),
        advantage=jnp.asarray(advantage, jnp.float32),
        value_target=normal(T, S),
        terminal=jnp.zeros((T, S)),
    )
    return Batch(rows, jnp.zeros((S, H)))


minibatch_of = jax.jit(take_minibatch)
ALL = jnp.arange(S)


@given(units, masks, st.floats(-1.0, 1.0, width=32), st.tuples(sizes, sizes))
def test_advantages_that_count_are_centred_and_scaled(unit, mask, offset, size):
    advantage = np.float32(size[0] * offset + size[1] * unit)
    rows = minibatch_of(batch_of(advantage, mask), ALL).rows
    weight, found = wide(rows.weight), wide(rows.advantage)
    assert np.isfinite(found).all()
    if not mask.any():
        assert not weight.any()
        return
    np.testing.assert_allclose(weight[mask], 1.0 / mask.sum(), rtol=4 * ROUNDING)
    counted = wide(advantage)[mask]
    spread, error = counted.std(), 16 * ROUNDING * np.abs(counted).max()
    # A mean is known up to a rounding of the largest advantage; where the spread is less than that, nothing
    # is known but that it stays of its size.
    expected = (counted - counted.mean()) / (spread + 1e-8)
    if spread > 10.0 * error:
        assert (
            np.abs(found[mask] - expected) <= (error / spread + 32 * ROUNDING) * (1.0 + np.abs(expected))
        ).all()
    assert (np.abs(found[mask]) <= 1.001 * np.sqrt(mask.sum())).all(), (
        "no number lies further from the mean of n than √n deviations"
    )


@given(st.floats(-6.0, 6.0), st.sampled_from([-1.0, 1.0]), masks)
@example(3.0004, 1.0, np.ones((T, S), bool))
def test_equal_advantages_say_nothing(exponent, sign, mask):
    """Advantages that are all rounding must not be scaled up to look like information."""
    advantage = np.full((T, S), sign * 10.0**exponent)
    found = np.asarray(minibatch_of(batch_of(advantage, mask), ALL).rows.advantage)
    assert (np.abs(found[mask]) <= 0.01).all()


@functools.cache
def policy():
    return randomised(build_policy, PolicyConfig(hidden_size=H), jax.random.key(0), 2, 1)


loss_and_gradient = jax.jit(jax.value_and_grad(total_loss, has_aux=True), static_argnames="config")


@settings(max_examples=20)
@given(masks, units, st.sampled_from([0.0, 1e-20, 1e-4, 1.0, 30.0]), st.sampled_from([0.0, 1.0, 1e6]))
@example(np.zeros((T, S), bool), np.ones((T, S), np.float32), 1.0, 1.0)
@example(np.ones((T, S), bool), np.ones((T, S), np.float32), 0.0, 0.0)
def test_the_whole_loss_and_its_gradient_are_finite_and_nothing_is_learnt_from_nothing(
    mask, advantage, weights, size
):
    """Weights of zero give hidden states and targets of length zero; large ones saturate everything."""
    scaled = jax.tree.map(lambda leaf: weights * leaf, policy())
    # Not of the readout: how improbable the controls of the batch are is another matter.
    scaled = dataclasses.replace(scaled, readout=policy().readout)
    batch = minibatch_of(batch_of(size * advantage, mask), ALL)
    (loss, metrics), gradient = jax.device_get(loss_and_gradient(scaled, batch, PPOConfig(entropy_coef=0.0)))
    assert np.isfinite(loss)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((metrics, gradient)))
    assert -1e-6 <= metrics["losses/costate"] <= 2.0 + 1e-6
    if not mask.any():
        assert loss == 0.0
        assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))


# --- the co-state loss


@jax.jit
def distance_and_slopes(hidden, target):
    def total(hidden, target):
        distance = costate_distance(hidden, target)
        return distance.sum(), distance

    slopes, distance = jax.grad(total, argnums=(0, 1), has_aux=True)(hidden, target)
    return distance, *slopes


vectors = arrays(np.float32, (6, H), elements=st.floats(-1.0, 1.0, width=32))
magnitudes = st.sampled_from([0.0, 1e-20, 1e-8, 1e-4, 1.0, 1e4, 1e8])


@given(vectors, vectors, magnitudes, magnitudes)
@example(np.zeros((6, H), np.float32), np.zeros((6, H), np.float32), 0.0, 0.0)
@example(np.ones((6, H), np.float32), -np.ones((6, H), np.float32), 1e8, 1e8)
def test_the_costate_loss_and_its_gradient_are_those_of_float64_for_vectors_of_any_length(
    hidden, target, long, other
):
    hidden, target = np.float32(long * hidden), np.float32(other * target)
    distance, by_hidden, by_target = map(wide, distance_and_slopes(jnp.asarray(hidden), jnp.asarray(target)))
    h, t = wide(hidden), wide(target)
    a, b = (np.sqrt((v**2).sum(-1) + 1e-8) for v in (h, t))
    expected = 1.0 - (h * t).sum(-1) / (a * b)
    assert ((distance >= -4 * ROUNDING) & (distance <= 2.0 + 4 * ROUNDING)).all()
    np.testing.assert_allclose(distance, expected, atol=16 * ROUNDING)
    for found, v, w, p, q in ((by_hidden, h, t, a, b), (by_target, t, h, b, a)):
        inner = (v * w).sum(-1, keepdims=True)
        p, q = p[:, None], q[:, None]
        # Both parts are at most 1/p, and may cancel.
        assert (np.abs(found - (-w / (p * q) + v * inner / (p**3 * q))) <= 32 * ROUNDING / p + 1e-30).all()


@given(vectors, vectors, st.sampled_from([1e12, 1e15]))
def test_vectors_of_absurd_length_leave_the_costate_loss_finite(hidden, target, size):
    found = distance_and_slopes(
        jnp.asarray(np.float32(size * hidden)), jnp.asarray(np.float32(size * target))
    )
    assert all(np.isfinite(array).all() for array in found)


# --- soft actor-critic


@jax.jit
def log_prob_and_slopes(mean, raw, noise):
    def total(mean, log_std):
        action, log_prob = SquashedGaussian(mean, log_std).sample_and_log_prob(noise)
        return log_prob.sum(), (action, log_prob)

    log_std = bounded_log_std(raw)
    slopes, (action, log_prob) = jax.grad(total, argnums=(0, 1), has_aux=True)(mean, log_std)
    raw_slope = jax.grad(lambda raw: total(mean, bounded_log_std(raw))[0])(raw)
    return log_std, action, log_prob, *slopes, raw_slope


components = functools.partial(arrays, np.float32, (5, 1))
any_size = st.sampled_from([0.0, 1e-6, 0.3, 5.0, 40.0, 1e3, 1e6])


@given(
    components(elements=st.floats(-1.0, 1.0, width=32)),
    components(elements=st.floats(-1.0, 1.0, width=32)),
    components(),
    any_size,
    any_size,
)
def test_log_probabilities_of_squashed_controls_are_those_of_float64_however_far_out(
    mean, raw, noise, far, wide_raw
):
    noise = np.clip(np.nan_to_num(noise), -8.0, 8.0)
    mean, raw = np.float32(far * mean), np.float32(wide_raw * raw)
    found = map(wide, log_prob_and_slopes(*map(jnp.asarray, (mean, raw, noise))))
    log_std, action, log_prob, by_mean, by_log_std, by_raw = found
    assert ((log_std >= LOWEST - 1e-6) & (log_std <= HIGHEST + 1e-6)).all()
    assert np.isfinite(by_raw).all()
    e, moved = wide(noise), np.exp(log_std) * wide(noise)
    x = wide(mean) + moved
    # log(1 − tanh² x) = log 4 − 2|x| − 2 log(1 + e^(−2|x|)), whose terms do not cancel.
    squash = np.log(4.0) - 2.0 * np.abs(x) - 2.0 * np.log1p(np.exp(-2.0 * np.abs(x)))
    expected = -0.5 * e**2 - log_std - 0.5 * np.log(2.0 * np.pi) - squash
    reach = 1.0 + np.abs(wide(mean)) + np.abs(moved)
    assert (np.abs(log_prob - expected[:, 0]) <= 32 * ROUNDING * (reach + e**2)[:, 0]).all()
    # Far out tanh does not move, so that the error of x there is not passed on.
    error = 32 * ROUNDING * np.minimum(reach, 100.0)
    assert (np.abs(action - np.tanh(x)) <= error).all()
    assert (np.abs(by_mean - 2.0 * np.tanh(x)) <= 4 * error).all()
    assert (np.abs(by_log_std - (2.0 * np.tanh(x) * moved - 1.0)) <= 4 * error * (1.0 + np.abs(moved))).all()


SAC = SACConfig(
    head_width=5,
    critic="sighted",
    replay=ReplayConfig(capacity=100, window=T, burn_in=0, batch=S),
    costate_coef=0.3,
)


@jax.jit
def sac_loss_and_gradient(networks, windows, noise):
    weight = loss_weights(windows.usable, SAC.replay.burn_in)
    loss = functools.partial(
        sac_loss, config=SAC, observation_clip=10.0, target=networks.critic, stats=empty_stats((2,))
    )
    return jax.value_and_grad(
        lambda networks: loss(networks, windows=windows, weight=weight, noise=noise), has_aux=True
    )(networks)


@functools.cache
def sac_networks():
    return randomised(
        initial_sac_state, SAC, PolicyConfig(hidden_size=H), jax.random.key(0), empty_stats((2,)), 1
    ).networks


@settings(max_examples=15)
@given(masks, masks, units, sizes, st.sampled_from([0.0, 1e-4, 1.0, 10.0]))
@example(np.zeros((T, S), bool), np.zeros((T, S), bool), np.ones((T, S), np.float32), 1.0, 1.0)
def test_windows_give_finite_gradients_and_none_where_nothing_can_be_learnt(
    usable, is_first, unit, size, weights
):
    networks = sac_networks()
    scaled = jax.tree.map(lambda leaf: weights * leaf, networks)
    observation = jnp.asarray(size * np.stack([unit, unit[::-1]], -1), jnp.float32)
    rows = ReplayRows(
        observation=observation,
        action=observation[..., :1].clip(-1.0, 1.0),
        reward=jnp.asarray(unit),
        discount=jnp.ones((T, S)),
        is_first=jnp.asarray(is_first),
        is_last=jnp.zeros((T, S), bool),
        seen=jnp.asarray(is_first),
        complete=observation[::-1],
    )
    windows = Windows(rows, jnp.asarray(usable), jnp.zeros((S, 1)), None)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(T - SAC.replay.burn_in, S, 1)), jnp.float32)
    (loss, metrics), gradient = jax.device_get(sac_loss_and_gradient(scaled, windows, noise))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((loss, metrics, gradient)))
    assert -1e-6 <= metrics["losses/costate"] <= 2.0 + 1e-6
    if not usable[SAC.replay.burn_in :].any():
        assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))
