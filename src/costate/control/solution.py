"""A solution of an optimal control problem, with residuals that show whether it is one."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_legendre

from costate._base.types import Array, Float
from costate.control.arcs import AbstractArcs, slopes
from costate.control.boundary_value import Extremal, condition_residuals, rate_residual
from costate.control.problem import ControlProblem, hamiltonian

# Rows of a whole solution, and the fewest of one arc.
ROWS = 400
ROWS_OF_AN_ARC = 12
# Grid values of each control component with which the solution's control is compared.
GRID = 101
# Pieces of each arc for the quadrature of the running cost, and Gauss-Legendre nodes on each piece.
PIECES, NODES = 64, 5


class Residuals(NamedTuple):
    """Violations of Pontryagin's conditions. All are zero at a solution."""

    dynamics: float
    """Violation of ẋ = ∇_λ H and λ̇ = −∇_x H, relative to 1 + |rate|, between the solver's points."""
    boundary: float
    """Violation of the initial state, of continuity, and of the final state and horizon if they are given."""
    transversality: float
    """Violation of λ(t_f) = ∇Φ if the final state is free, and of H(t_f) = 0 if the final time is free."""
    switching: float
    """Distance of the slopes at switches from those at which the control law changes pieces."""
    minimisation: float
    """Largest decrease of the Hamiltonian by any other control on a grid, relative to 1 + |H|."""
    hamiltonian_drift: float
    """Range of H over time, relative to 1 + |H|.

    H is constant, because the problems do not depend on time.
    """


TOLERANCES = Residuals(
    dynamics=1e-6,
    boundary=1e-8,
    transversality=1e-8,
    switching=1e-8,
    minimisation=1e-6,
    hamiltonian_drift=1e-6,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """States, co-states and controls over time.

    The time of a jump of the control occurs twice, with the values on both sides.
    """

    name: str
    times: Float[np.ndarray, " T"]
    states: Float[np.ndarray, "T X"]
    costates: Float[np.ndarray, "T X"]
    controls: Float[np.ndarray, "T U"]
    slopes: Float[np.ndarray, "T U"]
    """s = gᵀλ. The switching function of Appendix C is σ = −s."""
    kinks: Float[np.ndarray, "L U"]
    """Slopes at which the control law changes pieces. Infinite if it does not."""
    hamiltonians: Float[np.ndarray, " T"]
    cost: float
    switching_times: Float[np.ndarray, " K"]
    """Times at which the control law changes pieces, for example by a jump or at a limit."""
    residuals: Residuals
    converged: bool
    """Whether every residual is within `TOLERANCES`, so that all necessary conditions hold.

    If the problem is not convex, the minimum may be local.
    """
    message: str

    @property
    def final_time(self) -> float:
        return float(self.times[-1])


def as_solution(extremal: Extremal) -> Solution:
    """Sample the solver's polynomials, and add the cost and the residuals."""
    problem = extremal.problem
    times, points, controls = _rows(extremal)
    check = examine(problem, points, controls)
    residuals = _residuals(extremal, check)
    failed = [
        name
        for name, value, allowed in zip(Residuals._fields, residuals, TOLERANCES, strict=True)
        if not value <= allowed
    ]
    message = (
        f"not converged: {', '.join(failed)} (the boundary-value solver said: {extremal.message})"
        if failed
        else "converged"
    )
    return Solution(
        name=problem.name,
        times=times,
        states=points[:, 0],
        costates=points[:, 1],
        controls=controls,
        slopes=check.slopes,
        kinks=np.asarray(problem.control_cost.kinks(problem.limit)),
        hamiltonians=check.hamiltonians,
        cost=_cost(extremal),
        switching_times=extremal.switching_times,
        residuals=residuals,
        converged=not failed,
        message=message,
    )


def _rows(
    extremal: Extremal,
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "T 2 X"], Float[np.ndarray, "T U"]]:
    """Return times, states with co-states, and controls, with rows in proportion to each arc's duration."""
    shares = np.abs(extremal.durations) / np.abs(extremal.durations).sum()
    starts = np.concatenate([[0.0], extremal.switching_times])
    times, points, controls = [], [], []
    for arc, (start, duration, share) in enumerate(zip(starts, extremal.durations, shares, strict=True)):
        progress = np.linspace(0.0, 1.0, max(ROWS_OF_AN_ARC, round(ROWS * share)))
        # Every arc is padded to the size of the longest possible one, so that they share one compiled
        # program.
        everywhere = extremal.points(np.pad(progress, (0, ROWS - len(progress)), mode="edge"))
        times.append(start + duration * progress)
        points.append(everywhere[: len(progress), arc])
        controls.append(
            np.asarray(_controls(extremal.problem, extremal.arcs, jnp.asarray(everywhere)))[
                : len(progress), arc
            ]
        )
    return np.concatenate(times), np.concatenate(points), np.concatenate(controls)


class HamiltonianCheck(NamedTuple):
    """The Hamiltonian and related quantities at points of a trajectory."""

    hamiltonians: Float[np.ndarray, " T"]
    slopes: Float[np.ndarray, "T U"]
    improvements: Float[np.ndarray, " T"]
    """Largest decrease of the Hamiltonian when one control component takes another value on a grid.

    At least 0.
    """


def examine(
    problem: ControlProblem, points: Float[np.ndarray, "T 2 X"], controls: Float[np.ndarray, "T U"]
) -> HamiltonianCheck:
    """Evaluate the Hamiltonian at states, co-states and controls, and at other controls on a grid."""
    reach = np.where(np.isfinite(problem.limit), problem.limit, 2.0 * np.abs(controls).max(axis=0) + 1.0)
    padding = -len(points) % ROWS
    rows, held = (
        jnp.asarray(np.concatenate([values, np.repeat(values[-1:], padding, axis=0)]))
        for values in (points, controls)
    )
    return HamiltonianCheck(
        *(
            np.asarray(part)[: len(points)]
            for part in _examine(problem, rows, held, jnp.asarray(np.linspace(-reach, reach, GRID)))
        )
    )


@eqx.filter_jit
def _examine(
    problem: ControlProblem,
    points: Float[Array, "T 2 X"],
    controls: Float[Array, "T U"],
    grid: Float[Array, "G U"],
) -> tuple[Float[Array, " T"], Float[Array, "T U"], Float[Array, " T"]]:
    def improvement(
        point: Float[Array, "2 X"], control: Float[Array, " U"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        candidates = jnp.where(jnp.eye(len(control), dtype=bool)[None], grid[:, :, None], control[None, None])
        value = hamiltonian(problem, point[0], point[1], control)
        others = jax.vmap(lambda other: hamiltonian(problem, point[0], point[1], other))(
            candidates.reshape(-1, len(control))
        )
        return value, jnp.maximum(value - jnp.min(others), 0.0)

    hamiltonians, improvements = jax.vmap(improvement)(points, controls)
    return hamiltonians, slopes(problem, points), improvements


@eqx.filter_jit
def _controls(
    problem: ControlProblem, arcs: AbstractArcs, points: Float[Array, "N K 2 X"]
) -> Float[Array, "N K U"]:
    return jax.vmap(lambda point: arcs.controls(problem, point))(points)


def _residuals(extremal: Extremal, check: HamiltonianCheck) -> Residuals:
    problem, count = extremal.problem, extremal.arcs.count
    size, scale = problem.state_size, 1.0 + float(np.abs(check.hamiltonians).max())
    conditions = np.abs(condition_residuals(extremal))
    start, switching, end, timing = np.split(
        conditions, np.cumsum([size + 2 * size * (count - 1), count - 1, size])
    )
    fixed_end, fixed_time = problem.final_state is not None, problem.horizon is not None
    boundary = [start, end if fixed_end else end[:0], timing if fixed_time else timing[:0]]
    transversality = [end[:0] if fixed_end else end, timing[:0] if fixed_time else timing]
    return Residuals(
        dynamics=rate_residual(extremal),
        boundary=_largest(*boundary),
        transversality=_largest(*transversality),
        switching=_largest(switching),
        minimisation=float(check.improvements.max()) / scale,
        hamiltonian_drift=float(np.ptp(check.hamiltonians)) / scale,
    )


def _largest(*parts: np.ndarray) -> float:
    return float(np.max(np.concatenate([np.zeros(1), *parts])))


def _cost(extremal: Extremal) -> float:
    """Return ∫ q + c dt + Φ, by quadrature of the polynomials on every arc."""
    nodes, weights = roots_legendre(NODES)
    progress = ((np.arange(PIECES)[:, None] + 0.5 + 0.5 * nodes[None, :]) / PIECES).ravel()
    running = np.asarray(
        _running_costs(extremal.problem, extremal.arcs, jnp.asarray(extremal.points(progress)))
    )
    integrals = np.tile(0.5 * weights / PIECES, PIECES) @ running
    return float(
        integrals @ extremal.durations
        + extremal.problem.terminal_cost(jnp.asarray(extremal.points(np.ones(1))[0, -1, 0]))
    )


@eqx.filter_jit
def _running_costs(
    problem: ControlProblem, arcs: AbstractArcs, points: Float[Array, "N K 2 X"]
) -> Float[Array, "N K"]:
    return jax.vmap(lambda point: jax.vmap(problem.running_cost)(point[:, 0], arcs.controls(problem, point)))(
        points
    )
