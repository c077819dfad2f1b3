"""Gated recurrent units, in the form of the paper's equation and in that of most libraries."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores.base import (
    CORES,
    AbstractCore,
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
from costate.policies.cores.native import gru_loops
from costate.policies.initialisation import Initialisation, recurrent_matrices, uniform

# Order of the three gates along the first axis of the weights.
RESET, UPDATE, CANDIDATE = 0, 1, 2
Matrices = Float[Array, "3 _ H"] | tuple[Float[Array, "_ H"], ...]
"""A matrix for each gate, in one array or each in its own."""


class GRU(AbstractFastCore):
    """The GRU whose reset gate acts on the memory before the recurrent product (Eq. 3.6).

    The update gate z keeps the old memory where it is 1, as in most libraries. Chung et al. 2014 call 1 − z
    what is z here.

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
        return _next_hidden(self.input_weights, self.recurrent_weights, self.bias, feature, hidden)

    def unstacked(self) -> "UnstackedGRU":
        W, U = jax.lax.optimization_barrier((tuple(self.input_weights), tuple(self.recurrent_weights)))
        return UnstackedGRU(W, U, self.bias)

    def fast_read(
        self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        hiddens, tape = _read(
            (self.input_weights, self.recurrent_weights, self.bias), features, hidden, is_first
        )
        return remember(self, features, hiddens, hidden, is_first, tape)

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Return δ_z W_zᵀ + δ_n W_nᵀ + δ_r W_rᵀ at the stored gates, so that nothing is computed twice."""
        h, r, z, n = memory.tape
        W, U = self.input_weights, self.recurrent_weights
        delta_z, delta_n = _into_update(h, z, n) * cotangents, _into_candidate(z, n) * cotangents
        delta_r = (as_rows(delta_n) @ U[CANDIDATE].T).reshape(h.shape) * _into_reset(h, r)
        gradients = (
            as_rows(delta_r) @ W[RESET].T + as_rows(delta_z) @ W[UPDATE].T + as_rows(delta_n) @ W[CANDIDATE].T
        )
        return gradients.reshape(*h.shape[:2], -1)


class UnstackedGRU(AbstractCore):
    """The GRU with the matrix of each gate in an array of its own."""

    input_weights: tuple[Float[Array, "F H"], ...]
    recurrent_weights: tuple[Float[Array, "H H"], ...]
    bias: Float[Array, "3 H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        return _next_hidden(self.input_weights, self.recurrent_weights, self.bias, feature, hidden)


def _next_hidden(
    W: Matrices, U: Matrices, b: Float[Array, "3 H"], feature: Float[Array, " F"], h: Float[Array, " H"]
) -> Float[Array, " H"]:
    r = jax.nn.sigmoid(feature @ W[RESET] + h @ U[RESET] + b[RESET])
    z = jax.nn.sigmoid(feature @ W[UPDATE] + h @ U[UPDATE] + b[UPDATE])
    n = jnp.tanh(feature @ W[CANDIDATE] + (r * h) @ U[CANDIDATE] + b[CANDIDATE])
    return n + z * (h - n)


Weights = tuple[Float[Array, "3 F H"], Float[Array, "3 H H"], Float[Array, "3 H"]]
Gates = tuple[Float[Array, "T B H"], Float[Array, "T B H"], Float[Array, "T B H"]]
Tape = tuple[Float[Array, "T B H"], Float[Array, "T B H"], Float[Array, "T B H"], Float[Array, "T B H"]]
"""The hidden state before each step, and its three gates."""


def _into_reset(h: Float[Array, "*S H"], r: Float[Array, "*S H"]) -> Float[Array, "*S H"]:
    """Return ∂(r ⊙ h) by the reset gate's pre-activation."""
    return h * r * (1.0 - r)


def _into_update(
    h: Float[Array, "*S H"], z: Float[Array, "*S H"], n: Float[Array, "*S H"]
) -> Float[Array, "*S H"]:
    """Return ∂h' by the update gate's pre-activation."""
    return (h - n) * z * (1.0 - z)


def _into_candidate(z: Float[Array, "*S H"], n: Float[Array, "*S H"]) -> Float[Array, "*S H"]:
    """Return ∂h' by the candidate's pre-activation."""
    return (1.0 - z) * (1.0 - n * n)


@jax.custom_vjp
def _read(
    weights: Weights,
    features: Float[Array, "T B F"],
    hidden: Float[Array, "B H"],
    is_first: Bool[Array, "T B"],
) -> tuple[Float[Array, "T B H"], Tape]:
    """Return the hidden states and the tape of a sequence. The tape gets no gradient.

    The reverse pass is Eq. 4.1 with the tape stored. Differentiating the scan automatically would accumulate
    ∂L/∂U inside the loop, one small product per step. Here the loop carries only δ, and every weight's
    gradient is one large product after the loop.
    """
    return _read_forward(weights, features, hidden, is_first)[0]


def _read_forward(
    weights: Weights, features: Array, hidden: Array, is_first: Array
) -> tuple[tuple[Array, Tape], tuple[Any, ...]]:
    W, U, b = weights
    shape = (*is_first.shape, b.shape[-1])
    # Three arrays rather than one of width 3H: the scan then reads contiguous rows.
    drive_r, drive_z, drive_n = (
        (as_rows(features) @ W[gate] + b[gate][None]).reshape(shape) for gate in (RESET, UPDATE, CANDIDATE)
    )
    hiddens, previous, r, z, n = _loop((drive_r, drive_z, drive_n), U, hidden, is_first)
    return (hiddens, (previous, r, z, n)), (weights, features, is_first, previous, r, z, n)


def _loop(
    drives: Gates, U: Array, hidden: Array, is_first: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return h after and before every step, r, z and n: in C on a CPU if available, else by a scan."""
    if not gru_loops.serves(is_first, *drives, U, hidden):
        return _scan(drives, U, hidden, is_first)
    looped: tuple[Array, Array, Array, Array, Array] = _chosen(gru_loops.read, _scan)(
        drives, U, hidden, is_first
    )
    return looped


def _chosen(in_c: Callable[..., Any], by_xla: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in C on a CPU and by XLA elsewhere.

    Its derivatives, which only second derivatives of a loss need, are XLA's.
    """
    choose = jax.custom_jvp(
        lambda *arguments: jax.lax.platform_dependent(*arguments, cpu=in_c, default=by_xla)
    )
    choose.defjvp(lambda primals, tangents: jax.jvp(by_xla, primals, tangents))
    return choose


def _scan(
    drives: Gates, U: Array, hidden: Array, is_first: Array
) -> tuple[Array, Array, Array, Array, Array]:
    # Unstacked outside the loop, which would otherwise copy them in every step.
    U_r, U_z, U_n = jax.lax.optimization_barrier((U[RESET], U[UPDATE], U[CANDIDATE]))

    def advance(h: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        drive_r, drive_z, drive_n, is_first = row
        h = forget_at_start(h, is_first)
        r = jax.nn.sigmoid(drive_r + h @ U_r)
        z = jax.nn.sigmoid(drive_z + h @ U_z)
        n = jnp.tanh(drive_n + (r * h) @ U_n)
        h = n + z * (h - n)
        return h, (h, r, z, n)

    _, (hiddens, r, z, n) = jax.lax.scan(advance, hidden, (*drives, is_first))
    return hiddens, previous_states(hiddens, hidden, is_first), r, z, n


def _reverse_loop(
    previous: Array, gates: Gates, cotangents: Array, U: Array, is_first: Array
) -> tuple[Gates, Array]:
    """Return δ of the three gates before their non-linearities, and of the first state; see :func:`_loop`."""
    if not gru_loops.serves(is_first, previous, *gates, cotangents, U):
        return _reverse_scan(previous, gates, cotangents, U, is_first)
    looped: tuple[Gates, Array] = _chosen(gru_loops.retrace, _reverse_scan)(
        previous, gates, cotangents, U, is_first
    )
    return looped


def _reverse_scan(
    previous: Array, gates: Gates, cotangents: Array, U: Array, is_first: Array
) -> tuple[Gates, Array]:
    # The barrier keeps the transposes out of the loop, where a product with a transposed matrix costs twice
    # as much.
    U_r, U_z, U_n = jax.lax.optimization_barrier((U[RESET].T, U[UPDATE].T, U[CANDIDATE].T))

    def retreat(delta: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        h, r, z, n, is_first, cotangent = row
        delta = delta + cotangent
        # Derivatives of the gates are formed here, in cache, and not for all steps beforehand.
        d_z, d_n = delta * _into_update(h, z, n), delta * _into_candidate(z, n)
        d_gated = d_n @ U_n
        d_r = d_gated * _into_reset(h, r)
        delta = delta * z + d_gated * r + d_z @ U_z + d_r @ U_r
        return forget_at_start(delta, is_first), (d_r, d_z, d_n)

    d_hidden, (d_r, d_z, d_n) = jax.lax.scan(
        retreat, jnp.zeros_like(previous[0]), (previous, *gates, is_first, cotangents), reverse=True
    )
    return (d_r, d_z, d_n), d_hidden


def _read_reverse(
    tape: tuple[Any, ...], cotangents: tuple[Array, Tape]
) -> tuple[Weights, Array, Array, None]:
    (W, U, _), features, is_first, previous, r, z, n = tape
    deltas, d_hidden = _reverse_loop(previous, (r, z, n), cotangents[0], U, is_first)
    d_r, d_z, d_n = deltas
    d_weights = _gradients(is_first, features, previous, r, *deltas)
    d_features = as_rows(d_r) @ W[RESET].T + as_rows(d_z) @ W[UPDATE].T + as_rows(d_n) @ W[CANDIDATE].T
    return d_weights, d_features.reshape(features.shape), d_hidden, None


def _gradients(is_first: Array, features: Array, previous: Array, r: Array, *deltas: Array) -> Weights:
    """Return the gradients of weights and biases, each by one large product after the loop.

    They are computed in C, as in :func:`_loop`, if there are enough rows.
    """
    if not gru_loops.sums(is_first, features, previous, r, *deltas):
        return _gradients_by_products(features, previous, r, *deltas)
    summed: Weights = _chosen(gru_loops.gradients, _gradients_by_products)(features, previous, r, *deltas)
    return summed


def _gradients_by_products(features: Array, previous: Array, r: Array, *deltas: Array) -> Weights:
    remembered = (previous, previous, r * previous)
    d_W = jnp.stack([sum_of_outer_products(features, delta) for delta in deltas])
    d_U = jnp.stack([sum_of_outer_products(*pair) for pair in zip(remembered, deltas, strict=True)])
    return d_W, d_U, jnp.stack([sum_of_rows(delta) for delta in deltas])


_read.defvjp(_read_forward, _read_reverse)


class ResetAfterGRU(AbstractCore):
    """The GRU of PyTorch, Flax and Equinox, whose reset gate acts after the recurrent product.

    The authors' code uses it.

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
        n = jnp.tanh(
            feature @ W[CANDIDATE] + b[CANDIDATE] + r * (hidden @ U[CANDIDATE] + self.candidate_bias)
        )
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

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(6.0 * square, 4.0 * square)


@CORES.register("gru-reset-after")
@dataclasses.dataclass(frozen=True)
class ResetAfterGRUConfig(CoreConfig):
    """Gated recurrent unit as in most libraries and in the authors' code."""

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices of each gate; uniform draws the biases too."""

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> ResetAfterGRU:
        key_weights, key_bias = jax.random.split(key)
        weights = _gate_matrices(key_weights, self.initialisation, feature_size, hidden_size)
        biases = (
            uniform(key_bias, 4, hidden_size, hidden_size)
            if self.initialisation == "uniform"
            else jnp.zeros((4, hidden_size))
        )
        return ResetAfterGRU(*weights, bias=biases[:3], candidate_bias=biases[3])

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(6.0 * square, 3.0 * square)


def _gate_matrices(
    key: Key[Array, ""], kind: Initialisation, feature_size: int, hidden_size: int
) -> tuple[Float[Array, "3 F H"], Float[Array, "3 H H"]]:
    keys = jax.random.split(key, 6)
    return recurrent_matrices(keys[:3], kind, feature_size, hidden_size), recurrent_matrices(
        keys[3:], kind, hidden_size, hidden_size
    )
