"""A solution of an optimal control problem, with the evidence that it is one."""

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

# Rows of a solution, and the fewest for one arc.
ROWS = 400
ROWS_OF_AN_ARC = 12
# Values of each control component with which the one that was found is compared.
GRID = 101
# Pieces of each arc for the quadrature of the running cost, with a Gauss-Legendre rule of so many points on each.
PIECES, NODES = 64, 5


class Residuals(NamedTuple):
    """How far Pontryagin's conditions are from holding; all of them vanish at a solution."""

    dynamics: float
    """Of ẋ = ∇_λ H and λ̇ = −∇_x H, relative to 1 + |rate|, at points between those of the solver."""
    boundary: float
    """Of the initial state, of the final state where one is given, of continuity, and of the horizon where one is given."""
    transversality: float
    """Of λ(t_f) = ∇Φ where the final state is free, and of H(t_f) = 0 where the final time is."""
    switching: float
    """Of the slopes at which the control law changes from one piece to the next."""
    minimisation: float
    """The most by which another control on a grid has a smaller Hamiltonian, relative to 1 + |H|."""
    hamiltonian_drift: float
    """Range of H over time, relative to 1 + |H|; the problems here do not depend on time, so H is constant."""


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
    """States, co-states and controls over time. Where a control jumps, its time occurs twice, with the values on both sides."""

    name: str
    times: Float[np.ndarray, " T"]
    states: Float[np.ndarray, "T X"]
    costates: Float[np.ndarray, "T X"]
    controls: Float[np.ndarray, "T U"]
    slopes: Float[np.ndarray, "T U"]
    """s = gᵀλ; the switching function of Appendix C is σ = −s."""
    kinks: Float[np.ndarray, "L U"]
    """The slopes at which the control law changes its piece; infinite where it does not."""
    hamiltonians: Float[np.ndarray, " T"]
    cost: float
    switching_times: Float[np.ndarray, " K"]
    """When the control law changes its piece: a jump of a bang-bang control, or a limit that is reached or left."""
    residuals: Residuals
    converged: bool
    """Whether every residual is within `TOLERANCES`: all necessary conditions hold. Where the problem is not convex, the minimum may be local."""
    message: str

    @property
    def final_time(self) -> float:
        return float(self.times[-1])


def as_solution(extremal: Extremal) -> Solution:
    """The solver's polynomials as rows, cost and residuals."""
    problem = extremal.problem
    times, points, controls = _rows(extremal)
    witness = examine(problem, points, controls)
    residuals = _residuals(extremal, witness)
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
        name=problem.name, times=times, states=points[:, 0], costates=points[:, 1], controls=controls, slopes=witness.slopes,
        kinks=np.asarray(problem.control_cost.kinks(problem.limit)), hamiltonians=witness.hamiltonians, cost=_cost(extremal),
        switching_times=extremal.switching_times, residuals=residuals, converged=not failed, message=message,
    )  # fmt: skip


def _rows(
    extremal: Extremal,
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "T 2 X"], Float[np.ndarray, "T U"]]:
    """Times, states with co-states, and controls, arc after arc, with about as many rows for each as it is long."""
    shares = np.abs(extremal.durations) / np.abs(extremal.durations).sum()
    starts = np.concatenate([[0.0], extremal.switching_times])
    times, points, controls = [], [], []
    for arc, (start, duration, share) in enumerate(zip(starts, extremal.durations, shares, strict=True)):
        progress = np.linspace(0.0, 1.0, max(ROWS_OF_AN_ARC, round(ROWS * share)))
        # All arcs at as many points as the longest could have, so that one compiled program serves each of them.
        everywhere = extremal.points(np.pad(progress, (0, ROWS - len(progress)), mode="edge"))
        times.append(start + duration * progress)
        points.append(everywhere[: len(progress), arc])
        controls.append(
            np.asarray(_controls(extremal.problem, extremal.arcs, jnp.asarray(everywhere)))[
                : len(progress), arc
            ]
        )
    return np.concatenate(times), np.concatenate(points), np.concatenate(controls)


class Witness(NamedTuple):
    """What is seen of the Hamiltonian at points of a trajectory."""

    hamiltonians: Float[np.ndarray, " T"]
    slopes: Float[np.ndarray, "T U"]
    improvements: Float[np.ndarray, " T"]
    """How much smaller the Hamiltonian would be if one component of the control had another value on a grid within its limits; at least 0."""


def examine(
    problem: ControlProblem, points: Float[np.ndarray, "T 2 X"], controls: Float[np.ndarray, "T U"]
) -> Witness:
    """The Hamiltonian at states, co-states and controls, and beside these controls."""
    reach = np.where(np.isfinite(problem.limit), problem.limit, 2.0 * np.abs(controls).max(axis=0) + 1.0)
    padding = -len(points) % ROWS
    rows, held = (
        jnp.asarray(np.concatenate([values, np.repeat(values[-1:], padding, axis=0)]))
        for values in (points, controls)
    )
    return Witness(
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


def _residuals(extremal: Extremal, witness: Witness) -> Residuals:
    problem, count = extremal.problem, extremal.arcs.count
    size, scale = problem.state_size, 1.0 + float(np.abs(witness.hamiltonians).max())
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
        minimisation=float(witness.improvements.max()) / scale,
        hamiltonian_drift=float(np.ptp(witness.hamiltonians)) / scale,
    )


def _largest(*parts: np.ndarray) -> float:
    return float(np.max(np.concatenate([np.zeros(1), *parts])))


def _cost(extremal: Extremal) -> float:
    """∫ q + c dt + Φ, by quadrature of the polynomials on every arc."""
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
