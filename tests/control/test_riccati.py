"""Riccati equations against closed forms and against each other."""

import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.control.riccati import (
    LinearQuadratic,
    continuous_gain,
    continuous_stationary,
    continuous_weights,
    costate,
    discrete_gain,
    discrete_stationary,
    discrete_weights,
)

ONE = np.ones((1, 1))


def scalar(a: float) -> LinearQuadratic:
    return LinearQuadratic(a * ONE, ONE, ONE, ONE)


def oscillator() -> LinearQuadratic:
    return LinearQuadratic(
        np.array([[0.0, 1.0], [-1.0, 0.2]]),
        np.array([[0.0], [1.0]]),
        np.diag([1.0, 0.5]),
        2.0 * ONE,
        np.diag([3.0, 1.0]),
    )


def test_stationary_scalars_are_known():
    """Continuous: 0 = 1 + 2P − P², so P = 1 + √2.

    Discrete: P = 1 + P/(1 + P), so P² = P + 1, the golden ratio.
    """
    np.testing.assert_allclose(continuous_stationary(scalar(1.0)), [[1.0 + np.sqrt(2.0)]], rtol=1e-12)
    np.testing.assert_allclose(discrete_stationary(scalar(1.0)), [[0.5 + np.sqrt(1.25)]], rtol=1e-12)


def test_finite_horizon_of_an_integrator_is_a_hyperbolic_tangent():
    """−Ṗ = 1 − P² with P(2) = 0."""
    times = np.linspace(0.0, 2.0, 9)
    np.testing.assert_allclose(
        continuous_weights(scalar(0.0), times)[:, 0, 0], np.tanh(2.0 - times), atol=1e-10
    )


def test_two_steps_back_by_hand():
    """P₂ = 0, P₁ = 1, P₀ = 1 + 1 − 1/2."""
    np.testing.assert_allclose(discrete_weights(scalar(1.0), 2)[:, 0, 0], [1.5, 1.0, 0.0], atol=1e-15)


def test_long_horizons_start_as_infinite_ones():
    problem = oscillator()
    np.testing.assert_allclose(
        continuous_weights(problem, np.array([0.0, 60.0]))[0], continuous_stationary(problem), rtol=1e-8
    )
    stable = LinearQuadratic(np.array([[1.0, 0.1], [-0.1, 1.02]]), problem.b, problem.q, problem.r)
    np.testing.assert_allclose(discrete_weights(stable, 500)[0], discrete_stationary(stable), rtol=1e-8)


def test_value_is_what_the_closed_loop_pays_and_no_other_gain_pays_less():
    problem, start = oscillator(), np.array([1.0, -2.0])
    discrete = LinearQuadratic(
        np.eye(2) + 0.1 * problem.a, 0.1 * problem.b, problem.q, problem.r, problem.final
    )
    weights = discrete_weights(discrete, 30)

    def pay(change: float) -> float:
        x, total = start, 0.0
        for later in weights[1:]:
            u = -(discrete_gain(discrete, later) + change) @ x
            total, x = total + x @ discrete.q @ x + u @ discrete.r @ u, discrete.a @ x + discrete.b @ u
        return float(total + x @ discrete.final_weight @ x)

    np.testing.assert_allclose(start @ weights[0] @ start, pay(0.0), rtol=1e-12)
    assert min(pay(0.01), pay(-0.01)) > pay(0.0)
    np.testing.assert_allclose(costate(weights[0], start), 2.0 * weights[0] @ start)


def test_closed_loop_of_the_infinite_horizon_is_stable():
    problem = oscillator()
    closed = problem.a - problem.b @ continuous_gain(problem, continuous_stationary(problem))
    assert np.linalg.eigvals(closed).real.max() < 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": np.ones((2, 3))}, r"A has shape \(2, 3\)"),
        ({"b": np.ones((3, 1))}, r"B has shape \(3, 1\).*\(2, 1\)"),
        ({"b": np.ones(2)}, r"B has shape \(2,\)"),
        ({"q": np.eye(3)}, r"Q has shape \(3, 3\)"),
        ({"q": np.diag([1.0, -0.25])}, r"Q is not positive semi-definite: its smallest eigenvalue is -0\.25"),
        ({"r": np.eye(2)}, r"R has shape \(2, 2\)"),
        ({"r": np.zeros((1, 1))}, r"R is not positive definite: its smallest eigenvalue is 0"),
        (
            {"final": np.diag([0.0, -2.0])},
            r"P_f is not positive semi-definite: its smallest eigenvalue is -2",
        ),
        ({"q": np.array([[1.0, 0.5], [0.0, 1.0]])}, r"Q is not symmetric"),
    ],
)
def test_a_matrix_that_cannot_be_is_named(changes, message):
    good = {"a": np.zeros((2, 2)), "b": np.ones((2, 1)), "q": np.eye(2), "r": np.eye(1)}
    with pytest.raises(ConfigError, match=message):
        LinearQuadratic(**(good | changes))


def test_modes_that_no_control_reaches_are_named():
    unreachable = LinearQuadratic(np.diag([0.5, 1.5]), np.array([[1.0], [0.0]]), np.eye(2), ONE)
    with pytest.raises(ConfigError, match=r"not stabilisable: the eigenvalue 0\.5"):
        continuous_stationary(LinearQuadratic(np.diag([-1.0, 0.5]), unreachable.b, unreachable.q, ONE))
    with pytest.raises(ConfigError, match=r"not stabilisable: the eigenvalue 1\.5"):
        discrete_stationary(unreachable)
    # A mode that decays by itself needs no control.
    assert np.isfinite(
        discrete_stationary(LinearQuadratic(np.diag([1.5, 0.5]), unreachable.b, unreachable.q, ONE))
    ).all()


def test_a_mode_that_the_cost_does_not_see_is_explained():
    unseen = LinearQuadratic(
        np.array([[0.0, 1.0], [-1.0, 0.0]]), np.ones((2, 1)), np.full((2, 2), 1e-18), ONE
    )
    with pytest.raises(ConfigError, match="no stabilising solution"):
        continuous_stationary(unseen)


def test_horizons_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="steps is 0"):
        discrete_weights(scalar(1.0), 0)
    with pytest.raises(ConfigError, match="in increasing order"):
        continuous_weights(scalar(1.0), np.array([1.0, 0.0]))
