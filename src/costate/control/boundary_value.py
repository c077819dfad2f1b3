"""Solve the boundary-value problem of :mod:`costate.control.arcs` with SciPy, using derivatives from JAX."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy

from costate._base.types import Array, Float
from costate.control.arcs import AbstractArcs, Points, conditions, rates
from costate.control.problem import ControlProblem

# Mesh points that are evaluated in one call.
BATCH = 128
# Points between 0, ½ and 1 at which the residual of a collocation polynomial on [0, 1] is largest.
RESIDUAL_POINTS = 0.5 + 0.5 * np.sqrt(3.0 / 7.0) * np.array([-1.0, 1.0])


@dataclasses.dataclass(frozen=True, eq=False)
class Extremal:
    """States and co-states on every arc as piecewise polynomials, with the arcs' durations."""

    problem: ControlProblem
    arcs: AbstractArcs
    polynomial: Any
    """Maps s to all states and co-states, flattened."""
    mesh: Float[np.ndarray, " M"]
    durations: Float[np.ndarray, " K"]
    message: str
    """The solver's own message."""

    def points(self, progress: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N K 2 X"]:
        """Return states and co-states on every arc at the given fractions of its duration."""
        return np.asarray(
            self.polynomial(progress).T.reshape(len(progress), self.arcs.count, 2, self.problem.state_size)
        )

    @property
    def switching_times(self) -> Float[np.ndarray, " S"]:
        return np.cumsum(self.durations)[:-1]

    @property
    def final_time(self) -> float:
        return float(self.durations.sum())


def solve_arcs(
    problem: ControlProblem,
    arcs: AbstractArcs,
    mesh: Float[np.ndarray, " M"],
    guess: Float[np.ndarray, "M K 2 X"],
    durations: Float[np.ndarray, " K"],
    tolerance: float,
    nodes: int,
) -> Extremal:
    """Solve for states, co-states and durations, starting from a guess.

    `Extremal.message` says why the solver stopped. The residuals say how accurate the result is.
    """
    equations = _Equations(problem, arcs)
    found = scipy.integrate.solve_bvp(
        equations.rates,
        equations.conditions,
        mesh,
        guess.reshape(len(mesh), -1).T,
        p=durations,
        fun_jac=equations.rate_jacobians,
        bc_jac=equations.condition_jacobians,
        tol=tolerance,
        max_nodes=nodes,
        bc_tol=tolerance,
    )
    return Extremal(problem, arcs, found.sol, found.x, found.p, found.message)


def rate_residual(extremal: Extremal) -> float:
    """Return the largest error of the polynomials in the differential equations, relative to 1 + |rate|."""
    steps = np.diff(extremal.mesh)
    points = (extremal.mesh[:-1, None] + steps[:, None] * RESIDUAL_POINTS[None, :]).ravel()
    expected = _Equations(extremal.problem, extremal.arcs).rates(
        points, extremal.polynomial(points), extremal.durations
    )
    return float(np.max(np.abs(extremal.polynomial(points, 1) - expected) / (1.0 + np.abs(expected))))


def condition_residuals(extremal: Extremal) -> Float[np.ndarray, " N"]:
    """Return the boundary conditions' residuals, in the order of :func:`costate.control.arcs.conditions`."""
    starts, ends = extremal.polynomial(np.array([0.0, 1.0])).T
    return _Equations(extremal.problem, extremal.arcs).conditions(starts, ends, extremal.durations)


@eqx.filter_jit
def _rates_and_jacobians(
    problem: ControlProblem,
    arcs: AbstractArcs,
    points: Float[Array, "M K 2 X"],
    durations: Float[Array, " K"],
) -> tuple[Float[Array, "M N"], Float[Array, "M N N"], Float[Array, "M N K"]]:
    # One program returns both. The derivatives cost little to compute, while a second program would double
    # the compile time.
    def rate(point: Points, durations: Float[Array, " K"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        value = rates(problem, arcs, point, durations).ravel()
        return value, value

    def both(point: Points) -> tuple[Float[Array, " N"], Float[Array, "N N"], Float[Array, "N K"]]:
        (by_point, by_duration), value = jax.jacfwd(rate, argnums=(0, 1), has_aux=True)(point, durations)
        return value, by_point.reshape(len(value), -1), by_duration

    return jax.vmap(both)(points)


@eqx.filter_jit
def _conditions_and_jacobians(
    problem: ControlProblem, arcs: AbstractArcs, starts: Points, ends: Points, durations: Float[Array, " K"]
) -> tuple[Float[Array, " N"], tuple[Float[Array, "N Y"], Float[Array, "N Y"], Float[Array, "N K"]]]:
    def residual(*unknown: Array) -> tuple[Array, Array]:
        value = conditions(problem, arcs, *unknown)
        return value, value

    (by_start, by_end, by_duration), value = jax.jacfwd(residual, argnums=(0, 1, 2), has_aux=True)(
        starts, ends, durations
    )
    return value, (by_start.reshape(len(value), -1), by_end.reshape(len(value), -1), by_duration)


@dataclasses.dataclass(frozen=True, eq=False)
class _Equations:
    """The four functions that SciPy calls, with time along the last axis and flat unknowns."""

    problem: ControlProblem
    arcs: AbstractArcs

    def rates(self, _: np.ndarray, y: np.ndarray, durations: np.ndarray) -> np.ndarray:
        return self._over_mesh(y, durations)[0].T

    def rate_jacobians(
        self, _: np.ndarray, y: np.ndarray, durations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        _, by_point, by_duration = self._over_mesh(y, durations)
        return np.moveaxis(by_point, 0, -1).copy(), np.moveaxis(by_duration, 0, -1).copy()

    def conditions(self, ya: np.ndarray, yb: np.ndarray, durations: np.ndarray) -> np.ndarray:
        return np.array(self._at_ends(ya, yb, durations)[0])

    def condition_jacobians(
        self, ya: np.ndarray, yb: np.ndarray, durations: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        return tuple(np.array(part) for part in self._at_ends(ya, yb, durations)[1])

    @property
    def _shape(self) -> tuple[int, int, int]:
        return (self.arcs.count, 2, self.problem.state_size)

    def _at_ends(
        self, ya: np.ndarray, yb: np.ndarray, durations: np.ndarray
    ) -> tuple[Array, tuple[Array, ...]]:
        starts, ends = jnp.asarray(ya).reshape(self._shape), jnp.asarray(yb).reshape(self._shape)
        return _conditions_and_jacobians(self.problem, self.arcs, starts, ends, jnp.asarray(durations))

    def _over_mesh(self, y: np.ndarray, durations: np.ndarray) -> tuple[np.ndarray, ...]:
        """Evaluate in batches of one size, so that meshes of all sizes share one compiled program."""
        count = y.shape[1]
        padded = np.pad(y.T, ((0, -count % BATCH), (0, 0)), mode="edge").reshape(-1, BATCH, *self._shape)
        parts = [
            _rates_and_jacobians(self.problem, self.arcs, jnp.asarray(batch), jnp.asarray(durations))
            for batch in padded
        ]
        return tuple(
            np.concatenate([np.asarray(value) for value in values])[:count]
            for values in zip(*parts, strict=True)
        )
