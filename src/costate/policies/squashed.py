"""A normal distribution squashed into (−1, 1) by tanh: the exploring policy of soft actor-critic."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.checks import WIDEST_BOUND
from costate._base.types import Array, Float

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


def to_bounds(
    control: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
) -> Float[Array, "*S A"]:
    """From (−1, 1) to the bounds of the actuators; where those are none to speak of, as in the LQR tasks (±1e10), to itself."""
    bounded = np.maximum(np.abs(low), np.abs(high)) < WIDEST_BOUND
    lowest, highest = (
        jnp.broadcast_to(np.where(bounded, bound, one), control.shape)
        for bound, one in ((low, -1.0), (high, 1.0))
    )
    return lowest + 0.5 * (control + 1.0) * (highest - lowest)
