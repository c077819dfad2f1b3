"""Running mean and variance of data that arrives in batches, and the normalisations made of them (Appendix E.2)."""

import equinox as eqx
import jax.numpy as jnp

from costate._types import Array, Bool, Float

EPSILON = 1e-8


class RunningStats(eqx.Module):
    """Mean and (population) variance of everything merged so far; 0 and 1 before the first merge."""

    mean: Float[Array, "*D"]
    variance: Float[Array, "*D"]
    count: Float[Array, ""]


def empty_stats(shape: tuple[int, ...] = ()) -> RunningStats:
    return RunningStats(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))


def merge(stats: RunningStats, batch: Float[Array, "T B *D"], weight: Bool[Array, "T B"]) -> RunningStats:
    """The statistics of old and new data together, exactly (Chan et al. 1979).

        m = m_a + (m_b − m_a) n_b/n,    n v = n_a v_a + n_b v_b + (m_b − m_a)² n_a n_b/n,    n = n_a + n_b

    Rows whose ``weight`` is false do not count.
    """
    w = weight.astype(batch.dtype).reshape(weight.shape + (1,) * (batch.ndim - 2))
    batch_count = weight.sum().astype(batch.dtype)
    safe_count = jnp.maximum(batch_count, 1.0)
    batch_mean = (w * batch).sum((0, 1)) / safe_count
    batch_variance = (w * jnp.square(batch - batch_mean[None, None])).sum((0, 1)) / safe_count
    count = stats.count + batch_count
    fraction = batch_count / jnp.maximum(count, 1.0)
    delta = batch_mean - stats.mean
    variance = stats.variance * (1.0 - fraction) + batch_variance * fraction + jnp.square(delta) * fraction * (1.0 - fraction)
    merged = RunningStats(stats.mean + delta * fraction, variance, count)
    # Before any data the variance is 1 by convention; a merge of nothing must leave it so.
    return RunningStats(merged.mean, jnp.where(count > 0.0, merged.variance, stats.variance), count)


def clipped(value: Float[Array, "*S"], limit: float | None) -> Float[Array, "*S"]:
    """``value`` within ±limit; unchanged if there is no limit."""
    return value if limit is None else jnp.clip(value, -limit, limit)


def normalise(stats: RunningStats, observation: Float[Array, "*S O"], limit: float | None) -> Float[Array, "*S O"]:
    """(y − mean) / √(variance + ε), clipped."""
    shape = observation.shape
    centred = observation - jnp.broadcast_to(stats.mean, shape)
    return clipped(centred / jnp.broadcast_to(jnp.sqrt(stats.variance + EPSILON), shape), limit)


def scale_reward(stats: RunningStats, reward: Float[Array, "T B"], limit: float | None) -> Float[Array, "T B"]:
    """r / √(Var(R) + ε), clipped, where ``stats`` describe the running discounted return R."""
    return clipped(reward / jnp.sqrt(stats.variance + EPSILON), limit)
