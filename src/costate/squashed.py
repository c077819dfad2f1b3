"""A normal distribution squashed into (−1, 1) by tanh: the exploring policy of soft actor-critic."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from costate._types import Array, Float

# Bounds of log σ. Outside of them exploration is either nothing or saturates tanh, and gradients vanish.
LOWEST, HIGHEST = -5.0, 2.0


class SquashedGaussian(NamedTuple):
    """u = tanh(x) with x ~ N(μ, σ²), each component by itself."""

    mean: Float[Array, "*S A"]
    log_std: Float[Array, "*S A"]

    def sample(self, noise: Float[Array, "*S A"]) -> tuple[Float[Array, "*S A"], Float[Array, "*S"]]:
        """A control and its log-probability, both differentiable by μ and σ.

            log π(u) = Σ log N(x; μ, σ²) − log(1 − tanh² x),    log(1 − tanh² x) = 2 (log 2 − x − softplus(−2x))

        The right form stays finite where 1 − tanh² x rounds to zero.
        """
        x = self.mean + jnp.exp(self.log_std) * noise
        gaussian = -0.5 * noise * noise - self.log_std - 0.5 * math.log(2.0 * math.pi)
        squash = 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))
        return jnp.tanh(x), (gaussian - squash).sum(-1)

    def mode(self) -> Float[Array, "*S A"]:
        """What the policy does when it does not explore."""
        return jnp.tanh(self.mean)


def bounded_log_std(raw: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
    """Any number into the bounds of log σ, smoothly, so that the gradient never stops."""
    return LOWEST + 0.5 * (HIGHEST - LOWEST) * (jnp.tanh(raw) + 1.0)
