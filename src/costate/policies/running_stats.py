"""Running mean and variance of data in batches, and normalisation by them (Appendix E.2)."""

import equinox as eqx
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float

EPSILON = 1e-8


class RunningStats(eqx.Module):
    """Mean and (population) variance of everything merged so far; 0 and 1 before the first merge."""

    mean: Float[Array, "*D"]
    variance: Float[Array, "*D"]
    count: Float[Array, ""]


def empty_stats(shape: tuple[int, ...] = ()) -> RunningStats:
    return RunningStats(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))


def merge(stats: RunningStats, batch: Float[Array, "T B *D"], weight: Bool[Array, "T B"]) -> RunningStats:
    """Return the statistics of old and new data together, exactly (Chan et al. 1979).

        m = m_a + (m_b − m_a) n_b/n,    n v = n_a v_a + n_b v_b + (m_b − m_a)² n_a n_b/n,    n = n_a + n_b

    Rows whose ``weight`` is false do not count, whatever stands in them.
    """
    batch_mean, batch_variance, batch_count = _moments(batch, weight)
    count = stats.count + batch_count
    old, new = stats.count / jnp.maximum(count, 1.0), batch_count / jnp.maximum(count, 1.0)
    delta = batch_mean - stats.mean
    # From the larger part towards the smaller. So neither 1 − n_b/n, of which few digits are left late in a
    # run, nor a difference of nearly equal numbers is formed, and a part without rows changes nothing.
    newer = new > old
    mean = _add_fairly(
        jnp.where(newer, batch_mean, stats.mean), jnp.where(newer, -delta * old, delta * new), count
    )
    within = jnp.where(newer, batch_variance, stats.variance) + (batch_variance - stats.variance) * jnp.where(
        newer, -old, new
    )
    return RunningStats(mean, within + jnp.square(delta) * old * new, count)


def _add_fairly(
    value: Float[Array, "*D"], change: Float[Array, "*D"], count: Float[Array, ""]
) -> Float[Array, "*D"]:
    """Return ``value + change``, rounded up with a frequency that makes rounding errors average to zero.

    Late in a run a mean changes by about as much as its last digit is worth. If data drift, thousands of
    changes in a row would be rounded to the same side: after 10⁸ steps a deviation was wrong by 1 %, with
    small batches by 7 %. The thresholds k φ mod 1 are spread evenly over any stretch of merges. They are
    made from the count, so that they are the same in a resumed run.
    """
    total = value + change
    from_change = total - value
    # The rounding error, exactly (Knuth's TwoSum).
    lost = (value - (total - from_change)) + (change - from_change)
    beside = jnp.nextafter(total, jnp.where(lost > 0.0, jnp.inf, -jnp.inf).astype(total.dtype))
    turn = (count.astype(jnp.uint32) * jnp.uint32(2654435769)).astype(total.dtype) * 2.0**-32
    return jnp.where(jnp.abs(lost) > jnp.abs(beside - total) * turn, beside, total)


def _moments(
    batch: Float[Array, "T B *D"], weight: Bool[Array, "T B"]
) -> tuple[Float[Array, "*D"], Float[Array, "*D"], Float[Array, ""]]:
    """Return mean, variance and number of the rows that count; zeros if there are none."""
    counts = weight.reshape(weight.shape + (1,) * (batch.ndim - 2))
    number = weight.sum().astype(batch.dtype)

    def mean(values: Float[Array, "T B *D"]) -> Float[Array, "*D"]:
        return jnp.where(counts, values, 0.0).sum((0, 1)) / jnp.maximum(number, 1.0)

    # The mean of a sensor far from zero has a rounding error, which the mean of the remainder removes: to
    # the last digit if the sensor is constant.
    rough = mean(batch)
    exact = rough + mean(batch - rough[None, None])
    return exact, mean(jnp.square(batch - exact[None, None])), number


def clipped(value: Float[Array, "*S"], limit: float | None) -> Float[Array, "*S"]:
    """Clip ``value`` to ±limit; return it unchanged if there is no limit."""
    return value if limit is None else jnp.clip(value, -limit, limit)


def normalise(
    stats: RunningStats, observation: Float[Array, "*S O"], limit: float | None
) -> Float[Array, "*S O"]:
    """Return (y − mean) / √(variance + ε), clipped.

    A sensor that has never varied is only centred. If it was hidden while the statistics were taken, it would
    otherwise be magnified ten thousand times, to nothing but its sign, once it is read.
    """
    shape = observation.shape
    centred = observation - jnp.broadcast_to(stats.mean, shape)
    deviation = jnp.where(
        stats.variance > 0.0, jnp.sqrt(stats.variance + EPSILON), jnp.ones_like(stats.variance)
    )
    return clipped(centred / jnp.broadcast_to(deviation, shape), limit)


def scale_reward(
    stats: RunningStats, reward: Float[Array, "T B"], limit: float | None
) -> Float[Array, "T B"]:
    """Return r / √(Var(R) + ε), clipped, where ``stats`` describe the running discounted return R."""
    return clipped(reward / jnp.sqrt(stats.variance + EPSILON), limit)
