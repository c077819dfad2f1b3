"""A core without memory, the baseline that shows how much memory contributes."""

import dataclasses

import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores.base import (
    CORES,
    AbstractFastCore,
    CoreConfig,
    CoreFlops,
    Memory,
    as_rows,
    remember,
)
from costate.policies.initialisation import Initialisation, recurrent_matrix


class Memoryless(AbstractFastCore):
    """h_t = tanh(W_in ỹ_t + b), whatever came before."""

    input_weights: Float[Array, "F H"]
    bias: Float[Array, " H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        return jnp.tanh(feature @ self.input_weights + self.bias)

    def fast_read(
        self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        # All steps at once, because no step depends on another.
        hiddens = jnp.tanh(as_rows(features) @ self.input_weights + self.bias[None]).reshape(
            *is_first.shape, -1
        )
        return remember(self, features, hiddens, hidden, is_first, hiddens)

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Return ((1 − h²) ⊙ c) W_inᵀ."""
        h = memory.tape
        return (as_rows((1.0 - h * h) * cotangents) @ self.input_weights.T).reshape(*h.shape[:2], -1)


@CORES.register("memoryless")
@dataclasses.dataclass(frozen=True)
class MemorylessConfig(CoreConfig):
    """A layer without memory: what a policy can do with the present observation alone."""

    initialisation: Initialisation = "orthogonal"
    """Initial input matrix."""

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> Memoryless:
        return Memoryless(
            recurrent_matrix(key, self.initialisation, feature_size, hidden_size), jnp.zeros(hidden_size)
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(square, square)
