"""Several cores of one kind side by side, each with a hypothesis of its own about the co-state (Appendix D)."""

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
    """h = (h_1, …, h_m), where h_i is the hidden state of the i-th core. All of them read the same features, and none sees another's state."""

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
        """The shapes of one member."""
        one: AbstractCore = jax.eval_shape(
            lambda members: jax.tree.map(lambda leaf: leaf[0], members), self.members
        )
        return one

    def apart(self) -> "EnsembleCore":
        return EnsembleCore(jax.vmap(lambda core: core.apart())(self.members), self.count)

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
        """(∂h_i/∂ỹ)ᵀ c_i of every member by itself."""
        return jnp.moveaxis(
            over_members(feature_gradients, self.members, memory.tape, split_members(cotangents, self.count)),
            0,
            -2,
        )

    def _each(self, function: Callable[..., Array], *parts: Tree) -> Array:
        """A function of every member and its part of something."""
        done: Array = jax.vmap(function)(self.members, *parts)
        return done


def over_members(function: Callable[..., Tree], *parts: PyTree) -> Tree:
    """A function of whole sequences for every member. On a CPU one after the other: there the products of one sequence fill the processor, and are
    slower as parts of a batch of products. Elsewhere side by side.
    """
    one_by_one = jax.default_backend() == "cpu"
    done: Tree = jax.lax.map(lambda own: function(*own), parts) if one_by_one else jax.vmap(function)(*parts)
    return done


def split_members(joined: Float[Array, "*N K"], count: int) -> Float[Array, "M *N L"]:
    """What belongs to each member, the members first."""
    return jnp.moveaxis(joined.reshape(*joined.shape[:-1], count, -1), -2, 0)


def join_members(parts: Float[Array, "M *N L"]) -> Float[Array, "*N K"]:
    """The inverse of :func:`split_members`."""
    together = jnp.moveaxis(parts, 0, -2)
    return together.reshape(*together.shape[:-2], -1)


def build_ensemble(
    config: CoreConfig, key: Key[Array, ""], count: int, feature_size: int, hidden_size: int
) -> EnsembleCore:
    """Members with fresh weights, each drawn by itself."""
    return EnsembleCore(
        jax.vmap(lambda key: config.build(key, feature_size, hidden_size))(jax.random.split(key, count)),
        count,
    )
