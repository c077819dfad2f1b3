"""A dense layer."""

import equinox as eqx
import jax.numpy as jnp

from costate._base.types import Array, Float


class Layer(eqx.Module):
    """x ↦ x W + b."""

    weights: Float[Array, "I J"]
    bias: Float[Array, " J"]

    def apply(self, x: Float[Array, "*S I"]) -> Float[Array, "*S J"]:
        product = x @ self.weights
        return product + jnp.broadcast_to(self.bias, product.shape)
