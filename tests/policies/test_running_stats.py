"""Running statistics against NumPy over all the data at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.policies import running_stats
from costate.policies.running_stats import RunningStats, empty_stats, normalise, scale_reward

# As one program: operation by operation, every one of them would be compiled for itself.
merge = jax.jit(running_stats.merge)


def test_merged_batches_equal_numpy_over_the_concatenated_data():
    rng = np.random.default_rng(0)
    # Far from zero and of different scales, where a naive sum of squares fails.
    batches = [rng.normal(100.0, 3.0, size=(int(n), 4, 5)) * [1, 10, 0.1, 1, 1] for n in (3, 50, 1, 200)]
    stats = empty_stats((5,))
    for batch in batches:
        stats = merge(stats, jnp.asarray(batch, jnp.float32), jnp.ones(batch.shape[:2], bool))
    everything = np.concatenate(batches).reshape(-1, 5)
    assert float(stats.count) == len(everything)
    np.testing.assert_allclose(stats.mean, everything.mean(0), rtol=1e-5)  # float32 at 100
    np.testing.assert_allclose(
        stats.variance, everything.var(0), rtol=1e-3
    )  # float32: (100 · 1e-7)² against 9, times a few merges


def test_rows_without_weight_do_not_count():
    rng = np.random.default_rng(1)
    batch, valid = rng.normal(size=(30, 4)), rng.uniform(size=(30, 4)) < 0.6
    stats = merge(empty_stats(), jnp.asarray(batch, jnp.float32), jnp.asarray(valid))
    np.testing.assert_allclose(stats.mean, batch[valid].mean(), rtol=1e-5)
    np.testing.assert_allclose(stats.variance, batch[valid].var(), rtol=1e-5)


def test_merging_nothing_changes_nothing():
    stats = merge(empty_stats(), jnp.full((3, 2), 7.0), jnp.zeros((3, 2), bool))
    assert (float(stats.mean), float(stats.variance), float(stats.count)) == (0.0, 1.0, 0.0)


def test_before_any_data_normalising_is_the_identity_up_to_the_clip():
    observation = jnp.array([[0.5, -3.0, 40.0]])
    np.testing.assert_allclose(
        normalise(empty_stats((3,)), observation, 10.0), [[0.5, -3.0, 10.0]], rtol=1e-6
    )


def test_normalised_data_has_mean_zero_and_deviation_one():
    data = np.random.default_rng(2).normal(5.0, 2.0, size=(1000, 2, 3))
    stats = merge(empty_stats((3,)), jnp.asarray(data, jnp.float32), jnp.ones((1000, 2), bool))
    normal = np.asarray(normalise(stats, jnp.asarray(data, jnp.float32), None))
    np.testing.assert_allclose(normal.mean((0, 1)), np.zeros(3), atol=1e-5)
    np.testing.assert_allclose(normal.std((0, 1)), np.ones(3), rtol=1e-5)


def test_what_never_varied_is_centred_and_not_magnified():
    """A sensor that was hidden while learning, and a mask bit where nothing ever went dark."""
    seen = jnp.tile(jnp.array([0.0, 1.0, 1000.3], jnp.float32), (50, 2, 1))
    stats = merge(empty_stats((3,)), seen, jnp.ones((50, 2), bool))
    np.testing.assert_allclose(normalise(stats, seen[0], 10.0), np.zeros((2, 3)), atol=1e-6)
    np.testing.assert_allclose(
        normalise(stats, jnp.array([[0.7, 0.0, 1000.3]], jnp.float32), 10.0), [[0.7, -1.0, 0.0]], atol=1e-6
    )


@pytest.mark.parametrize(("limit", "expected"), [(10.0, 10.0), (None, 50.0)])
def test_rewards_are_divided_by_the_deviation_of_the_return_and_clipped(limit, expected):
    stats = RunningStats(jnp.asarray(3.0), jnp.asarray(4.0), jnp.asarray(10.0))
    np.testing.assert_allclose(
        scale_reward(stats, jnp.array([[1.0, 100.0]]), limit), [[0.5, expected]], rtol=1e-6
    )
