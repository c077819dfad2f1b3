"""Several cores of one kind, each with its own hypothesis about the co-state (Appendix D)."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key, PyTree
from costate.policies.cores.base import (
    AbstractCore,
    AbstractFastCore,
    CoreConfig,
    Memory,
    feature_gradients,
    read_sequence,
)

Tree = TypeVar("Tree")


class EnsembleCore(AbstractFastCore):
    """h = (h_1, …, h_m), where h_i is the hidden state of the i-th core.

    All cores read the same features, and none sees another's state.
    """

    members: AbstractCore
    """One core whose arrays have the members as their first axis."""
    count: int = eqx.field(static=True)

    @property
    def hidden_size(self) -> int:
        return self.count * self._one.hidden_size

    @property
    def state_size(self) -> int:
        return self.count * self._one.state_size

    @property
    def _one(self) -> AbstractCore:
        """One member, by its shapes alone."""
        one: AbstractCore = jax.eval_shape(
            lambda members: jax.tree.map(lambda leaf: leaf[0], members), self.members
        )
        return one

    def unstacked(self) -> "EnsembleCore":
        return EnsembleCore(jax.vmap(lambda core: core.unstacked())(self.members), self.count)

    def step(self, feature: Float[Array, " F"], state: Float[Array, " C"]) -> Float[Array, " C"]:
        return self._each(
            lambda core, state: core.step(feature, state), state.reshape(self.count, -1)
        ).reshape(-1)

    def expose(self, state: Float[Array, "*N C"]) -> Float[Array, "*N H"]:
        exposed = self._each(lambda core, state: core.expose(state), split_members(state, self.count))
        return join_members(exposed)

    def fast_read(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        states = split_members(state, self.count)
        each = over_members(
            lambda core, state: read_sequence(core, features, state, is_first), self.members, states
        )
        hiddens, previous, final = (join_members(part) for part in (each.hiddens, each.previous, each.final))
        return Memory(features, hiddens, previous, final, jax.lax.stop_gradient(each))

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        return self.member_gradients(memory, cotangents).sum(-2)

    def member_gradients(self, memory: Memory, cotangents: Float[Array, "T B H"]) -> Float[Array, "T B M F"]:
        """Return (∂h_i/∂ỹ)ᵀ c_i of every member separately."""
        return jnp.moveaxis(
            over_members(feature_gradients, self.members, memory.tape, split_members(cotangents, self.count)),
            0,
            -2,
        )

    def _each(self, function: Callable[..., Array], *parts: Tree) -> Array:
        """Apply a function to every member and its part of each argument."""
        results: Array = jax.vmap(function)(self.members, *parts)
        return results


def over_members(function: Callable[..., Tree], *parts: PyTree) -> Tree:
    """Apply a function of whole sequences to every member.

    On a CPU members follow one another: the products of one sequence fill the processor there, and are slower
    as parts of a batch of products. Elsewhere all members run at once.
    """
    one_by_one = jax.default_backend() == "cpu"
    results: Tree = (
        jax.lax.map(lambda own: function(*own), parts) if one_by_one else jax.vmap(function)(*parts)
    )
    return results


def split_members(joined: Float[Array, "*N K"], count: int) -> Float[Array, "M *N L"]:
    """Split the last axis into members, and put the members first."""
    return jnp.moveaxis(joined.reshape(*joined.shape[:-1], count, -1), -2, 0)


def join_members(parts: Float[Array, "M *N L"]) -> Float[Array, "*N K"]:
    """Invert :func:`split_members`."""
    joined = jnp.moveaxis(parts, 0, -2)
    return joined.reshape(*joined.shape[:-2], -1)


def build_ensemble(
    config: CoreConfig, key: Key[Array, ""], count: int, feature_size: int, hidden_size: int
) -> EnsembleCore:
    """Return an ensemble of members with fresh weights, each drawn from its own key."""
    return EnsembleCore(
        jax.vmap(lambda key: config.build(key, feature_size, hidden_size))(jax.random.split(key, count)),
        count,
    )
