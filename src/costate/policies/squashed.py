"""A normal distribution squashed into (−1, 1) by tanh: the exploring policy of soft actor-critic."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.checks import WIDEST_BOUND
from costate._base.types import Array, Float
from costate.policies.distribution import AbstractDistribution

# Bounds of log σ. Outside of them exploration is either nothing or saturates tanh, and gradients vanish.
LOWEST, HIGHEST = -5.0, 2.0


class SquashedGaussian(AbstractDistribution):
    """u = tanh(x) with x ~ N(μ, σ²), each component by itself."""

    mean: Float[Array, "*S A"]
    log_std: Float[Array, "*S A"]

    def mode(self) -> Float[Array, "*S A"]:
        """Return tanh(μ), the control without exploration."""
        return jnp.tanh(self.mean)

    def sample(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        """Return u = tanh(μ + σ ε) for standard normal ε."""
        return jnp.tanh(self._before_squashing(noise))

    def sample_and_log_prob(
        self, noise: Float[Array, "*S A"]
    ) -> tuple[Float[Array, "*S A"], Float[Array, "*S"]]:
        """Return a control and its log-probability, both differentiable by μ and σ.

        x is known here, so that log π is exact where tanh x rounds to ±1.
        """
        x = self._before_squashing(noise)
        log_prob = self._log_prob(x, noise)
        return jnp.tanh(x), log_prob

    def log_prob(self, action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """Return log π(u) by x = artanh u.

        Near ±1 few digits are left of x; prefer :meth:`sample_and_log_prob` where u was just drawn. The
        bounds themselves count as the floating-point numbers next to them.
        """
        largest = 1.0 - jnp.finfo(action.dtype).epsneg
        x = jnp.arctanh(jnp.clip(action, -largest, largest))
        return self._log_prob(x, (x - self.mean) * jnp.exp(-self.log_std))

    def entropy(self) -> None:
        """Return None: there is no closed form."""
        return None

    def actuate(
        self, action: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
    ) -> Float[Array, "*S A"]:
        """Scale from (−1, 1) to the bounds."""
        return to_bounds(action, low, high)

    def _before_squashing(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        return self.mean + jnp.exp(self.log_std) * noise

    def _log_prob(self, x: Float[Array, "*S A"], noise: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """Return log π(tanh x) for x = μ + σ ε.

            log π(u) = Σ log N(x; μ, σ²) − log(1 − tanh² x)
            log(1 − tanh² x) = 2 (log 2 − x − softplus(−2x))

        The right-hand side of the second line stays finite where 1 − tanh² x rounds to zero.
        """
        gaussian = -0.5 * noise * noise - self.log_std - 0.5 * math.log(2.0 * math.pi)
        squash = 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))
        return (gaussian - squash).sum(-1)


def bounded_log_std(raw: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
    """Map any number into the bounds of log σ, smoothly, so that the gradient never stops."""
    return LOWEST + 0.5 * (HIGHEST - LOWEST) * (jnp.tanh(raw) + 1.0)


def to_bounds(
    control: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
) -> Float[Array, "*S A"]:
    """Scale from (−1, 1) to the bounds of the actuators.

    A control of an actuator that is as good as unbounded, as in the LQR tasks (±1e10), stays as it is.
    """
    bounded = np.maximum(np.abs(low), np.abs(high)) < WIDEST_BOUND
    lowest, highest = (
        jnp.broadcast_to(np.where(bounded, bound, one), control.shape)
        for bound, one in ((low, -1.0), (high, 1.0))
    )
    return lowest + 0.5 * (control + 1.0) * (highest - lowest)
