"""Normal exploration around a control law, with the same width in every state (Appendix E.1)."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Float
from costate.policies.distribution import AbstractDistribution
from costate.policies.readouts.base import AbstractReadout, ReadoutConfig, over_streams
from costate.policies.readouts.influence import Influence


class Gaussian(AbstractDistribution):
    """A diagonal normal distribution over controls; ``mean`` may carry any leading axes."""

    mean: Float[Array, "*S A"]
    log_std: Float[Array, " A"]

    def mode(self) -> Float[Array, "*S A"]:
        """Return μ."""
        return self.mean

    def sample(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        """Return u = μ + σ ε for standard normal ε."""
        return self.mean + jnp.broadcast_to(jnp.exp(self.log_std), self.mean.shape) * noise

    def log_prob(self, action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """Return log N(u; μ, σ²), summed over the components of the control."""
        log_std = jnp.broadcast_to(self.log_std, self.mean.shape)
        z = (action - self.mean) * jnp.exp(-log_std)
        return (-0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)

    def entropy(self) -> Float[Array, ""]:
        """Return ½ log(2πe σ²), summed over the components; it is the same in every state because σ is."""
        return (self.log_std + 0.5 * math.log(2.0 * math.pi * math.e)).sum()

    def actuate(
        self, action: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
    ) -> Float[Array, "*S A"]:
        """Clip to the bounds. Controls are in the actuators' own units (Appendix E.2)."""
        return jnp.clip(action, jnp.broadcast_to(low, action.shape), jnp.broadcast_to(high, action.shape))


class AbstractGaussianReadout(AbstractReadout):
    """A readout whose law is smooth in h. A subclass defines ``control`` and ``log_std``."""

    log_std: eqx.AbstractVar[Float[Array, " A"]]

    def distribution(self, features: Float[Array, "*S F"], hidden: Float[Array, "*S H"]) -> Gaussian:
        return Gaussian(over_streams(self.control, features, hidden), self.log_std)

    def exploration(self) -> dict[str, Float[Array, ""]]:
        return {"training/action_std": jnp.exp(self.log_std).mean()}


@dataclasses.dataclass(frozen=True)
class GaussianReadoutConfig(ReadoutConfig):
    """Settings of readouts with a smooth law."""

    influence: Influence = "constant"
    """Influence G of controls on what the co-state measures: constant, or a function of the observation."""
    initial_deviation: float = 1.0
    """Initial standard deviation σ of exploration, in the actuators' units; the paper's log σ = 0 is 1."""

    def __post_init__(self) -> None:
        if not 0.0 < self.initial_deviation < math.inf:
            raise ConfigError(
                f"initial_deviation is {self.initial_deviation}, but a standard deviation is a positive "
                "number. The paper starts with 1."
            )

    def fresh_log_std(self, action_size: int) -> Float[Array, " A"]:
        return jnp.full(action_size, math.log(self.initial_deviation), jnp.float32)
