"""One simulator for all seeds: a step that is written for one seed, and steps everything once where it is vmapped over them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from costate._types import Array
from costate.envs.base import TimeStep

Step = Callable[..., tuple[Any, TimeStep]]


def for_all_seeds(step_all: Step, seeds: int) -> Step:
    """``step_all`` as seen by one seed, such that vmapping it over all of them steps the simulator once, with the actions of each."""

    @jax.custom_batching.custom_vmap
    def step(state: Array, action: Array) -> tuple[Array, TimeStep]:
        # With one seed this is the simulator's step. With several only its shapes are used: JAX asks for them before it applies the rule below.
        state, timestep = step_all(state, jnp.tile(action, (seeds, 1)))
        return state, jax.tree.map(lambda array: array[: action.shape[0]], timestep)

    @step.def_vmap
    def step_together(size: int, is_batched: list[Any], state: Array, action: Array) -> tuple[Any, Any]:
        state, timestep = step_all(state, action.reshape(-1, action.shape[-1]))
        return (state, by_seed(timestep, size)), (False, jax.tree.map(lambda _: True, timestep))

    stepped: Step = step
    return stepped


def by_seed(timestep: TimeStep, seeds: int) -> TimeStep:
    """The time step of all seeds' environments with the seeds as its first axis."""
    parts: TimeStep = jax.tree.map(lambda array: array.reshape(seeds, -1, *array.shape[1:]), timestep)
    return parts
