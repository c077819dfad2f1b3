"""First-order model of a trajectory's control steps, and its open-loop and closed-loop co-states.

The open loop holds later controls fixed; the closed loop lets the policy react.
Costs are minimised here with ℓ = −r, so a critic's gradient is −λ.
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
    """Derivatives of control steps with dynamics x_{t+1} = F(x_t, u_t), in float64.

    The cost is ℓ(x_t, u_t) = −r_t and the observation is y_{t+1}.
    """

    state_jacobians: Float[np.ndarray, "T X X"]
    """A_t = ∂x_{t+1}/∂x_t with the control held."""
    control_jacobians: Float[np.ndarray, "T X U"]
    """B_t = ∂x_{t+1}/∂u_t."""
    cost_gradients: Float[np.ndarray, "T X"]
    """∂ℓ_t/∂x_t. The reward belongs to the state after a step, so mostly this is −A_tᵀ ∂r/∂x_{t+1}."""
    control_cost_gradients: Float[np.ndarray, "T U"]
    """∂ℓ_t/∂u_t, through the step and, if the reward penalises effort, directly."""
    observation_jacobians: Float[np.ndarray, "T O X"]
    """∂y_t/∂x_t of the whole observation, including what a sensor blackout hid from the policy."""
    next_observation_by_state: Float[np.ndarray, "T O X"]
    """∂y_{t+1}/∂x_t with the control held."""
    next_observation_by_control: Float[np.ndarray, "T O U"]
    """∂y_{t+1}/∂u_t."""


class Linearised(NamedTuple):
    """Two estimates of a trajectory's derivatives.

    Where they differ, a kink or a jump is too near for a derivative to be found.
    """

    best: Linearisation
    other: Linearisation
    """The same object as the other estimate where derivatives are exact."""


Reaction = Callable[[PyTree, Float[Array, " O"], PyTree], tuple[Float[Array, " U"], PyTree]]
"""Maps step-specific inputs, y_t and the memory c_{t−1} to u_t and the memory c_t.

Step-specific inputs are, for example, which sensors worked.
"""


Back = Callable[[PyTree, PyTree], tuple[PyTree, Float[Array, " X"]]]
"""Maps the joint co-state after a step, and the step, to the joint co-state before it and λ_t."""


def open_loop_costates(
    steps: Linearisation, discount: float, horizon: int | None = None
) -> Float[np.ndarray, "T X"]:
    """Return Pontryagin's co-state: the gradient of the future cost by x_t with later controls fixed.

        λ_t = ∂ℓ_t/∂x_t + γ A_tᵀ λ_{t+1},    λ_T = 0

    If ``horizon`` is given, only the costs of that many steps from t on count.
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
    """Return the gradient of the value: of the future cost by x_t when the policy reacts to what it observes.

    The policy turns the trajectory into one of the joint state (x_t, y_t, c_{t−1}) of robot, sensors and
    memory, with (u_t, c_t) = π(y_t, c_{t−1}). Its co-state (p, q, m) runs backwards as

        v_t = ∂ℓ_t/∂u_t + γ (B_tᵀ p_{t+1} + (∂y_{t+1}/∂u_t)ᵀ q_{t+1})
        p_t = ∂ℓ_t/∂x_t + γ (A_tᵀ p_{t+1} + (∂y_{t+1}/∂x_t)ᵀ q_{t+1})
        (q_t, m_t) = (∂π/∂(y_t, c_{t−1}))ᵀ (v_t, γ m_{t+1})

    and the effect of x_t through y_t is added at the end: λ_t = p_t + (∂y_t/∂x_t)ᵀ q_t.
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
    """Return λ at all times: from the end in one pass, or for each t from ``horizon`` steps later.

    In the second case all times are processed in parallel.
    """

    # Compiled as one program: compiling the operations one by one would dominate the run time.
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
    """Return |a_t − b_t| / |a_t| of every row, in the Euclidean norm, or 0 if both are zero."""
    size, gap = (np.linalg.norm(rows.reshape(len(rows), -1), axis=1) for rows in (one, one - other))
    return np.asarray(np.divide(gap, size, out=np.where(gap > 0.0, np.inf, 0.0), where=size > 0.0))


def step_disagreement(steps: Linearised) -> Float[np.ndarray, " T"]:
    """Return the largest disagreement between the two estimates of any derivative of each step."""
    return np.asarray(
        np.max([disagreement(one, other) for one, other in zip(steps.best, steps.other, strict=True)], axis=0)
    )
