"""Co-states in discrete time: the recursion, JAX's gradient, and the Riccati solution agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.control.adjoint import (
    SampledProblem,
    control_gradients,
    costate_recursion,
    rollout,
    rollout_cost,
    rollout_costates,
    sampled,
)
from costate.control.problem import ControlProblem
from costate.control.riccati import (
    LinearQuadratic,
    as_control_problem,
    continuous_weights,
    costate,
    discrete_gain,
    discrete_weights,
)

T = 12


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def linear() -> LinearQuadratic:
    return LinearQuadratic(
        np.array([[1.0, 0.1], [-0.2, 0.9]]),
        np.array([[0.0], [0.3]]),
        np.diag([1.0, 0.2]),
        np.eye(1),
        np.diag([2.0, 1.0]),
    )


def as_sampled(problem: LinearQuadratic) -> SampledProblem:
    a, b, q, r, final = (
        jnp.asarray(m) for m in (problem.a, problem.b, problem.q, problem.r, problem.final_weight)
    )
    return SampledProblem(
        lambda x, u: a @ x + b @ u, lambda x, u: x @ q @ x + u @ r @ u, lambda x: x @ final @ x
    )


def test_riccati_adjoint_and_jax_agree_along_the_optimal_rollout(double):
    """V(x) = xᵀPx, so λ_t = 2P_t x_t.

    With optimal controls held fixed, the derivative of the cost is the same (envelope theorem).
    """
    problem, x = linear(), np.array([1.0, -0.5])
    weights = discrete_weights(problem, T)
    states, controls = [x], []
    for later in weights[1:]:
        controls.append(-discrete_gain(problem, later) @ states[-1])
        states.append(problem.a @ states[-1] + problem.b @ controls[-1])
    discrete, start, held = as_sampled(problem), jnp.asarray(x), jnp.asarray(np.stack(controls))
    expected = np.stack([costate(weight, state) for weight, state in zip(weights, states, strict=True)])
    np.testing.assert_allclose(rollout(discrete, start, held), states, atol=1e-12)
    np.testing.assert_allclose(rollout_costates(discrete, start, held), expected, atol=1e-12)
    np.testing.assert_allclose(
        jax.grad(rollout_cost, argnums=1)(discrete, start, held), expected[0], atol=1e-12
    )
    np.testing.assert_allclose(rollout_cost(discrete, start, held), x @ weights[0] @ x, rtol=1e-12)
    np.testing.assert_allclose(control_gradients(discrete, start, held), np.zeros((T, 1)), atol=1e-12)


def bumpy() -> SampledProblem:
    return SampledProblem(
        lambda x, u: x + 0.2 * jnp.stack([x[1], jnp.sin(x[0]) + u[0] * jnp.cos(x[1])]),
        lambda x, u: x[0] ** 2 * x[1] + u[0] ** 2 * x[1],
        lambda x: jnp.exp(x[0]) + x[1] ** 3,
        discount=0.9,
    )


def test_gradients_of_a_discounted_nonlinear_rollout_equal_jaxs_and_finite_differences(double):
    problem, start = bumpy(), jnp.array([0.3, -0.8])
    controls = jax.random.normal(jax.random.key(0), (T, 1), jnp.float64)
    by_start, by_control = jax.grad(rollout_cost, argnums=(1, 2))(problem, start, controls)
    costates = rollout_costates(problem, start, controls)
    np.testing.assert_allclose(costates[0], by_start, rtol=1e-12)
    np.testing.assert_allclose(
        control_gradients(problem, start, controls), by_control, rtol=1e-10, atol=1e-14
    )
    # λ_5 is the derivative of the cost from step 5 on.
    middle, step = rollout(problem, start, controls)[5], 1e-6
    slope = [
        (rollout_cost(problem, middle + d, controls[5:]) - rollout_cost(problem, middle - d, controls[5:]))
        / (2 * step)
        for d in step * jnp.eye(2)
    ]
    np.testing.assert_allclose(costates[5], slope, rtol=1e-8)


def test_recursion_by_hand():
    """One state, with γ = ½, A = (−1, 2), ∂ℓ/∂x = (3, 1) and λ₂ = 4.

    Then λ₁ = 1 + ½·(2·4) = 5 and λ₀ = 3 + ½·(−1·5) = ½.
    """
    found = costate_recursion(
        jnp.array([[[-1.0]], [[2.0]]]), jnp.array([[3.0], [1.0]]), jnp.array([4.0]), 0.5
    )
    np.testing.assert_allclose(found, [[0.5], [5.0]])


def test_recursion_uses_the_transpose():
    found = costate_recursion(
        jnp.array([[[0.0, 1.0], [0.0, 0.0]]]), jnp.zeros((1, 2)), jnp.array([1.0, 0.0]), 1.0
    )
    np.testing.assert_allclose(found, [[0.0, 1.0]])


def test_shorter_steps_tend_to_the_continuous_problem(double):
    """Holding the control at its value in mid-step is second order: half the step, a quarter of the error."""
    matrices = LinearQuadratic(
        np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [1.0]]), np.eye(2), np.eye(1), np.eye(2)
    )
    x, horizon = np.array([1.0, 0.5]), 2.0
    problem: ControlProblem = as_control_problem(matrices, "oscillator", x, horizon)
    # The optimal control from the Riccati solution on a grid that contains the middle of every step.
    fine = np.linspace(0.0, horizon, 161)
    weights = continuous_weights(matrices, fine)
    closed = [matrices.a - matrices.b @ matrices.b.T @ weight for weight in weights]
    states = [x]
    for k in range(0, 160, 2):  # Runge-Kutta steps of twice the grid
        h, s = fine[2] - fine[0], states[-1]
        k1 = closed[k] @ s
        k2 = closed[k + 1] @ (s + h / 2 * k1)
        k3 = closed[k + 1] @ (s + h / 2 * k2)
        k4 = closed[k + 2] @ (s + h * k3)
        states.append(s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    optimal = np.array([-matrices.b.T @ weights[2 * k] @ state for k, state in enumerate(states)])

    def error(steps: int) -> np.ndarray:
        stride = 80 // steps
        controls = jnp.asarray(optimal[stride // 2 : 80 : stride])
        found = rollout_costates(sampled(problem, jnp.asarray(horizon / steps)), jnp.asarray(x), controls)[0]
        return np.asarray(found) - costate(weights[0], x)

    coarse, fine_error = error(20), error(40)
    np.testing.assert_allclose(coarse / fine_error, 4.0, atol=0.1)
    # With the second-order error extrapolated away, what remains is of fourth order, 0.1⁴.
    np.testing.assert_allclose((4.0 * fine_error - coarse) / 3.0, 0.0, atol=1e-4)
