"""Test solutions of the boundary-value problem, and their residuals, against closed forms and Riccati."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate

from costate.control.catalogue import PROBLEMS
from costate.control.costs import FreeControl
from costate.control.pontryagin import solve
from costate.control.problem import ControlProblem, hamiltonian, hamiltonian_partials
from costate.control.riccati import LinearQuadratic, continuous_weights
from costate.control.solution import TOLERANCES, Solution


@functools.cache
def solved(name: str) -> Solution:
    return solve(PROBLEMS[name]())


@pytest.mark.quick("lqr", "double-integrator-fuel")
@pytest.mark.parametrize("name", PROBLEMS.names())
def test_every_named_problem_is_solved_and_says_how_well(name):
    solution = solved(name)
    assert solution.converged, solution.message
    assert all(value <= allowed for value, allowed in zip(solution.residuals, TOLERANCES, strict=True))
    assert solution.times.dtype == solution.states.dtype == solution.costates.dtype == np.float64
    problem = PROBLEMS[name]()
    np.testing.assert_allclose(solution.states[0], problem.initial_state, atol=1e-6)


@pytest.mark.quick("lqr", "double-integrator-fuel")
@pytest.mark.parametrize("name", PROBLEMS.names())
def test_hamiltonian_is_constant_and_the_end_is_what_it_must_be(name):
    """Computed here from the problem, not taken from the solution's own residuals."""
    solution, problem = solved(name), PROBLEMS[name]()
    with jax.enable_x64(True):
        values = jax.vmap(lambda x, λ, u: hamiltonian(problem, x, λ, u))(
            *(jnp.asarray(v) for v in (solution.states, solution.costates, solution.controls))
        )
        slope = np.asarray(jax.grad(problem.terminal_cost)(jnp.asarray(solution.states[-1])))
    np.testing.assert_allclose(values, values[0], atol=1e-6 * (1.0 + abs(float(values[0]))))
    if problem.horizon is None:
        np.testing.assert_allclose(values[-1], 0.0, atol=1e-8)
    else:
        np.testing.assert_allclose(solution.final_time, problem.horizon, rtol=1e-12)
    if problem.final_state is None:
        np.testing.assert_allclose(solution.costates[-1], slope, atol=1e-8)
    else:
        np.testing.assert_allclose(solution.states[-1], problem.final_state, atol=1e-8)


@pytest.mark.quick("pendulum", "double-integrator-time", "lqr")
@pytest.mark.parametrize("name", PROBLEMS.names())
def test_no_control_on_a_grid_has_a_smaller_hamiltonian(name):
    solution, problem = solved(name), PROBLEMS[name]()
    limit = float(problem.limit[0])
    grid = np.linspace(-1.0, 1.0, 41) * (limit if np.isfinite(limit) else 20.0)
    cost = {
        "QuadraticCost": lambda u: float(getattr(problem.control_cost, "weight", np.eye(1))[0, 0]) * u**2,
        "FreeControl": np.zeros_like,
        "FuelCost": np.abs,
    }
    price = cost[type(problem.control_cost).__name__]
    # Only c(u) + u s depends on the control.
    chosen = price(solution.controls[:, 0]) + solution.controls[:, 0] * solution.slopes[:, 0]
    others = price(grid)[None, :] + grid[None, :] * solution.slopes
    assert (chosen - others.min(axis=1)).max() <= 1e-6


def test_lqr_agrees_with_the_riccati_equation():
    """λ = 2Px at every time, u = −R⁻¹BᵀPx, and the cost is xᵀPx."""
    solution, initial = solved("lqr"), np.array([1.0, 0.0])
    matrices = LinearQuadratic(
        np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [1.0]]), np.eye(2), np.eye(1), np.eye(2)
    )
    weights = continuous_weights(matrices, solution.times)
    np.testing.assert_allclose(
        solution.costates, 2.0 * np.einsum("txy,ty->tx", weights, solution.states), atol=1e-6
    )
    np.testing.assert_allclose(
        solution.controls[:, 0], -np.einsum("ty,ty->t", weights[:, 1], solution.states), atol=1e-6
    )
    np.testing.assert_allclose(solution.cost, initial @ weights[0] @ initial, rtol=1e-8)


def test_minimum_energy_is_the_closed_form():
    """Rest to rest over distance 1 in time 1: u = 6 − 12t, λ = (−24, −12 + 24t), cost ∫u² = 12."""
    solution = solved("double-integrator-energy")
    t = solution.times
    np.testing.assert_allclose(solution.controls[:, 0], 6.0 - 12.0 * t, atol=1e-6)
    np.testing.assert_allclose(solution.states[:, 0], -1.0 + 3.0 * t**2 - 2.0 * t**3, atol=1e-6)
    np.testing.assert_allclose(
        solution.costates, np.stack([np.full_like(t, -24.0), -12.0 + 24.0 * t], axis=1), atol=1e-6
    )
    np.testing.assert_allclose(solution.cost, 12.0, atol=1e-6)


def test_minimum_time_switches_once_half_way():
    """Rest to rest over distance d with |u| ≤ 1: t_f = 2√d, the switch at √d; H = 0 makes λ₂(0) = −1."""
    solution = solved("double-integrator-time")
    np.testing.assert_allclose(solution.final_time, 2.0, atol=1e-6)
    np.testing.assert_allclose(solution.switching_times, [1.0], atol=1e-6)
    np.testing.assert_allclose(solution.costates[0], [-1.0, -1.0], atol=1e-6)
    np.testing.assert_array_equal(
        solution.controls[:, 0],
        np.where(np.arange(len(solution.times)) < np.searchsorted(solution.times, 1.0, "right") - 1, 1, -1),
    )


def test_minimum_time_from_a_moving_start():
    """From (0, v) to rest at 0: brake for v(1 + 1/√2), then push back for v/√2, so that t_f = v(1 + √2).

    This follows from the switching curve x = −½v|v|.
    """
    problem = dataclasses.replace(PROBLEMS["double-integrator-time"](), initial_state=jnp.array([0.0, 1.5]))
    solution = solve(problem)
    assert solution.converged, solution.message
    np.testing.assert_allclose(solution.final_time, 1.5 * (1.0 + np.sqrt(2.0)), atol=1e-6)
    np.testing.assert_allclose(solution.switching_times, [1.5 * (1.0 + np.sqrt(0.5))], atol=1e-6)


def test_minimum_fuel_coasts_for_as_long_as_it_can():
    """Burn for b = (T − √(T² − 4d))/2 at both ends, with T = 3 and d = 1; the fuel is 2b."""
    solution = solved("double-integrator-fuel")
    burn = (3.0 - np.sqrt(5.0)) / 2.0
    np.testing.assert_allclose(solution.switching_times, [burn, 3.0 - burn], atol=1e-6)
    np.testing.assert_allclose(solution.cost, 2.0 * burn, atol=1e-6)
    assert set(np.unique(solution.controls)) == {-1.0, 0.0, 1.0}


@pytest.mark.quick("pendulum")
@pytest.mark.parametrize("name", ["pendulum", "cartpole"])
def test_the_pole_swings_up_along_the_differential_equations(name):
    """Compare ẋ and λ̇ from splines through the rows of each smooth arc with the problem's own functions."""
    solution, problem = solved(name), PROBLEMS[name]()
    assert abs(solution.states[0, 0 if name == "pendulum" else 1]) == pytest.approx(np.pi)
    assert np.abs(solution.states[-1]).max() < 0.05
    with jax.enable_x64(True):
        point = [jnp.asarray(values) for values in (solution.states, solution.costates, solution.controls)]
        partials = jax.jit(jax.vmap(lambda *point: hamiltonian_partials(problem, *point)))(*point)
    arcs = np.split(np.arange(len(solution.times)), np.flatnonzero(np.diff(solution.times) == 0.0) + 1)
    for arc in arcs:
        for values, rate in (
            (solution.states, np.asarray(partials.by_costate)),
            (solution.costates, -np.asarray(partials.by_state)),
        ):
            found = scipy.interpolate.CubicSpline(solution.times[arc], values[arc])(solution.times[arc], 1)
            # Rows are about 0.01 apart. A cubic spline's derivative is accurate to the third power of that,
            # but less so at its ends.
            np.testing.assert_allclose(found[4:-4], rate[arc][4:-4], atol=1e-4 * np.abs(rate).max())


def test_limits_are_kept_and_reached_by_the_pendulum():
    solution = solved("pendulum")
    assert np.abs(solution.controls).max() == pytest.approx(5.0)
    assert len(solution.switching_times) >= 2
    # At a limit that is reached or left the law is continuous: the control does not jump.
    assert np.abs(np.diff(solution.controls[:, 0]))[np.diff(solution.times) == 0.0].max() < 1e-6


@pytest.mark.thorough
def test_a_horizon_that_is_too_short_is_called_infeasible():
    """Distance 1 takes a time of 2 with |u| ≤ 1."""
    solution = solve(dataclasses.replace(PROBLEMS["double-integrator-fuel"](), horizon=1.5))
    assert not solution.converged
    assert "The horizon is infeasible: within 1.5" in solution.message


@pytest.mark.thorough
def test_a_singular_problem_is_not_called_solved():
    """Minimise ∫x² with |u| ≤ 1: the optimum ends in a singular arc at 0.

    On it gᵀλ = 0 for a while, which bang-bang control cannot follow.
    """
    problem = ControlProblem(
        "singular",
        jnp.zeros_like,
        lambda x: jnp.ones((1, 1), x.dtype),
        lambda x: x @ x,
        FreeControl(),
        lambda x: 0.0 * x[0],
        jnp.ones(1),
        jnp.ones(1),
        3.0,
    )
    solution = solve(problem)
    assert not solution.converged
    assert solution.message.startswith("not converged")
