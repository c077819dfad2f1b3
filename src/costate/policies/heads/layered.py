"""Heads with two hidden layers; kinds of them differ in what the outputs mean."""

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.policies.heads.base import AbstractHead
from costate.policies.initialisation import orthogonal
from costate.policies.layer import Layer


class AbstractLayeredHead(AbstractHead):
    """A head whose prediction is made of the outputs of a perceptron on the memory and the control."""

    first: eqx.AbstractVar[Layer]
    second: eqx.AbstractVar[Layer]
    last: eqx.AbstractVar[Layer]

    def outputs(self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"]) -> Float[Array, "*S K"]:
        """Return the outputs of the last layer."""
        x = jax.nn.relu(self.first.apply(jnp.concatenate([hidden, action], axis=-1)))
        return self.last.apply(jax.nn.relu(self.second.apply(x)))


def fresh_layers(key: Key[Array, ""], inputs: int, width: int, outputs: int) -> tuple[Layer, Layer, Layer]:
    """Return layers with orthogonal weights and no biases."""
    keys = jax.random.split(key, 3)
    sizes = ((inputs, width, 2.0**0.5), (width, width, 2.0**0.5), (width, outputs, 1.0))
    first, second, last = (
        Layer(orthogonal(k, i, j, scale), jnp.zeros(j)) for k, (i, j, scale) in zip(keys, sizes, strict=True)
    )
    return first, second, last
