"""Means over the valid rows, and over the episodes that ended."""

import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Int

Metrics = dict[str, Float[Array, ""]]


def row_weights(valid: Float[Array, "T S"]) -> Float[Array, "T S"]:
    """Return weights whose weighted sum is the mean over the valid rows.

    They are all zero if no row is valid.
    """
    total = valid.sum()
    return valid / jnp.where(total > 0.0, total, 1.0)


def weighted_sum(value: Float[Array, "T S"], weight: Float[Array, "T S"]) -> Float[Array, ""]:
    return (value * weight).sum()


def weighted_variance(value: Float[Array, "T S"], weight: Float[Array, "T S"]) -> Float[Array, ""]:
    return weighted_sum(jnp.square(value - weighted_sum(value, weight)), weight)


def episode_metrics(
    ends: Bool[Array, "T B"], episode_return: Float[Array, "T B"], episode_length: Int[Array, "T B"]
) -> Metrics:
    """Return means over the episodes that ended; NaN if none did."""
    episodes = ends.sum()
    return {
        "training/episode_reward": jnp.where(ends, episode_return, 0.0).sum() / episodes,
        "training/episode_length": jnp.where(ends, episode_length, 0).sum() / episodes,
        "training/episodes": episodes.astype(jnp.float32),
    }
