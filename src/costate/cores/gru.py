"""Gated recurrent units, in the form of the paper's GRU equation and in the form most libraries ship."""

import dataclasses

import jax
import jax.numpy as jnp

from costate._types import Array, Bool, Float, Key
from costate.cores.base import CORES, AbstractCore, AbstractFastCore, CoreConfig
from costate.initialisation import Initialisation, recurrent_matrix, uniform

# Order of the three gates along the first axis of the weights.
RESET, UPDATE, CANDIDATE = 0, 1, 2


class GRU(AbstractFastCore):
    """The GRU whose reset gate acts on the memory before the recurrent product (Eq. 3.6).

    The update gate z keeps the old memory where it is 1, as in most libraries; Chung et al. 2014 call 1 − z what is z here.

    r = σ(W_r ỹ + U_r h + b_r),   z = σ(W_z ỹ + U_z h + b_z)
    n = tanh(W_n ỹ + U_n (r ⊙ h) + b_n),   h' = (1 − z) ⊙ n + z ⊙ h
    """

    input_weights: Float[Array, "3 F H"]
    recurrent_weights: Float[Array, "3 H H"]
    bias: Float[Array, "3 H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        W, U, b = self.input_weights, self.recurrent_weights, self.bias
        r = jax.nn.sigmoid(feature @ W[RESET] + hidden @ U[RESET] + b[RESET])
        z = jax.nn.sigmoid(feature @ W[UPDATE] + hidden @ U[UPDATE] + b[UPDATE])
        n = jnp.tanh(feature @ W[CANDIDATE] + (r * hidden) @ U[CANDIDATE] + b[CANDIDATE])
        return n + z * (hidden - n)

    def fast_unroll(self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
        W, b = self.input_weights, self.bias
        # Three arrays rather than one of width 3H: the scan then reads contiguous rows.
        drives = tuple(features @ W[gate] + b[gate][None, None] for gate in (RESET, UPDATE, CANDIDATE))
        keep = 1.0 - is_first[..., None].astype(features.dtype)
        return _recur(self.recurrent_weights, drives, hidden, keep)


Drives = tuple[Float[Array, "T B H"], Float[Array, "T B H"], Float[Array, "T B H"]]


@jax.custom_vjp
def _recur(U: Float[Array, "3 H H"], drives: Drives, hidden: Float[Array, "B H"], keep: Float[Array, "T B 1"]) -> Float[Array, "T B H"]:
    """The recurrence once the input products are known. Its reverse pass is Eq. 4.1 with the gates stored.

    Differentiating the scan automatically would accumulate ∂L/∂U inside the loop, one small product per step; here the loop carries only δ and
    ∂L/∂U is one large product afterwards.
    """
    return _recur_forward(U, drives, hidden, keep)[0]


def _recur_forward(U: Array, drives: Drives, hidden: Array, keep: Array) -> tuple[Array, tuple[Array, ...]]:
    # Taken apart outside of the loop, which would otherwise copy them in every step.
    U_r, U_z, U_n = jax.lax.optimization_barrier((U[RESET], U[UPDATE], U[CANDIDATE]))

    def advance(h: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        drive_r, drive_z, drive_n, kept = row
        h = h * kept
        r = jax.nn.sigmoid(drive_r + h @ U_r)
        z = jax.nn.sigmoid(drive_z + h @ U_z)
        n = jnp.tanh(drive_n + (r * h) @ U_n)
        h = n + z * (h - n)
        return h, (h, r, z, n)

    _, (hiddens, r, z, n) = jax.lax.scan(advance, hidden, (*drives, keep))
    previous = jnp.concatenate([hidden[None], hiddens[:-1]]) * keep
    return hiddens, (U, previous, keep, r, z, n)


def _recur_reverse(tape: tuple[Array, ...], cotangents: Array) -> tuple[Array, Drives, Array, None]:
    U, previous, keep, r, z, n = tape
    # What each gate's pre-activation does to h', element by element, for all steps at once.
    to_z = (previous - n) * z * (1.0 - z)
    to_n = (1.0 - z) * (1.0 - n * n)
    to_r = previous * r * (1.0 - r)
    # The barrier keeps the transposes out of the loop, where a product with a transposed matrix costs twice as much.
    U_r, U_z, U_n = jax.lax.optimization_barrier((U[RESET].T, U[UPDATE].T, U[CANDIDATE].T))

    def retreat(delta: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        to_r, to_z, to_n, r, z, kept, cotangent = row
        delta = delta + cotangent
        d_z, d_n = delta * to_z, delta * to_n
        d_gated = d_n @ U_n
        d_r = d_gated * to_r
        delta = delta * z + d_gated * r + d_z @ U_z + d_r @ U_r
        return delta * kept, (d_r, d_z, d_n)

    start = jnp.zeros_like(previous[0])
    d_hidden, drives = jax.lax.scan(retreat, start, (to_r, to_z, to_n, r, z, keep, cotangents), reverse=True)
    d_r, d_z, d_n = drives
    d_U = jnp.stack([_outer(previous, d_r), _outer(previous, d_z), _outer(r * previous, d_n)])
    return d_U, (d_r, d_z, d_n), d_hidden, None


def _outer(left: Float[Array, "T B H"], right: Float[Array, "T B K"]) -> Float[Array, "H K"]:
    """Σ over time and streams of the outer products: one matrix product."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


_recur.defvjp(_recur_forward, _recur_reverse)


class ResetAfterGRU(AbstractCore):
    """The GRU of PyTorch, Flax and Equinox, whose reset gate acts after the recurrent product; the authors' code uses it.

    n = tanh(W_n ỹ + b_n + r ⊙ (U_n h + c)),   the rest as in :class:`GRU`
    """

    input_weights: Float[Array, "3 F H"]
    recurrent_weights: Float[Array, "3 H H"]
    bias: Float[Array, "3 H"]
    candidate_bias: Float[Array, " H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        W, U, b = self.input_weights, self.recurrent_weights, self.bias
        r = jax.nn.sigmoid(feature @ W[RESET] + hidden @ U[RESET] + b[RESET])
        z = jax.nn.sigmoid(feature @ W[UPDATE] + hidden @ U[UPDATE] + b[UPDATE])
        n = jnp.tanh(feature @ W[CANDIDATE] + b[CANDIDATE] + r * (hidden @ U[CANDIDATE] + self.candidate_bias))
        return n + z * (hidden - n)


@CORES.register("gru")
@dataclasses.dataclass(frozen=True)
class GRUConfig(CoreConfig):
    """Gated recurrent unit as in the paper's text."""

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices of each gate."""

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> GRU:
        weights = _gate_matrices(key, self.initialisation, feature_size, hidden_size)
        return GRU(*weights, bias=jnp.zeros((3, hidden_size)))


@CORES.register("gru-reset-after")
@dataclasses.dataclass(frozen=True)
class ResetAfterGRUConfig(CoreConfig):
    """Gated recurrent unit as in most libraries and in the authors' code."""

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices of each gate; uniform draws the biases too."""

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> ResetAfterGRU:
        key_weights, key_bias = jax.random.split(key)
        weights = _gate_matrices(key_weights, self.initialisation, feature_size, hidden_size)
        biases = uniform(key_bias, 4, hidden_size, hidden_size) if self.initialisation == "uniform" else jnp.zeros((4, hidden_size))
        return ResetAfterGRU(*weights, bias=biases[:3], candidate_bias=biases[3])


def _gate_matrices(
    key: Key[Array, ""], kind: Initialisation, feature_size: int, hidden_size: int
) -> tuple[Float[Array, "3 F H"], Float[Array, "3 H H"]]:
    """Each gate's matrices drawn apart, so that each of them is orthogonal, not only their concatenation."""
    keys = jax.random.split(key, 6)
    inputs = jnp.stack([recurrent_matrix(k, kind, feature_size, hidden_size) for k in keys[:3]])
    recurrent = jnp.stack([recurrent_matrix(k, kind, hidden_size, hidden_size) for k in keys[3:]])
    return inputs, recurrent
