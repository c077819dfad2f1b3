"""Schedule and adaptation of PPO's learning rate."""

import jax.numpy as jnp

from costate._base.types import Array, Float, Int
from costate.learners.ppo.settings import PPOSettings


def learning_rate(config: PPOSettings, iterations: int, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return the scheduled learning rate of an iteration, counted from 0, before any adaptation.

    It is constant, or falls linearly to zero after the last iteration.
    """
    if config.learning_rate_decay == "linear":
        return config.learning_rate * (1.0 - iteration / iterations)
    return jnp.asarray(config.learning_rate)


def adapted(lr_multiplier: Float[Array, ""], divergence: Float[Array, ""], target: float) -> Float[Array, ""]:
    """Return the learning rate multiplier after an iteration that changed the policy by ``divergence``.

    It grows by half if the divergence was less than half the target, and shrinks by a third if it was more
    than twice the target. Schulman et al. (2017, Section 4) adapt their penalty so, with other factors. It
    stays between 0.1 and 10.
    """
    quicker = jnp.where(divergence < 0.5 * target, lr_multiplier * 1.5, lr_multiplier)
    return jnp.clip(jnp.where(divergence > 2.0 * target, lr_multiplier / 1.5, quicker), 0.1, 10.0)
