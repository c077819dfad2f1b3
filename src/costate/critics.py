"""Critics: the value of a hidden state, whose gradient is the co-state's target."""

import equinox as eqx
import jax.numpy as jnp

from costate._types import Array, Float, Key
from costate.initialisation import orthogonal


class LinearCritic(eqx.Module):
    """V = wᵀh + b on the core's new hidden state.

    It predicts reward, so ∇V is −λ of the cost problem; the learned readout absorbs the sign.
    """

    weights: Float[Array, " H"]
    bias: Float[Array, ""]

    def value(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S"]:
        return hidden @ self.weights + self.bias


def linear_critic(key: Key[Array, ""], hidden_size: int) -> LinearCritic:
    """A critic with fresh weights of unit length and no bias."""
    return LinearCritic(orthogonal(key, hidden_size, 1)[:, 0], jnp.zeros(()))
