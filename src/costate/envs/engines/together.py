"""One simulator for all seeds: a step written for one seed that runs everything once when it is vmapped."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from costate._base.types import Array
from costate.envs.base import TimeStep

Step = Callable[..., tuple[Any, TimeStep]]
Tree = TypeVar("Tree")


def for_all_seeds(step_all: Step, seeds: int) -> Step:
    """Return ``step_all`` as one seed sees it.

    Vmapping the result over all seeds steps the simulator once, with the actions of each.
    """

    @jax.custom_batching.custom_vmap
    def step(state: Array, action: Array) -> tuple[Array, TimeStep]:
        # With one seed this is the simulator's step. With several seeds only its shapes matter: JAX asks for
        # them before it applies the rule below.
        state, timestep = step_all(state, jnp.tile(action, (seeds, 1)))
        return state, jax.tree.map(lambda array: array[: action.shape[0]], timestep)

    @step.def_vmap
    def step_together(size: int, is_batched: list[Any], state: Array, action: Array) -> tuple[Any, Any]:
        state, timestep = step_all(state, action.reshape(-1, action.shape[-1]))
        return (state, by_seed(timestep, size)), (False, jax.tree.map(lambda _: True, timestep))

    stepped: Step = step
    return stepped


def fold_seeds(step_all: Step) -> Step:
    """Make vmapping ``step_all`` over seeds enlarge its batch instead of adding an axis.

    A ``lax.cond`` inside then stays conditional, while plain vmap would compute both branches in every step.
    The first axis of all arguments must be the environments.
    """
    step = jax.custom_batching.custom_vmap(step_all)

    @step.def_vmap
    def step_together(size: int, is_batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        def folded(leaf: Array, has_seeds: bool) -> Array:
            every = leaf if has_seeds else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return every.reshape(size * every.shape[1], *every.shape[2:])

        stepped = by_seed(step_all(*jax.tree.map(folded, arguments, tuple(is_batched))), size)
        return stepped, jax.tree.map(lambda _: True, stepped)

    stepped: Step = step
    return stepped


def by_seed(tree: Tree, seeds: int) -> Tree:
    """Reshape values of all environments, such as a time step, so that the first axis is the seed."""
    parts: Tree = jax.tree.map(
        lambda array: array.reshape(seeds, array.shape[0] // seeds, *array.shape[1:]), tree
    )
    return parts
