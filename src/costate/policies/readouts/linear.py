"""Readouts for a quadratic control cost, where the minimiser of the Hamiltonian is linear in the co-state."""

import dataclasses

import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.policies.readouts.base import READOUTS
from costate.policies.readouts.gaussian import AbstractGaussianReadout, GaussianReadoutConfig
from costate.policies.readouts.influence import fresh_influence, switching_function


class QuadraticReadout(AbstractGaussianReadout):
    """u* = −½ R⁻¹ G(ỹ) h = W_out h for c(u) = uᵀRu and constant G (Eq. 3.4).

    The learned W_out absorbs R, the ½ and the sign.
    """

    weights: Float[Array, "H A"]
    bias: Float[Array, " A"]
    log_std: Float[Array, " A"]
    modulation: Float[Array, "F H"] | None = None

    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        return switching_function(self.weights, self.bias, self.modulation, feature, hidden)


class TanhReadout(AbstractGaussianReadout):
    """u = tanh(W_out h): the authors' code bounds the mean, where the paper's text leaves it linear."""

    weights: Float[Array, "H A"]
    bias: Float[Array, " A"]
    log_std: Float[Array, " A"]
    modulation: Float[Array, "F H"] | None = None

    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        return jnp.tanh(switching_function(self.weights, self.bias, self.modulation, feature, hidden))


@READOUTS.register("quadratic")
@dataclasses.dataclass(frozen=True)
class QuadraticReadoutConfig(GaussianReadoutConfig):
    """Linear mean, the control law of a quadratic control cost."""

    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> QuadraticReadout:
        weights, bias, modulation = fresh_influence(key, self.influence, hidden_size, action_size)
        return QuadraticReadout(weights, bias, self.fresh_log_std(action_size), modulation)


@READOUTS.register("tanh")
@dataclasses.dataclass(frozen=True)
class TanhReadoutConfig(GaussianReadoutConfig):
    """Linear mean through tanh, as in the authors' code."""

    off_policy_obstacle = "squashes its control, and soft actor-critic would squash it again"

    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> TanhReadout:
        weights, bias, modulation = fresh_influence(key, self.influence, hidden_size, action_size)
        return TanhReadout(weights, bias, self.fresh_log_std(action_size), modulation)
