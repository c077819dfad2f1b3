"""Running statistics at any split, mask and scale, against NumPy in float64 over all the data at once."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from costate.policies.running_stats import RunningStats, empty_stats, merge, normalise, scale_reward

T, B = 7, 3
ROUNDING = 2.0**-24
"""Relative error of one float32 operation."""
# Of one shape, so that each is compiled once; lengths and splits are made by masks.
merged, normalised, scaled = (
    jax.jit(merge),
    jax.jit(normalise, static_argnums=2),
    jax.jit(scale_reward, static_argnums=2),
)

# Location and spread of a feature, over all magnitudes that a sensor may have.
magnitudes = st.sampled_from([0.0, 1e-20, 1e-12, 1e-8, 1e-4, 1.0, 100.1, 1e4, 1e8, 1e15])
offsets = st.builds(lambda size, sign: sign * size, magnitudes, st.sampled_from([-1.0, 1.0]))
units = arrays(np.float64, (T, B), elements=st.floats(-1.0, 1.0, width=32))
masks = arrays(np.bool_, (T, B))
batches = st.lists(st.tuples(units, masks), min_size=1, max_size=5)


def merge_all(data: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...] = ()) -> RunningStats:
    stats = empty_stats(shape)
    for batch, mask in data:
        stats = merged(stats, jnp.asarray(batch, jnp.float32), jnp.asarray(mask))
    return stats


def counted(data: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return all rows that count, as float32 holds them, in float64."""
    return np.concatenate([batch.astype(np.float32).astype(np.float64)[mask] for batch, mask in data])


def check_moments(stats: RunningStats, everything: np.ndarray) -> None:
    """Check mean and deviation within the errors of rounding.

    Every operation errs by one rounding unit of the largest number, and an error e of a mean changes the
    deviation about it by at most e. The bound is 16 units, for the few operations of each of five merges. A
    variance below 1e-38 underflows in float32, hence 1e-19.
    """
    assert float(stats.count) == len(everything)
    bound = 16 * ROUNDING * np.abs(everything).max(0, initial=0.0) + 1e-19
    mean, variance = np.asarray(stats.mean, np.float64), np.asarray(stats.variance, np.float64)
    assert (np.abs(mean - everything.mean(0)) <= bound).all()
    assert (np.abs(np.sqrt(variance) - everything.std(0)) <= bound).all()


@given(batches, offsets, magnitudes)
@example([(np.ones((T, B)), np.ones((T, B), bool))], 1.0, 0.0)
def test_any_split_and_mask_gives_the_moments_of_all_that_counts(data, offset, spread):
    data = [(offset + spread * unit, mask) for unit, mask in data]
    everything = counted(data)
    if len(everything):
        check_moments(merge_all(data), everything)
    else:
        stats = merge_all(data)
        assert (stats.mean, stats.variance, stats.count) == (0.0, 1.0, 0.0), "as before any data"


@given(
    st.lists(
        st.tuples(arrays(np.float64, (T, B, 3), elements=st.floats(-1.0, 1.0, width=32)), masks),
        min_size=1,
        max_size=3,
    )
)
def test_every_feature_has_moments_of_its_own(data):
    scales, lies = np.array([1e-6, 1.0, 1e6]), np.array([1.0, -1000.0, 0.0])
    data = [(lies + scales * unit, mask) for unit, mask in data]
    everything = counted(data)
    if len(everything):
        check_moments(merge_all(data, (3,)), everything)


@given(units, offsets, magnitudes, st.integers(1, T * B - 1))
def test_a_batch_far_larger_or_smaller_than_what_was_before_keeps_the_smaller_one(
    unit, offset, spread, first
):
    """One row against twenty, in both orders: the weights n_a/n and n_b/n may each be near zero."""
    few = np.arange(T * B).reshape(T, B) < first
    data = [(offset + spread * unit, few), (-offset + 10.0 * spread * unit, ~few)]
    check_moments(merge_all(data), counted(data))


@given(units, masks, st.sampled_from([1e15, -1e30, 3e38, np.inf, np.nan]))
def test_what_stands_in_rows_that_do_not_count_is_never_seen(unit, mask, spoilt):
    clean, dirty = (merge_all([(np.where(mask, unit, rest), mask)]) for rest in (0.0, spoilt))
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)


@given(st.floats(-12.0, 15.0), st.sampled_from([-1.0, 1.0]), st.lists(masks, min_size=1, max_size=4))
@example(3.00004, 1.0, [np.ones((T, B), bool)] * 4)
def test_a_sensor_that_never_changes_is_normalised_to_zero(exponent, sign, mask_of_batches):
    """However far from zero it stands, to the last bit of its mean."""
    constant = np.full((T, B, 1), np.float32(sign * 10.0**exponent))
    stats = merge_all([(constant, mask) for mask in mask_of_batches], (1,))
    if stats.count > 0.0:
        assert stats.variance[0] == 0.0
        np.testing.assert_array_equal(normalised(stats, jnp.asarray(constant), None), np.zeros((T, B, 1)))


@given(offsets, offsets, st.sampled_from([1.0, 10.0]))
def test_what_a_constant_sensor_suddenly_says_stays_within_the_clip(constant, surprise, limit):
    stats = merge_all([(np.full((T, B, 1), constant), np.ones((T, B), bool))], (1,))
    seen = np.asarray(normalised(stats, jnp.full((T, B, 1), surprise), limit))
    assert (np.abs(seen) <= limit).all()
    difference = np.float64(np.float32(surprise)) - np.float64(np.float32(constant))
    # There is no deviation to divide by: ε alone would magnify it ten thousand times.
    expected = np.clip(difference, -limit, limit)
    # The difference of two numbers of float32 has one rounding.
    np.testing.assert_allclose(seen, np.full((T, B, 1), expected), rtol=8 * ROUNDING)


@given(batches, offsets, magnitudes, units)
def test_normalised_observations_are_those_of_float64(data, offset, spread, unit):
    data = [(offset + spread * unit[..., None], mask) for unit, mask in data]
    everything = counted(data)
    mean, variance = (everything.mean(), everything.var()) if len(everything) else (0.0, 1.0)
    observation = np.float32(offset + 2.0 * spread * unit[..., None])
    seen = np.asarray(normalised(merge_all(data, (1,)), jnp.asarray(observation), None), np.float64)
    assert np.isfinite(seen).all()
    # Mean and deviation are each known up to a rounding of the largest number.
    deviation = np.sqrt(variance + 1e-8) if variance > 0.0 else 1.0
    error = 16 * ROUNDING * max(np.abs(everything).max(initial=0.0), np.abs(observation).max())
    expected = (observation - mean) / deviation
    assert (np.abs(seen - expected) <= (error / deviation + 16 * ROUNDING) * (1.0 + np.abs(expected))).all()


@given(units, masks, masks, magnitudes, st.sampled_from([None, 10.0]))
def test_rewards_are_divided_by_the_deviation_of_their_discounted_return(unit, mask, starts, size, limit):
    reward = np.float32(size * unit)
    returns = np.zeros((T, B))
    for t in range(T):
        returns[t] = reward[t] + (0.99 * np.where(starts[t], 0.0, returns[t - 1]) if t else 0.0)
    returns = returns.astype(np.float32)
    everything = returns[mask].astype(np.float64)
    variance = everything.var() if len(everything) else 1.0
    seen = np.asarray(scaled(merge_all([(returns, mask)]), jnp.asarray(reward), limit))
    expected = reward.astype(np.float64) / np.sqrt(variance + 1e-8)
    assert np.isfinite(seen).all()
    # Where all returns are nearly equal their deviation is known up to a rounding of the returns themselves.
    uncertain = 16 * ROUNDING * np.abs(everything).max(initial=0.0) / np.sqrt(variance + 1e-8)
    bound = 32 * ROUNDING + uncertain
    assert (
        np.abs(seen - (expected if limit is None else np.clip(expected, -limit, limit)))
        <= bound * np.abs(expected) + 1e-30
    ).all()
