"""The cost of a given sequence of controls in discrete time, and its co-states by one pass backwards.

    J = Σ_t γᵗ ℓ(x_t, u_t) + γᵀ Φ(x_T),    x_{t+1} = F(x_t, u_t)

The co-state λ_t = ∂J_t/∂x_t is the sensitivity of what is still to be paid, counted from t, with later controls held fixed.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float
from costate.control.problem import Control, ControlProblem, State


class SampledProblem(eqx.Module):
    """A problem in discrete time. All functions are of one state and one control, and traceable by JAX."""

    transition: Callable[[State, Control], State]
    """F(x, u)."""
    stage_cost: Callable[[State, Control], Float[Array, ""]]
    """ℓ(x, u), for the whole step."""
    terminal_cost: Callable[[State], Float[Array, ""]]
    """Φ(x)."""
    discount: float = 1.0
    """γ."""


def sampled(problem: ControlProblem, step: Float[Array, ""]) -> SampledProblem:
    """The problem with controls held constant over steps; both motion and cost are integrated by the classical Runge-Kutta rule."""
    return SampledProblem(
        lambda state, control: runge_kutta_step(problem, state, control, step)[0],
        lambda state, control: runge_kutta_step(problem, state, control, step)[1],
        problem.terminal_cost,
    )


def rollout(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, "T+1 X"]:
    """The states x_0 … x_T that a sequence of controls leads through."""

    def advance(state: State, control: Control) -> tuple[State, State]:
        after = problem.transition(state, control)
        return after, after

    _, states = jax.lax.scan(advance, initial_state, controls)
    return jnp.concatenate([initial_state[None], states])


def rollout_cost(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, ""]:
    """J of a sequence of controls."""
    states = rollout(problem, initial_state, controls)
    discounts = problem.discount ** jnp.arange(len(controls) + 1, dtype=states.dtype)
    return discounts[:-1] @ jax.vmap(problem.stage_cost)(states[:-1], controls) + discounts[
        -1
    ] * problem.terminal_cost(states[-1])


def rollout_costates(
    problem: SampledProblem, initial_state: State, controls: Float[Array, "T U"]
) -> Float[Array, "T+1 X"]:
    """λ_0 … λ_T along the rollout; λ_T = ∇Φ(x_T)."""
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
    """∂J/∂u_t = γᵗ (∂ℓ/∂u_t + γ B_tᵀ λ_{t+1}): the slope of the Hamiltonian in the control, discounted."""
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
    """Co-states of a trajectory, backwards from the one at its end.

        λ_t = ∂ℓ/∂x_t + γ A_tᵀ λ_{t+1},    λ_T = final

    With A_t = ∂F/∂x this is the co-state of the minimum principle; with the Jacobian of the closed loop it is the gradient of the policy's value.
    """

    def retreat(later: State, row: tuple[Float[Array, "X X"], State]) -> tuple[State, State]:
        jacobian, cost_gradient = row
        earlier = cost_gradient + discount * (jacobian.T @ later)
        return earlier, earlier

    return jax.lax.scan(retreat, final, (jacobians, cost_gradients), reverse=True)[1]


def runge_kutta_step(
    problem: ControlProblem, state: State, control: Control, step: Float[Array, ""]
) -> tuple[State, Float[Array, ""]]:
    """Where a constant control leads within one step, and what it costs."""

    def stage(
        slope: tuple[State, Float[Array, ""]], fraction: Float[Array, ""]
    ) -> tuple[tuple[State, Float[Array, ""]], tuple[State, Float[Array, ""]]]:
        here = state + fraction * step * slope[0]
        found = problem.velocity(here, control), problem.running_cost(here, control)
        return found, found

    # A loop over the four stages compiles in a quarter of the time that writing them out takes.
    start = jnp.zeros_like(state), jnp.zeros((), state.dtype)
    _, (velocities, costs) = jax.lax.scan(stage, start, jnp.asarray([0.0, 0.5, 0.5, 1.0], state.dtype))
    weights = step / 6.0 * jnp.asarray([1.0, 2.0, 2.0, 1.0], state.dtype)
    return state + weights @ velocities, weights @ costs
