"""What a readout is: the control law that minimises the Hamiltonian given the hidden state, with Gaussian exploration around it."""

import abc
import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._registry import Registry
from costate._types import Array, Float, Key


class Gaussian(NamedTuple):
    """A diagonal normal distribution over controls; ``mean`` may carry any leading axes."""

    mean: Float[Array, "*S A"]
    log_std: Float[Array, " A"]

    def sample(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        """u = μ + σ ε for standard normal ε."""
        return self.mean + jnp.broadcast_to(jnp.exp(self.log_std), self.mean.shape) * noise

    def log_prob(self, action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """log N(u; μ, σ²), summed over the components of the control."""
        log_std = jnp.broadcast_to(self.log_std, self.mean.shape)
        z = (action - self.mean) * jnp.exp(-log_std)
        return (-0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)

    def entropy(self) -> Float[Array, ""]:
        """½ log(2πe σ²), summed; the same in every state because σ is."""
        return (self.log_std + 0.5 * math.log(2.0 * math.pi * math.e)).sum()


class AbstractReadout(eqx.Module):
    """u* = argmin_u { c(u) + uᵀ G h } as a function of h, and the width of exploration around it."""

    log_std: eqx.AbstractVar[Float[Array, " A"]]

    @abc.abstractmethod
    def control(self, hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        """The control that minimises the Hamiltonian."""


@dataclasses.dataclass(frozen=True)
class ReadoutConfig(abc.ABC):
    """Settings of a readout; a subclass is registered in ``READOUTS`` under the readout's name."""

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> AbstractReadout:
        """A readout with fresh weights."""


READOUTS: Registry[type[ReadoutConfig]] = Registry("readout")


def distribution(readout: AbstractReadout, hidden: Float[Array, "*S H"]) -> Gaussian:
    """π(u | h) for any number of streams."""
    control = readout.control
    for _ in range(hidden.ndim - 1):
        control = jax.vmap(control)
    return Gaussian(control(hidden), readout.log_std)
