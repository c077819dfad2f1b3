"""SciPy's collocation solver for the boundary-value problem of :mod:`costate.control.arcs`, with derivatives from JAX."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate

from costate._types import Array, Float
from costate.control.arcs import AbstractArcs, conditions, rates
from costate.control.problem import ControlProblem

# Meshes are padded to one of few sizes, because every size is compiled anew.
SMALLEST_BATCH = 128
# Where the residual of a collocation polynomial on 0 … 1 is largest: between its points 0, ½ and 1.
WITNESSES = 0.5 + 0.5 * np.sqrt(3.0 / 7.0) * np.array([-1.0, 1.0])


@dataclasses.dataclass(frozen=True, eq=False)
class Extremal:
    """States and co-states on every arc as piecewise polynomials, with the arcs' durations."""

    problem: ControlProblem
    arcs: AbstractArcs
    polynomial: Any
    """s ↦ all states and co-states, flat."""
    mesh: Float[np.ndarray, " M"]
    durations: Float[np.ndarray, " K"]
    message: str
    """What the solver said."""

    def points(self, progress: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N K 2 X"]:
        """States and co-states on every arc, at these fractions of it."""
        return np.asarray(self.polynomial(progress).T.reshape(len(progress), self.arcs.count, 2, self.problem.state_size))

    @property
    def switching_times(self) -> Float[np.ndarray, " K-1"]:
        return np.cumsum(self.durations)[:-1]

    @property
    def final_time(self) -> float:
        return float(self.durations.sum())


def solve_arcs(
    problem: ControlProblem, arcs: AbstractArcs, mesh: Float[np.ndarray, " M"], guess: Float[np.ndarray, "M K 2 X"], durations: Float[np.ndarray, " K"],
    tolerance: float, nodes: int,
) -> Extremal:  # fmt: skip
    """Solve for states, co-states and durations from a guess of them; `Extremal.message` tells how it went, residuals tell how well."""
    shape = (arcs.count, 2, problem.state_size)
    found = scipy.integrate.solve_bvp(
        lambda _, y, d: _over_mesh(_rates, problem, arcs, shape, y, d).T,
        lambda ya, yb, d: np.asarray(_conditions(problem, arcs, *_unflatten(shape, ya, yb), jnp.asarray(d))),
        mesh, guess.reshape(len(mesh), -1).T, p=durations,
        fun_jac=lambda _, y, d: _rate_jacobians(problem, arcs, shape, y, d),
        bc_jac=lambda ya, yb, d: _condition_jacobians(problem, arcs, shape, ya, yb, d),
        tol=tolerance, max_nodes=nodes, bc_tol=tolerance,
    )  # fmt: skip
    return Extremal(problem, arcs, found.sol, found.x, found.p, found.message)


def rate_residual(extremal: Extremal) -> float:
    """The largest amount by which the polynomials miss the differential equations, where they miss them most, relative to 1 + |rate|."""
    steps = np.diff(extremal.mesh)
    witnesses = (extremal.mesh[:-1, None] + steps[:, None] * WITNESSES[None, :]).ravel()
    shape = (extremal.arcs.count, 2, extremal.problem.state_size)
    expected = _over_mesh(_rates, extremal.problem, extremal.arcs, shape, extremal.polynomial(witnesses), extremal.durations).T
    return float(np.max(np.abs(extremal.polynomial(witnesses, 1) - expected) / (1.0 + np.abs(expected))))


def condition_residuals(extremal: Extremal) -> Float[np.ndarray, " N"]:
    """All boundary conditions at the solution, in the order of :func:`costate.control.arcs.conditions`."""
    starts, ends = extremal.points(np.array([0.0, 1.0]))
    return np.asarray(_conditions(extremal.problem, extremal.arcs, jnp.asarray(starts), jnp.asarray(ends), jnp.asarray(extremal.durations)))


@eqx.filter_jit
def _rates(problem: ControlProblem, arcs: AbstractArcs, points: Float[Array, "M K 2 X"], durations: Float[Array, " K"]) -> Float[Array, "M N"]:
    return jax.vmap(lambda point: rates(problem, arcs, point, durations).ravel())(points)


@eqx.filter_jit
def _rate_jacobian(
    problem: ControlProblem, arcs: AbstractArcs, points: Float[Array, "M K 2 X"], durations: Float[Array, " K"]
) -> tuple[Float[Array, "M N N"], Float[Array, "M N K"]]:
    def jacobian(point: Float[Array, "K 2 X"]) -> tuple[Float[Array, "N N"], Float[Array, "N K"]]:
        by_point, by_duration = jax.jacfwd(lambda p, d: rates(problem, arcs, p, d).ravel(), argnums=(0, 1))(point, durations)
        return by_point.reshape(len(by_point), -1), by_duration

    return jax.vmap(jacobian)(points)


@eqx.filter_jit
def _conditions(problem: ControlProblem, arcs: AbstractArcs, starts: Array, ends: Array, durations: Array) -> Array:
    return conditions(problem, arcs, starts, ends, durations)


@eqx.filter_jit
def _condition_jacobian(problem: ControlProblem, arcs: AbstractArcs, starts: Array, ends: Array, durations: Array) -> tuple[Array, Array, Array]:
    return jax.jacfwd(lambda *unknown: conditions(problem, arcs, *unknown), argnums=(0, 1, 2))(starts, ends, durations)


def _rate_jacobians(problem: ControlProblem, arcs: AbstractArcs, shape: tuple[int, ...], y: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    by_point, by_duration = _over_mesh(_rate_jacobian, problem, arcs, shape, y, d)
    # Copies, because SciPy adds to what it is given.
    return np.moveaxis(by_point, 0, -1).copy(), np.moveaxis(by_duration, 0, -1).copy()


def _condition_jacobians(
    problem: ControlProblem, arcs: AbstractArcs, shape: tuple[int, ...], ya: np.ndarray, yb: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    by_start, by_end, by_duration = _condition_jacobian(problem, arcs, *_unflatten(shape, ya, yb), jnp.asarray(d))
    rows = len(by_duration)
    return np.asarray(by_start).reshape(rows, -1), np.asarray(by_end).reshape(rows, -1), np.asarray(by_duration)


def _unflatten(shape: tuple[int, ...], *flat: np.ndarray) -> tuple[Array, ...]:
    return tuple(jnp.asarray(y).reshape(shape) for y in flat)


def _over_mesh(function: Callable[..., Any], problem: ControlProblem, arcs: AbstractArcs, shape: tuple[int, ...], y: np.ndarray, d: np.ndarray) -> Any:
    """A function of all points of a mesh, computed on a batch of one of few sizes."""
    count = y.shape[1]
    size = max(SMALLEST_BATCH, 1 << (count - 1).bit_length())
    batch = np.pad(y.T, ((0, size - count), (0, 0)), mode="edge").reshape(size, *shape)
    return jax.tree.map(lambda values: np.asarray(values)[:count], function(problem, arcs, jnp.asarray(batch), jnp.asarray(d)))
