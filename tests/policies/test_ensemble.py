"""One control for several systems: the mean Hamiltonian against Riccati and each member's own optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from costate._base.errors import ConfigError
from costate.control.adjoint import rollout_cost, sampled
from costate.control.catalogue import PROBLEMS
from costate.control.ensemble import solve_ensemble
from costate.control.pontryagin import solve
from costate.control.problem import ControlProblem
from costate.control.riccati import LinearQuadratic, as_control_problem, continuous_weights

HORIZON = 1.5
STIFF, SOFT = (
    LinearQuadratic(np.array([[a]]), np.ones((1, 1)), np.ones((1, 1)), 0.5 * np.eye(1), np.ones((1, 1)))
    for a in (-1.0, 1.0)
)


def member(matrices: LinearQuadratic) -> ControlProblem:
    return as_control_problem(matrices, "member", np.array([1.0]), HORIZON)


@pytest.fixture(scope="module")
def mixed():
    return solve_ensemble([member(STIFF), member(SOFT)])


@pytest.fixture(scope="module")
def alone():
    return {name: solve(member(matrices)) for name, matrices in {"stiff": STIFF, "soft": SOFT}.items()}


@pytest.mark.thorough
def test_one_member_is_the_problem_itself(alone):
    single = solve_ensemble([member(SOFT)])
    assert single.joint.converged
    np.testing.assert_allclose(single.joint.controls, alone["soft"].controls, atol=1e-8)
    np.testing.assert_allclose(single.costates[:, 0], alone["soft"].costates, atol=1e-8)


def test_equal_members_are_one(alone):
    twins = solve_ensemble([member(SOFT), member(SOFT)])
    assert twins.joint.converged
    np.testing.assert_allclose(twins.joint.controls, alone["soft"].controls, atol=1e-7)
    for index in range(2):
        np.testing.assert_allclose(twins.states[:, index], alone["soft"].states, atol=1e-7)
        np.testing.assert_allclose(twins.costates[:, index], alone["soft"].costates, atol=1e-7)
    np.testing.assert_allclose(twins.joint.cost, alone["soft"].cost, rtol=1e-8)


def test_different_members_solve_the_stacked_riccati_equation(mixed):
    """Stack two systems: A block-diagonal, B stacked, half of each Q and P_f.

    R counts once, because both share the control.
    """
    stacked = LinearQuadratic(
        scipy.linalg.block_diag(STIFF.a, SOFT.a),
        np.ones((2, 1)),
        0.5 * np.eye(2),
        0.5 * np.eye(1),
        0.5 * np.eye(2),
    )
    weights = continuous_weights(stacked, mixed.joint.times)
    joint = mixed.states[:, :, 0]
    np.testing.assert_allclose(
        mixed.joint.controls, -2.0 * np.einsum("xu,txy,ty->tu", stacked.b, weights, joint), atol=1e-6
    )
    np.testing.assert_allclose(
        mixed.costates[:, :, 0], 2.0 * 2.0 * np.einsum("txy,ty->tx", weights, joint), atol=1e-6
    )
    np.testing.assert_allclose(mixed.joint.cost, np.ones(2) @ weights[0] @ np.ones(2), rtol=1e-8)


def test_shared_control_minimises_the_mean_hamiltonian(mixed):
    """½ u² + u · mean(λ_i) is smallest at u = −mean λ_i."""
    np.testing.assert_allclose(mixed.joint.controls[:, 0], -mixed.costates[:, :, 0].mean(axis=1), atol=1e-9)


def test_no_members_own_control_serves_both_as_well(mixed, alone):
    steps = 100
    middles = (np.arange(steps) + 0.5) * HORIZON / steps
    with jax.enable_x64(True):

        def mean_cost(solution) -> float:
            controls = jnp.asarray(np.interp(middles, solution.times, solution.controls[:, 0])[:, None])
            costs = [
                rollout_cost(sampled(member(m), jnp.asarray(HORIZON / steps)), jnp.ones(1), controls)
                for m in (STIFF, SOFT)
            ]
            return float(np.mean(costs))

        shared = mean_cost(mixed.joint)
        assert shared == pytest.approx(mixed.joint.cost, rel=1e-3), (
            "controls held over 100 steps cost nearly the same"
        )
        assert all(mean_cost(own) > shared + 0.01 for own in alone.values())


def test_members_that_cannot_share_a_control_are_named():
    other = LinearQuadratic(SOFT.a, SOFT.b, SOFT.q, 2.0 * np.eye(1))
    with pytest.raises(ConfigError, match="Member 1 of the ensemble"):
        solve_ensemble([member(SOFT), member(other)])
    with pytest.raises(ConfigError, match="free final time or a fixed final state"):
        solve_ensemble([PROBLEMS["double-integrator-energy"]()])
    with pytest.raises(ConfigError, match="at least one member"):
        solve_ensemble([])
