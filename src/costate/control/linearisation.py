"""A trajectory's control steps to first order, and the two co-states that follow from them: with controls held, and with a policy that reacts.

Costs are minimised here and ℓ = −r, so a critic's gradient is −λ.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Float, PyTree
from costate.control.adjoint import costate_recursion


class Linearisation(NamedTuple):
    """Control steps x_{t+1} = F(x_t, u_t) with cost ℓ(x_t, u_t) = −r_t and observation y_{t+1}, in float64."""

    state_jacobians: Float[np.ndarray, "T X X"]
    """A_t = ∂x_{t+1}/∂x_t with the control held."""
    control_jacobians: Float[np.ndarray, "T X U"]
    """B_t = ∂x_{t+1}/∂u_t."""
    cost_gradients: Float[np.ndarray, "T X"]
    """∂ℓ_t/∂x_t. A reward belongs to the state after its step, so for most tasks this is −A_tᵀ ∂r/∂x_{t+1}."""
    control_cost_gradients: Float[np.ndarray, "T U"]
    """∂ℓ_t/∂u_t, through the step and, where effort is punished, directly."""
    observation_jacobians: Float[np.ndarray, "T O X"]
    """∂y_t/∂x_t, of the whole observation, also where the policy was blind."""
    next_observation_by_state: Float[np.ndarray, "T O X"]
    """∂y_{t+1}/∂x_t with the control held."""
    next_observation_by_control: Float[np.ndarray, "T O U"]
    """∂y_{t+1}/∂u_t."""


class Linearised(NamedTuple):
    """A trajectory's steps to first order in two versions; where they differ, a kink or a jump is too near for a derivative to be found."""

    best: Linearisation
    other: Linearisation
    """The same object where derivatives are exact."""


Reaction = Callable[[PyTree, Float[Array, " O"], PyTree], tuple[Float[Array, " U"], PyTree]]
"""u_t and the memory c_t from what is particular to the step (such as whether the sensors worked), y_t and the memory c_{t−1}."""


Back = Callable[[PyTree, PyTree], tuple[PyTree, Float[Array, " X"]]]
"""What the joint co-state after a step and the step itself make of the joint co-state before it, and λ_t."""


def open_loop_costates(
    steps: Linearisation, discount: float, horizon: int | None = None
) -> Float[np.ndarray, "T X"]:
    """The co-state of Pontryagin's principle: the gradient by x_t of the cost to come if the later controls stay what they are.

        λ_t = ∂ℓ_t/∂x_t + γ A_tᵀ λ_{t+1},    λ_T = 0

    With a ``horizon`` only the costs of so many steps from t on are counted.
    """

    def back(
        later: Float[Array, " X"], row: tuple[Array, Array]
    ) -> tuple[Float[Array, " X"], Float[Array, " X"]]:
        costate = costate_recursion(row[0][None], row[1][None], later, discount)[0]
        return costate, costate

    with jax.enable_x64(True):
        rows = jnp.asarray(steps.state_jacobians), jnp.asarray(steps.cost_gradients)
        return np.asarray(_run_back(back, jnp.zeros(rows[1].shape[1]), rows, horizon))


def closed_loop_costates(
    steps: Linearisation,
    react: Reaction,
    particulars: PyTree,
    observations: Float[np.ndarray, "T O"],
    memories: PyTree,
    discount: float,
    horizon: int | None = None,
) -> Float[np.ndarray, "T X"]:
    """The gradient of the value: by x_t, of the cost to come if the policy reacts to what it then sees and remembers.

    The policy makes the trajectory one of the joint state (x_t, y_t, c_{t−1}) of robot, sensors and memory, with u_t and c_t from
    (u_t, c_t) = π(y_t, c_{t−1}). Its co-state (p, q, m) runs backwards as

        v_t = ∂ℓ_t/∂u_t + γ (B_tᵀ p_{t+1} + (∂y_{t+1}/∂u_t)ᵀ q_{t+1})
        p_t = ∂ℓ_t/∂x_t + γ (A_tᵀ p_{t+1} + (∂y_{t+1}/∂x_t)ᵀ q_{t+1})
        (q_t, m_t) = (∂π/∂(y_t, c_{t−1}))ᵀ (v_t, γ m_{t+1})

    and what x_t does through y_t is added at the end: λ_t = p_t + (∂y_t/∂x_t)ᵀ q_t.
    """

    def back(
        later: tuple[Array, Array, PyTree], row: tuple[Linearisation, PyTree, Array, PyTree]
    ) -> tuple[tuple[Array, Array, PyTree], Array]:
        by_state, by_observation, by_memory = jax.tree.map(lambda costate: discount * costate, later)
        step, particular, observation, memory = row
        by_control = (
            step.control_cost_gradients
            + step.control_jacobians.T @ by_state
            + step.next_observation_by_control.T @ by_observation
        )
        by_state = (
            step.cost_gradients
            + step.state_jacobians.T @ by_state
            + step.next_observation_by_state.T @ by_observation
        )
        _, pull_back = jax.vjp(functools.partial(react, particular), observation, memory)
        by_observation, by_memory = pull_back((by_control, by_memory))
        return (by_state, by_observation, by_memory), by_state + step.observation_jacobians.T @ by_observation

    with jax.enable_x64(True):
        rows = jax.tree.map(jnp.asarray, (steps, particulars, observations, memories))
        final = jax.tree.map(
            lambda array: jnp.zeros(array.shape[1:]), (rows[0].cost_gradients, rows[2], rows[3])
        )
        return np.asarray(_run_back(back, final, rows, horizon))


def _run_back(back: Back, final: PyTree, rows: PyTree, horizon: int | None) -> Float[Array, "T X"]:
    """λ of all times: from the end in one pass, or each from ``horizon`` steps after it, all of them side by side."""

    # One program: the operations of a single sweep, each compiled for itself, take longer than all the rest.
    @jax.jit
    def run(final: PyTree, rows: PyTree) -> Float[Array, "T X"]:
        if horizon is None:
            return jax.lax.scan(back, final, rows, reverse=True)[1]

        def shifted(costates: PyTree) -> PyTree:
            return jax.tree.map(
                lambda costate, end: jnp.concatenate([costate[1:], end[None]]), costates, final
            )

        times = jax.tree.leaves(rows)[0].shape[0]
        empty = jax.tree.map(lambda end: jnp.broadcast_to(end, (times, *end.shape)), final)
        sweep = jax.vmap(back)
        costates = jax.lax.fori_loop(
            0, horizon - 1, lambda _, costates: sweep(shifted(costates), rows)[0], empty
        )
        return sweep(shifted(costates), rows)[1]

    costates: Float[Array, "T X"] = run(final, rows)
    return costates


def disagreement(one: Float[np.ndarray, "T *S"], other: Float[np.ndarray, "T *S"]) -> Float[np.ndarray, " T"]:
    """|a_t − b_t| / |a_t| of every row, in the Euclidean norm over all of its numbers; 0 where both are zero."""
    size, gap = (np.linalg.norm(rows.reshape(len(rows), -1), axis=1) for rows in (one, one - other))
    return np.asarray(np.divide(gap, size, out=np.where(gap > 0.0, np.inf, 0.0), where=size > 0.0))


def step_disagreement(steps: Linearised) -> Float[np.ndarray, " T"]:
    """The largest disagreement of any derivative of each step."""
    return np.asarray(
        np.max([disagreement(one, other) for one, other in zip(steps.best, steps.other, strict=True)], axis=0)
    )
