"""Running statistics over as many samples as a long training has, against exactly known moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.policies.running_stats import RunningStats, empty_stats, merge

ACCURACY = 1e-4
NAMES = (
    "far from zero",
    "drifting",
    "drifting far from zero",
    "wide",
    "ever wider",
    "two regimes",
    "on or off",
    "constant",
)


def offsets_and_spreads(merges: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and deviation of every batch for each feature over the run, in float64."""
    along = np.linspace(0.0, 1.0, merges)
    still = np.ones(merges)
    late = np.where(along < 0.9, 0.0, 1.0)
    offset = [
        1000.0 * still,
        3.0 * along,
        1000.0 + 10.0 * along,
        -0.05 * still,
        0.0 * still,
        100.0 - 90.0 * late,
        0.5 * still,
        1000.1 * still,
    ]
    spread = [
        0.1 * still,
        still,
        0.1 * still,
        1e4 * still,
        1.0 + 99.0 * along,
        0.1 + 0.9 * late,
        0.5 * still,
        0.0 * still,
    ]
    return np.stack(offset, -1), np.stack(spread, -1)


def patterns(steps: int, streams: int) -> np.ndarray:
    """Return numbers of mean 0 and deviation 1 up to rounding: each beside its negative; on or off is ±1."""
    half = np.random.default_rng(0).normal(size=(steps * streams // 2, len(NAMES)))
    both = np.concatenate([half, -half])
    both[:, NAMES.index("on or off")] = np.where(np.arange(len(both)) % 2, 1.0, -1.0)
    return (both / both.std(0)).reshape(steps, streams, -1)


def run(steps: int, streams: int, merges: int) -> tuple[RunningStats, np.ndarray, np.ndarray]:
    """The statistics after all batches, and the exact mean and deviation of what was merged."""
    offset, spread = offsets_and_spreads(merges)
    pattern, weight = jnp.asarray(patterns(steps, streams), jnp.float32), jnp.ones((steps, streams), bool)

    def push(stats: RunningStats, now: tuple[jax.Array, jax.Array]) -> tuple[RunningStats, None]:
        return merge(stats, now[0][None, None] + now[1][None, None] * pattern, weight), None

    given = jnp.asarray(offset, jnp.float32), jnp.asarray(spread, jnp.float32)
    stats = jax.jit(lambda stats: jax.lax.scan(push, stats, given)[0])(empty_stats((len(NAMES),)))
    # Batches are of equal size: the mean of their variances, and the variance of their means.
    return jax.device_get(stats), offset.mean(0), np.sqrt((spread**2).mean(0) + offset.var(0))


def check(stats: RunningStats, mean: np.ndarray, deviation: np.ndarray) -> None:
    constant = NAMES.index("constant")
    assert stats.mean[constant] == np.float32(1000.1)
    assert stats.variance[constant] == 0.0
    # A mean of nearly zero has no relative accuracy: there the deviation is the scale.
    scale = np.maximum(np.abs(mean), deviation)
    for i, name in enumerate(NAMES[:constant]):
        assert abs(float(stats.mean[i]) - mean[i]) <= ACCURACY * scale[i], name
        assert abs(float(stats.variance[i]) ** 0.5 - deviation[i]) <= ACCURACY * deviation[i], name


def test_a_million_samples_in_thousands_of_small_batches_keep_four_digits():
    stats, mean, deviation = run(16, 8, 7_813)
    assert stats.count == 7_813 * 128
    check(stats, mean, deviation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "streams", "merges"),
    [(1000, 32, 3125), (1000, 4, 25_000)],
    ids=["paper's batches", "small batches"],
)
def test_a_hundred_million_samples_keep_four_digits(steps, streams, merges):
    stats, mean, deviation = run(steps, streams, merges)
    assert stats.count == 100_000_000
    check(stats, mean, deviation)
