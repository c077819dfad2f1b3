"""Exploration of control laws that switch: the Gibbs distribution of the Hamiltonian over a few levels.

Where c(u) is zero or counts fuel, H is linear between the levels −u_max, (0,) u_max. So its minimum is at one
of them, and the law has no slope to follow. Exploration is therefore a distribution over the levels,

    P(u) ∝ exp(−(c(u) + u s)/τ) = exp((u σ − w|u|)/τ),    s = −σ the slope of H by u,
    c(u) = w|u|, w = 0 where control is free.

Its mode is the control law for every temperature τ, and it becomes the law as τ → 0. Of all distributions
with its entropy it has the least expected Hamiltonian. Its log-probability is smooth in σ, so that a
likelihood-ratio gradient is exact, without differentiating a step.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.checks import WIDEST_BOUND
from costate._base.errors import ConfigError
from costate._base.types import Array, Float
from costate.policies.distribution import AbstractDistribution
from costate.policies.readouts.base import AbstractReadout, over_streams
from costate.policies.readouts.influence import switching_function

OFF_POLICY_OBSTACLE = "chooses among a few controls, by which soft actor-critic cannot differentiate a value"


class Gibbs(AbstractDistribution):
    """P(u) ∝ exp((u σ − w|u|)/τ) over a few levels, for each actuator independently.

    Controls are in units of the actuator's limits: u = 1 is u_max, u = −1 is u_min.
    """

    switching: Float[Array, "*S A"]
    """σ."""
    log_temperature: Float[Array, " A"]
    levels: tuple[float, ...] = eqx.field(static=True)
    """In ascending order."""
    fuel_weight: float = eqx.field(static=True)
    """w; 0 where control is free."""

    def mode(self) -> Float[Array, "*S A"]:
        """Return sign(σ) where |σ| > w, else 0.

        If control is free and σ = 0, every control is as good, and 0 is returned as in Appendix C.
        """
        return jnp.where(jnp.abs(self.switching) > self.fuel_weight, jnp.sign(self.switching), 0.0)

    def sample(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        """Invert the cumulative distribution at Φ(ε), which is uniform for standard normal ε."""
        uniform = jax.scipy.special.ndtr(noise)
        below = jnp.cumsum(jnp.exp(self.level_log_probs()), axis=0)
        action = jnp.full_like(self.switching, self.levels[0])
        for k, (lower, upper) in enumerate(zip(self.levels, self.levels[1:], strict=False)):
            action = action + (upper - lower) * (uniform > below[k])
        return action

    def log_prob(self, action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """Return log P(u), summed over actuators.

        It is meaningful at the levels only, and continuous between them.
        """
        return (self._exponent(action) - jax.nn.logsumexp(self._exponents(), axis=0)).sum(-1)

    def entropy(self) -> Float[Array, "*S"]:
        """Return −Σ_u P(u) log P(u), summed over actuators. It depends on the state, as P does."""
        log_probs = self.level_log_probs()
        return -(jnp.exp(log_probs) * log_probs).sum(axis=(0, -1))

    def actuate(
        self, action: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
    ) -> Float[Array, "*S A"]:
        """Map 1 to the upper bound, −1 to the lower, and 0 to no control, even if bounds are asymmetric."""
        if not (np.all(low < 0.0) and np.all(high > 0.0) and max(-low.min(), high.max()) < WIDEST_BOUND):
            raise ConfigError(
                f"The readout switches between the limits of the actuators, but those of this task are "
                f"{low.tolist()} and {high.tolist()}. Every actuator needs a negative and a positive limit "
                "that are finite. Use --readout quadratic."
            )
        return jnp.where(
            action > 0.0,
            jnp.broadcast_to(high, action.shape) * action,
            jnp.broadcast_to(-low, action.shape) * action,
        )

    def margin(self) -> Float[Array, "*S A"]:
        """Return ||σ| − w|, how far each control is from switching."""
        return jnp.abs(jnp.abs(self.switching) - self.fuel_weight)

    def level_log_probs(self) -> Float[Array, "K *S A"]:
        """Return log P of every level."""
        return jax.nn.log_softmax(self._exponents(), axis=0)

    def _exponent(self, action: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        coldness = jnp.broadcast_to(jnp.exp(-self.log_temperature), self.switching.shape)
        return (action * self.switching - self.fuel_weight * jnp.abs(action)) * coldness

    def _exponents(self) -> Float[Array, "K *S A"]:
        return jnp.stack([self._exponent(jnp.full_like(self.switching, level)) for level in self.levels])


class AbstractSwitchingReadout(AbstractReadout):
    """A readout whose law switches between levels by the sign and size of σ = −G(ỹ) h.

    A subclass names its levels and its law.
    """

    levels: ClassVar[tuple[float, ...]]
    weights: eqx.AbstractVar[Float[Array, "H A"]]
    bias: eqx.AbstractVar[Float[Array, " A"]]
    log_temperature: eqx.AbstractVar[Float[Array, " A"]]
    modulation: eqx.AbstractVar[Float[Array, "F H"] | None]

    @property
    @abc.abstractmethod
    def price(self) -> float:
        """Return w of c(u) = w Σ|u_i|; 0 where control is free."""

    def switching(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        """Return σ."""
        return switching_function(self.weights, self.bias, self.modulation, feature, hidden)

    def distribution(self, features: Float[Array, "*S F"], hidden: Float[Array, "*S H"]) -> Gibbs:
        return Gibbs(
            over_streams(self.switching, features, hidden), self.log_temperature, self.levels, self.price
        )

    def exploration(self) -> dict[str, Float[Array, ""]]:
        return {"training/control_temperature": jnp.exp(self.log_temperature).mean()}
