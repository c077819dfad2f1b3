"""Cores that are given by one affine map of observation and memory, and elementwise functions.

    a = φ(W ỹ + U s_U + b),    s' = ψ(a, s)

s is the core's state, and s_U its first units, which the recurrent weights read. A core defines the weights,
φ and ψ. Reading a sequence and differentiating it is the same for all cores: the activations a are stored,
the backward loop carries only ∂L/∂s, and every weight's gradient is one large product after the loop.
"""

import abc
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float
from costate.policies.cores.base import (
    AbstractFastCore,
    Memory,
    as_rows,
    forget_at_start,
    previous_states,
    remember,
    sum_of_outer_products,
    sum_of_rows,
)


class Affine(NamedTuple):
    """The weights of W ỹ + U s_U + b, each transposed."""

    input: Float[Array, "F P"]
    recurrent: Float[Array, "R P"]
    """Reads the first R units of the state."""
    bias: Float[Array, " P"]


@dataclasses.dataclass(frozen=True)
class AbstractCell(abc.ABC):
    """The elementwise part of a core, without weights."""

    @abc.abstractmethod
    def activate(self, drive: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        """Return a = φ(drive)."""

    @abc.abstractmethod
    def slope(self, activations: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        """Return ∂φ/∂drive as a function of a, so that nothing is computed twice."""

    @abc.abstractmethod
    def combine(self, activations: Float[Array, "*N P"], state: Float[Array, "*N C"]) -> Float[Array, "*N C"]:
        """Return s' = ψ(a, s)."""


class AbstractAffineCore(AbstractFastCore):
    """A core given by an affine map and a cell."""

    @property
    @abc.abstractmethod
    def cell(self) -> AbstractCell:
        """φ and ψ."""

    @abc.abstractmethod
    def affine(self) -> Affine:
        """Return W, U and b."""

    def step(self, feature: Float[Array, " F"], state: Float[Array, " C"]) -> Float[Array, " C"]:
        W, U, b = self.affine()
        activations = self.cell.activate(feature @ W + state[: U.shape[0]] @ U + b)
        return self.cell.combine(activations, state)

    def fast_read(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        states, activations = _read(self.cell, self.affine(), features, state, is_first)
        return remember(self, features, states, state, is_first, activations)

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Differentiate ψ and φ at the stored activations, then multiply by Wᵀ."""
        activations = memory.tape
        pull_back = jax.vjp(lambda a: self.expose(self.cell.combine(a, memory.previous)), activations)[1]
        d_drive = pull_back(cotangents)[0] * self.cell.slope(activations)
        return (as_rows(d_drive) @ self.affine().input.T).reshape(*cotangents.shape[:2], -1)


class AbstractPairCore(AbstractAffineCore):
    """An affine core whose state is a pair of equal widths, the first of which plays the co-state."""

    @property
    def state_size(self) -> int:
        return 2 * self.hidden_size

    def expose(self, state: Float[Array, "*N C"]) -> Float[Array, "*N H"]:
        return state[..., : self.hidden_size]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read(
    cell: AbstractCell,
    affine: Affine,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> tuple[Float[Array, "T B C"], Float[Array, "T B P"]]:
    """Return the states and activations of a sequence. The activations get no gradient."""
    return _read_forward(cell, affine, features, state, is_first)[0]


def _read_forward(
    cell: AbstractCell, affine: Affine, features: Array, state: Array, is_first: Array
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    W, U, b = affine
    drives = (as_rows(features) @ W + b[None]).reshape(*is_first.shape, -1)

    def advance(s: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        s = forget_at_start(s, row[1])
        a = cell.activate(row[0] + s[:, : U.shape[0]] @ U)
        s = cell.combine(a, s)
        return s, (s, a)

    _, (states, activations) = jax.lax.scan(advance, state, (drives, is_first))
    return (states, activations), (affine, features, state, is_first, states, activations)


def _read_reverse(
    cell: AbstractCell, tape: tuple[Any, ...], cotangents: tuple[Array, Array]
) -> tuple[Affine, Array, Array, None]:
    (W, U, _), features, state, is_first, states, activations = tape
    previous = previous_states(states, state, is_first)
    recalled = U.shape[0]
    # The barrier keeps the transpose out of the loop, where a product with a transposed matrix costs twice as
    # much.
    U_transposed = jax.lax.optimization_barrier(U.T)

    def retreat(delta: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        a, s, is_first, cotangent = row
        d_a, d_s = jax.vjp(cell.combine, a, s)[1](delta + cotangent)
        d_drive = d_a * cell.slope(a)
        d_s = d_s.at[:, :recalled].add(d_drive @ U_transposed)
        return forget_at_start(d_s, is_first), d_drive

    d_state, d_drives = jax.lax.scan(
        retreat, jnp.zeros_like(state), (activations, previous, is_first, cotangents[0]), reverse=True
    )
    d_affine = Affine(
        sum_of_outer_products(features, d_drives),
        sum_of_outer_products(previous[..., :recalled], d_drives),
        sum_of_rows(d_drives),
    )
    return d_affine, (as_rows(d_drives) @ W.T).reshape(features.shape), d_state, None


_read.defvjp(_read_forward, _read_reverse)


def side_by_side(matrices: Float[Array, "K R H"]) -> Float[Array, "R P"]:
    """Return [M_1 … M_K]: matrices with the same input, as one matrix."""
    return jnp.concatenate(list(matrices), axis=-1)
