"""Continuous-time recurrent network: leaky integration with a learnable rate per unit (Appendix E.1)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores.base import (
    CORES,
    AbstractFastCore,
    CoreConfig,
    CoreFlops,
    Memory,
    as_rows,
    forget_at_start,
    previous_states,
    remember,
    sum_of_outer_products,
    sum_of_rows,
)
from costate.policies.initialisation import Initialisation, recurrent_matrix


class CTRNN(AbstractFastCore):
    """h' = (1 − α) ⊙ h + α ⊙ tanh(W_in ỹ + W_rec h + b),   α = σ(log_alpha)   (Eq. 3.5 and Appendix E.1)."""

    input_weights: Float[Array, "F H"]
    recurrent_weights: Float[Array, "H H"]
    bias: Float[Array, " H"]
    log_alpha: Float[Array, " H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        n = jnp.tanh(feature @ self.input_weights + hidden @ self.recurrent_weights + self.bias)
        return hidden + jax.nn.sigmoid(self.log_alpha) * (n - hidden)

    def fast_read(
        self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        weights = (self.input_weights, self.recurrent_weights, self.bias, jax.nn.sigmoid(self.log_alpha))
        hiddens, n = _read(weights, features, hidden, is_first)
        return remember(self, features, hiddens, hidden, is_first, n)

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Return (α ⊙ (1 − n²) ⊙ c) W_inᵀ at the stored n."""
        n = memory.tape
        delta = jax.nn.sigmoid(self.log_alpha)[None, None] * (1.0 - n * n) * cotangents
        return (as_rows(delta) @ self.input_weights.T).reshape(*n.shape[:2], -1)


Weights = tuple[Float[Array, "F H"], Float[Array, "H H"], Float[Array, " H"], Float[Array, " H"]]


@jax.custom_vjp
def _read(
    weights: Weights,
    features: Float[Array, "T B F"],
    hidden: Float[Array, "B H"],
    is_first: Bool[Array, "T B"],
) -> tuple[Float[Array, "T B H"], Float[Array, "T B H"]]:
    """Return the hidden states h and activations n of a sequence. The activations get no gradient.

    The reverse pass is Eq. 4.1 with n stored; all weight gradients are formed after the loop.
    """
    return _read_forward(weights, features, hidden, is_first)[0]


def _read_forward(
    weights: Weights, features: Array, hidden: Array, is_first: Array
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    W, U, b, alpha = weights
    drive = (as_rows(features) @ W + b[None]).reshape(*is_first.shape, b.shape[-1])

    def advance(h: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        h = forget_at_start(h, row[1])
        n = jnp.tanh(row[0] + h @ U)
        h = h + alpha[None] * (n - h)
        return h, (h, n)

    _, (hiddens, n) = jax.lax.scan(advance, hidden, (drive, is_first))
    return (hiddens, n), (weights, features, hidden, is_first, hiddens, n)


def _read_reverse(
    tape: tuple[Any, ...], cotangents: tuple[Array, Array]
) -> tuple[Weights, Array, Array, None]:
    (W, U, _, alpha), features, hidden, is_first, hiddens, n = tape
    # The barrier keeps the transpose out of the loop, where a product with a transposed matrix costs twice as
    # much.
    U_transposed = jax.lax.optimization_barrier(U.T)

    def retreat(delta: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        n, is_first, cotangent = row
        delta = delta + cotangent
        d_n = delta * alpha[None] * (1.0 - n * n)
        before = forget_at_start(delta * (1.0 - alpha)[None] + d_n @ U_transposed, is_first)
        return before, (d_n, delta)

    d_hidden, (d_n, deltas) = jax.lax.scan(
        retreat, jnp.zeros_like(hidden), (n, is_first, cotangents[0]), reverse=True
    )
    previous = previous_states(hiddens, hidden, is_first)
    d_alpha = sum_of_rows(deltas * (n - previous))
    d_weights = (
        sum_of_outer_products(features, d_n),
        sum_of_outer_products(previous, d_n),
        sum_of_rows(d_n),
        d_alpha,
    )
    return d_weights, (as_rows(d_n) @ W.T).reshape(features.shape), d_hidden, None


_read.defvjp(_read_forward, _read_reverse)


@CORES.register("ctrnn")
@dataclasses.dataclass(frozen=True)
class CTRNNConfig(CoreConfig):
    """Continuous-time recurrent network with a learnable leak per unit."""

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices."""

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> CTRNN:
        key_input, key_recurrent = jax.random.split(key)
        return CTRNN(
            recurrent_matrix(key_input, self.initialisation, feature_size, hidden_size),
            recurrent_matrix(key_recurrent, self.initialisation, hidden_size, hidden_size),
            bias=jnp.zeros(hidden_size),
            # σ(0) = 0.5: at first the memory moves half of the way in every step.
            log_alpha=jnp.zeros(hidden_size),
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(2.0 * square, square)
