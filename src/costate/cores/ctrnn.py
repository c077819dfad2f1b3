"""Continuous-time recurrent network: leaky integration with a learnable rate per unit (Appendix E.1)."""

import dataclasses

import jax
import jax.numpy as jnp

from costate._types import Array, Bool, Float, Key
from costate.cores.base import CORES, AbstractFastCore, CoreConfig
from costate.initialisation import Initialisation, recurrent_matrix


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

    def fast_unroll(self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
        drive = features @ self.input_weights + self.bias[None, None]
        keep = 1.0 - is_first[..., None].astype(features.dtype)
        return _recur(self.recurrent_weights, jax.nn.sigmoid(self.log_alpha), drive, hidden, keep)


@jax.custom_vjp
def _recur(
    U: Float[Array, "H H"], alpha: Float[Array, " H"], drive: Float[Array, "T B H"], hidden: Float[Array, "B H"], keep: Float[Array, "T B 1"]
) -> Float[Array, "T B H"]:
    """The recurrence once the input product is known; its reverse pass is Eq. 4.1 with tanh stored and ∂L/∂U formed after the loop."""
    return _recur_forward(U, alpha, drive, hidden, keep)[0]


def _recur_forward(U: Array, alpha: Array, drive: Array, hidden: Array, keep: Array) -> tuple[Array, tuple[Array, ...]]:
    def advance(h: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        h = h * row[1]
        n = jnp.tanh(row[0] + h @ U)
        h = h + alpha[None] * (n - h)
        return h, (h, n)

    _, (hiddens, n) = jax.lax.scan(advance, hidden, (drive, keep))
    previous = jnp.concatenate([hidden[None], hiddens[:-1]]) * keep
    return hiddens, (U, alpha, previous, keep, n)


def _recur_reverse(tape: tuple[Array, ...], cotangents: Array) -> tuple[Array, Array, Array, Array, None]:
    U, alpha, previous, keep, n = tape
    to_n = alpha[None, None] * (1.0 - n * n)
    # The barrier keeps the transpose out of the loop, where a product with a transposed matrix costs twice as much.
    U_transposed = jax.lax.optimization_barrier(U.T)

    def retreat(delta: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        to_n, kept, cotangent = row
        delta = delta + cotangent
        d_n = delta * to_n
        return (delta * (1.0 - alpha)[None] + d_n @ U_transposed) * kept, (d_n, delta)

    d_hidden, (d_n, deltas) = jax.lax.scan(retreat, jnp.zeros_like(previous[0]), (to_n, keep, cotangents), reverse=True)
    width = U.shape[0]
    d_U = previous.reshape(-1, width).T @ d_n.reshape(-1, width)
    d_alpha = (deltas * (n - previous)).sum((0, 1))
    return d_U, d_alpha, d_n, d_hidden, None


_recur.defvjp(_recur_forward, _recur_reverse)


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
