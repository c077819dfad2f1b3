"""Cost of a control sequence in discrete time, and its co-states by one backward pass.

    J = Σ_t γᵗ ℓ(x_t, u_t) + γᵀ Φ(x_T),    x_{t+1} = F(x_t, u_t)

The co-state λ_t = ∂J_t/∂x_t is the gradient of the cost from t on, with later controls held fixed.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float
from costate.control.problem import Control, ControlProblem, State


class SampledProblem(eqx.Module):
    """A control problem in discrete time.

    All functions take one state and one control, and JAX can trace them.
    """

    transition: Callable[[State, Control], State]
    """F(x, u)."""
    stage_cost: Callable[[State, Control], Float[Array, ""]]
    """ℓ(x, u), over the whole step."""
    terminal_cost: Callable[[State], Float[Array, ""]]
    """Φ(x)."""
    discount: float = 1.0
    """γ."""


def sampled(problem: ControlProblem, step: Float[Array, ""]) -> SampledProblem:
    """Return the problem with the control held constant over each step.

    The classical Runge-Kutta rule integrates both motion and cost.
    """
    return SampledProblem(
        lambda state, control: runge_kutta_step(problem, state, control, step)[0],
        lambda state, control: runge_kutta_step(problem, state, control, step)[1],
        problem.terminal_cost,
    )


def rollout(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, "T+1 X"]:
    """Return the states x_0 … x_T that follow from a sequence of controls."""

    def advance(state: State, control: Control) -> tuple[State, State]:
        after = problem.transition(state, control)
        return after, after

    _, states = jax.lax.scan(advance, initial_state, controls)
    return jnp.concatenate([initial_state[None], states])


def rollout_cost(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, ""]:
    """Return the cost J of a sequence of controls."""
    states = rollout(problem, initial_state, controls)
    discounts = problem.discount ** jnp.arange(len(controls) + 1, dtype=states.dtype)
    return discounts[:-1] @ jax.vmap(problem.stage_cost)(states[:-1], controls) + discounts[
        -1
    ] * problem.terminal_cost(states[-1])


def rollout_costates(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, "T+1 X"]:
    """Return λ_0 … λ_T along the rollout, with λ_T = ∇Φ(x_T)."""
    states = rollout(problem, initial_state, controls)
    jacobians = jax.vmap(jax.jacobian(problem.transition))(states[:-1], controls)
    cost_gradients = jax.vmap(jax.grad(problem.stage_cost))(states[:-1], controls)
    final = jax.grad(problem.terminal_cost)(states[-1])
    return jnp.concatenate(
        [costate_recursion(jacobians, cost_gradients, final, problem.discount), final[None]]
    )


def control_gradients(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, "T U"]:
    """Return the gradient of the cost by each control.

        ∂J/∂u_t = γᵗ (∂ℓ/∂u_t + γ B_tᵀ λ_{t+1}),

    which is γᵗ times the derivative of the Hamiltonian by the control.
    """
    states, costates = (
        rollout(problem, initial_state, controls),
        rollout_costates(problem, initial_state, controls),
    )
    influences = jax.vmap(jax.jacobian(problem.transition, argnums=1))(states[:-1], controls)
    direct: Float[Array, "T U"] = jax.vmap(jax.grad(problem.stage_cost, argnums=1))(states[:-1], controls)
    slopes = direct + problem.discount * jnp.einsum("txu,tx->tu", influences, costates[1:])
    return slopes * (problem.discount ** jnp.arange(len(controls), dtype=slopes.dtype))[:, None]


def costate_recursion(
    jacobians: Float[Array, "T X X"],
    cost_gradients: Float[Array, "T X"],
    final: Float[Array, " X"],
    discount: float,
) -> Float[Array, "T X"]:
    """Return the co-states of a trajectory, computed backwards from the final one.

        λ_t = ∂ℓ/∂x_t + γ A_tᵀ λ_{t+1},    λ_T = final

    With A_t = ∂F/∂x this is the co-state of the minimum principle.
    With the Jacobian of the closed loop it is the gradient of the policy's value.
    """

    def retreat(later: State, row: tuple[Float[Array, "X X"], State]) -> tuple[State, State]:
        jacobian, cost_gradient = row
        earlier = cost_gradient + discount * (jacobian.T @ later)
        return earlier, earlier

    return jax.lax.scan(retreat, final, (jacobians, cost_gradients), reverse=True)[1]


def runge_kutta_step(
    problem: ControlProblem, state: State, control: Control, step: Float[Array, ""]
) -> tuple[State, Float[Array, ""]]:
    """Return the state after one step with constant control, and the cost of the step."""

    def stage(
        slope: tuple[State, Float[Array, ""]], fraction: Float[Array, ""]
    ) -> tuple[tuple[State, Float[Array, ""]], tuple[State, Float[Array, ""]]]:
        here = state + fraction * step * slope[0]
        found = problem.velocity(here, control), problem.running_cost(here, control)
        return found, found

    # Scanning over the four stages compiles in a quarter of the time that writing them out takes.
    start = jnp.zeros_like(state), jnp.zeros((), state.dtype)
    _, (velocities, costs) = jax.lax.scan(stage, start, jnp.asarray([0.0, 0.5, 0.5, 1.0], state.dtype))
    weights = step / 6.0 * jnp.asarray([1.0, 2.0, 2.0, 1.0], state.dtype)
    return state + weights @ velocities, weights @ costs
