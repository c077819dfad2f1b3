"""Readouts for a quadratic control cost, where the minimiser of the Hamiltonian is linear in the co-state."""

import dataclasses

import jax.numpy as jnp

from costate._types import Array, Float, Key
from costate.initialisation import orthogonal
from costate.readouts.base import READOUTS, AbstractReadout, ReadoutConfig

# Small, so that the first controls are centred on zero (Appendix E.1).
ACTOR_SCALE = 0.01


class QuadraticReadout(AbstractReadout):
    """u* = −½ R⁻¹ G h = W_out h for c(u) = uᵀRu and constant G (Eq. 3.4); R and the sign are absorbed by the learned W_out."""

    weights: Float[Array, "H A"]
    bias: Float[Array, " A"]
    log_std: Float[Array, " A"]

    def control(self, hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        return hidden @ self.weights + self.bias


class TanhReadout(AbstractReadout):
    """u = tanh(W_out h): the authors' code bounds the mean, where the paper's text leaves it linear."""

    weights: Float[Array, "H A"]
    bias: Float[Array, " A"]
    log_std: Float[Array, " A"]

    def control(self, hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        return jnp.tanh(hidden @ self.weights + self.bias)


@READOUTS.register("quadratic")
@dataclasses.dataclass(frozen=True)
class QuadraticReadoutConfig(ReadoutConfig):
    """Linear mean, the control law of a quadratic control cost."""

    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> QuadraticReadout:
        return QuadraticReadout(*_fresh_weights(key, hidden_size, action_size))


@READOUTS.register("tanh")
@dataclasses.dataclass(frozen=True)
class TanhReadoutConfig(ReadoutConfig):
    """Linear mean through tanh, as in the authors' code."""

    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> TanhReadout:
        return TanhReadout(*_fresh_weights(key, hidden_size, action_size))


def _fresh_weights(key: Key[Array, ""], hidden_size: int, action_size: int) -> tuple[Array, Array, Array]:
    """Output weights, bias and log σ = 0."""
    return orthogonal(key, hidden_size, action_size, ACTOR_SCALE), jnp.zeros(action_size), jnp.zeros(action_size)
