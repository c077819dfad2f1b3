"""Exact solution of linear systems with quadratic costs: V(x) = xᵀPx, so that λ = ∇V = 2Px and u* = −Kx.

Continuous time, with cost ∫ xᵀQx + uᵀRu dt + x(t_f)ᵀP_f x(t_f):

    −Ṗ = Q + AᵀP + PA − PBR⁻¹BᵀP,    K = R⁻¹BᵀP

Discrete time, with cost Σ xᵀQx + uᵀRu + x_TᵀP_f x_T:

    P_t = Q + AᵀP_{t+1}A − AᵀP_{t+1}B K_t,    K_t = (R + BᵀP_{t+1}B)⁻¹BᵀP_{t+1}A

Everything here is NumPy in float64.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from costate._base.errors import ConfigError
from costate._base.types import Float
from costate.control.costs import QuadraticCost, require_positive_definite
from costate.control.problem import ControlProblem, QuadraticForm
from costate.control.systems import LinearSystem

Matrix = Float[np.ndarray, "X X"]
# Relative and absolute error per step that the integrator of Ṗ may make.
ACCURACY = 1e-11


@dataclasses.dataclass(frozen=True, eq=False)
class LinearQuadratic:
    """A linear system ẋ = Ax + Bu or x_{t+1} = Ax_t + Bu_t with cost xᵀQx + uᵀRu and final cost xᵀP_f x."""

    a: np.ndarray
    b: np.ndarray
    q: np.ndarray
    r: np.ndarray
    final: np.ndarray | None = None
    """P_f. None means no final cost."""

    def __post_init__(self) -> None:
        size, width = (matrix.shape[-1] if matrix.ndim else 0 for matrix in (self.a, self.b))
        _require_shape("A", self.a, (size, size))
        _require_shape("B", self.b, (size, width))
        _require_shape("Q", self.q, (size, size))
        _require_shape("R", self.r, (width, width))
        _require_shape("P_f", self.final_weight, (size, size))
        require_positive_definite("Q", self.q, strictly=False)
        require_positive_definite("R", self.r)
        require_positive_definite("P_f", self.final_weight, strictly=False)

    @property
    def final_weight(self) -> np.ndarray:
        return np.zeros_like(self.q) if self.final is None else self.final


def costate(weight: Matrix, state: Float[np.ndarray, " X"]) -> Float[np.ndarray, " X"]:
    """Return λ = ∇(xᵀPx) = 2Px."""
    return np.asarray(2.0 * weight @ state)


def continuous_gain(problem: LinearQuadratic, weight: Matrix) -> Float[np.ndarray, "U X"]:
    """Return K = R⁻¹BᵀP."""
    return np.linalg.solve(problem.r, problem.b.T @ weight)


def discrete_gain(problem: LinearQuadratic, later: Matrix) -> Float[np.ndarray, "U X"]:
    """Return K_t = (R + BᵀP_{t+1}B)⁻¹BᵀP_{t+1}A."""
    return np.linalg.solve(problem.r + problem.b.T @ later @ problem.b, problem.b.T @ later @ problem.a)


def continuous_stationary(problem: LinearQuadratic) -> Matrix:
    """Return P of the infinite horizon in continuous time."""
    _require_stabilisable(
        problem, lambda eigenvalue: eigenvalue.real >= -1e-12, "a real part that is not negative"
    )
    return _solve_stationary(scipy.linalg.solve_continuous_are, problem)


def discrete_stationary(problem: LinearQuadratic) -> Matrix:
    """Return P of the infinite horizon in discrete time."""
    _require_stabilisable(
        problem, lambda eigenvalue: abs(eigenvalue) >= 1.0 - 1e-12, "an absolute value that is not below 1"
    )
    return _solve_stationary(scipy.linalg.solve_discrete_are, problem)


def continuous_weights(
    problem: LinearQuadratic, times: Float[np.ndarray, " T"]
) -> Float[np.ndarray, "T X X"]:
    """Return P at increasing times, the last of which is t_f."""
    shape = problem.q.shape
    if len(times) < 2 or not (np.diff(times) > 0.0).all():
        raise ConfigError(f"times are {times.tolist()}, but there must be at least two, in increasing order.")

    def rate(_: float, flat: np.ndarray) -> np.ndarray:
        weight = flat.reshape(shape)
        grown = problem.q + problem.a.T @ weight + weight @ problem.a
        return np.ravel(weight @ problem.b @ continuous_gain(problem, weight) - grown)

    found = scipy.integrate.solve_ivp(
        rate,
        (times[-1], times[0]),
        problem.final_weight.ravel(),
        method="DOP853",
        t_eval=times[::-1],
        rtol=ACCURACY,
        atol=ACCURACY,
    )
    return np.stack([_symmetric(flat.reshape(shape)) for flat in found.y.T[::-1]])


def discrete_weights(problem: LinearQuadratic, steps: int) -> Float[np.ndarray, "T X X"]:
    """Return P_0 … P_T for T steps."""
    if steps < 1:
        raise ConfigError(f"steps is {steps}, but a finite horizon has at least 1.")
    weights = [problem.final_weight.astype(float)]
    for _ in range(steps):
        later = weights[-1]
        weights.append(
            _symmetric(
                problem.q + problem.a.T @ later @ (problem.a - problem.b @ discrete_gain(problem, later))
            )
        )
    return np.stack(weights[::-1])


def as_control_problem(
    problem: LinearQuadratic, name: str, initial_state: Float[np.ndarray, " X"], horizon: float
) -> ControlProblem:
    """Return the continuous problem in the general form, for solvers that do not exploit linearity."""
    with jax.enable_x64(True):
        system = LinearSystem(jnp.asarray(problem.a), jnp.asarray(problem.b))
        state_cost, terminal_cost = (
            QuadraticForm(jnp.asarray(problem.q)),
            QuadraticForm(jnp.asarray(problem.final_weight)),
        )
        return ControlProblem(
            name,
            system.drift,
            system.influence,
            state_cost,
            QuadraticCost(jnp.asarray(problem.r)),
            terminal_cost,
            jnp.asarray(initial_state),
            jnp.full(problem.b.shape[1], jnp.inf),
            horizon,
        )


def _require_shape(name: str, matrix: np.ndarray, expected: tuple[int, int]) -> None:
    if matrix.shape != expected:
        raise ConfigError(
            f"{name} has shape {matrix.shape}, but with the other matrices it must have shape {expected}."
        )


def _require_stabilisable(
    problem: LinearQuadratic, unstable: Callable[[complex], bool], description: str
) -> None:
    """Raise unless [A − μI, B] has full rank for every mode μ that does not decay by itself.

    This is the test of Popov, Belevitch and Hautus.
    """
    size = len(problem.a)
    for eigenvalue in np.linalg.eigvals(problem.a):
        reach = np.hstack([problem.a - eigenvalue * np.eye(size), problem.b])
        if unstable(eigenvalue) and np.linalg.matrix_rank(reach) < size:
            raise ConfigError(
                f"(A, B) is not stabilisable: the eigenvalue {eigenvalue:.6g} of A has {description}, and no "
                f"control through B reaches its mode, so the infinite-horizon cost is infinite. "
                f"Use a finite horizon, or a B that reaches this mode."
            )


def _solve_stationary(solver: Callable[..., Matrix], problem: LinearQuadratic) -> Matrix:
    try:
        return _symmetric(solver(problem.a, problem.b, problem.q, problem.r))
    except np.linalg.LinAlgError as error:
        raise ConfigError(
            f"The Riccati equation has no stabilising solution: {error} The usual cause is a marginally "
            f"stable mode of A that Q does not weight, so that bringing it to rest gains nothing. "
            f"Give it a weight in Q, or use a finite horizon."
        ) from error


def _symmetric(matrix: Matrix) -> Matrix:
    return np.asarray(0.5 * (matrix + matrix.T))
