"""Optimal control by Pontryagin's minimum principle: the boundary-value problem of Proposition 3.1.

1. Guess a trajectory by direct transcription. If the minimiser of the cost jumps, first smooth the cost.
2. Solve the boundary-value problem with the smooth control law to low accuracy.
3. Find the pieces of the true control law that the slope gᵀλ passes through. The law is smooth on each piece,
   and the duration of each piece is unknown.
4. Solve the boundary-value problem on these arcs to high accuracy. Repeat if the solution implies other arcs.

Reduce the smoothing until every condition holds. The returned solution says whether it does.
"""

import dataclasses
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline

from costate._base.errors import ConfigError
from costate._base.progress import Tell, nobody
from costate._base.types import Float
from costate.control.arcs import WholeArc
from costate.control.boundary_value import Extremal, solve_arcs
from costate.control.costs import AbstractSwitchingCost
from costate.control.problem import ControlProblem
from costate.control.solution import Solution, as_solution
from costate.control.switching import split_at_kinks
from costate.control.transcription import Guess, closest_approach, transcribe

# Extra cost of a control at its limit in the successive smoothed problems.
SMOOTHING = (1.0, 0.1, 0.01, 0.001)
ROUGH, ACCURATE = 1e-3, 1e-9
ROUGH_NODES, ACCURATE_NODES = 4_000, 20_000
# How often the arcs may be revised.
REVISIONS = 4
# Initial mesh points of each arc in the accurate solver, and points at which slopes are evaluated.
MESH, SLOPE_SAMPLES = 41, 1001
# The final state counts as reached within this distance. Controls held constant for short steps cannot be
# expected to come nearer.
REACHED = 1e-2


def solve(problem: ControlProblem, tell: Tell = nobody) -> Solution:
    """Solve one problem in float64.

    If there is no solution, or none is found, the returned `Solution` is not `converged`.
    """
    with jax.enable_x64(True):
        double = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, problem
        )
        laws = _smooth_versions(double)
        tell(None, "looking for a guess by direct transcription")
        guess = transcribe(laws[0])
        if not np.isfinite(guess.points).all():
            over = f"over a horizon of {problem.horizon:g} " if problem.horizon is not None else ""
            raise ConfigError(
                f"{problem.name} overflows {over}from the initial state "
                f"{np.asarray(problem.initial_state).tolist()}: its states or co-states are no longer "
                f"finite. Use a shorter horizon, or start nearer to 0."
            )
        reason = _infeasibility(double) if guess.miss > REACHED else ""
        tried: list[Solution] = []
        tell(None, "solving the boundary-value problem")
        for solution in () if reason else _attempts(double, laws, guess):
            if solution.converged:
                return solution
            tried.append(solution)
            tell(None, f"not yet solved after {len(tried)} attempts")
        best = min([*tried, as_solution(_unsolved(double, guess))], key=_severity)
        return dataclasses.replace(best, message=best.message + reason)


def _smooth_versions(problem: ControlProblem) -> list[ControlProblem]:
    """Return problems with a continuous control law, in the order in which they approach the given one."""
    cost = problem.control_cost
    if not isinstance(cost, AbstractSwitchingCost):
        return [problem]
    return [
        dataclasses.replace(problem, control_cost=cost.smoothed(jnp.asarray(amount), problem.limit))
        for amount in SMOOTHING
    ]


def _attempts(problem: ControlProblem, laws: list[ControlProblem], guess: Guess) -> Iterator[Solution]:
    """Yield solutions that start from the guess, then through the smooth versions, each from the one before.

    The guess is used directly only if the given problem is itself smooth.
    """
    if laws[0] is problem:
        yield from _refined(
            problem, np.linspace(0.0, guess.final_time, len(guess.states)), guess.points[:, 0]
        )
    extremal = _unsolved(problem, guess)
    for law in laws:
        extremal = solve_arcs(
            law,
            WholeArc(),
            extremal.mesh,
            extremal.points(extremal.mesh),
            extremal.durations,
            ROUGH,
            ROUGH_NODES,
        )
        if not (np.isfinite(extremal.points(extremal.mesh)).all() and (extremal.durations > 0.0).all()):
            return
        yield from _refined(problem, *_sampled(extremal))


def _unsolved(problem: ControlProblem, guess: Guess) -> Extremal:
    """Return the guess itself, as one arc."""
    mesh = np.linspace(0.0, 1.0, len(guess.states))
    flat = guess.points.reshape(len(mesh), -1).T
    return Extremal(
        problem,
        WholeArc(),
        CubicSpline(mesh, flat, axis=1),
        mesh,
        np.array([guess.final_time]),
        "it was not started",
    )


def _refined(
    problem: ControlProblem, times: Float[np.ndarray, " T"], points: Float[np.ndarray, "T 2 X"]
) -> Iterator[Solution]:
    """Yield accurate solutions on the arcs that the previous trajectory implies, until these are stable."""
    structure = None
    for _ in range(REVISIONS):
        arcs, durations = split_at_kinks(problem, times, points)
        found = (arcs.components.tolist(), arcs.levels.tolist(), arcs.gains.tolist())
        if found == structure:
            return
        structure = found
        mesh = np.linspace(0.0, 1.0, MESH)
        extremal = solve_arcs(
            problem, arcs, mesh, _on_arcs(times, points, durations, mesh), durations, ACCURATE, ACCURATE_NODES
        )
        if not (np.isfinite(extremal.durations).all() and (extremal.durations > 0.0).all()):
            return
        yield as_solution(extremal)
        times, points = _sampled(extremal)


def _sampled(extremal: Extremal) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "T 2 X"]]:
    """Return the states and co-states of all arcs, concatenated over increasing time."""
    progress = np.linspace(0.0, 1.0, SLOPE_SAMPLES)
    starts = np.concatenate([[0.0], extremal.switching_times])
    everywhere = extremal.points(progress)
    times = [start + duration * progress for start, duration in zip(starts, extremal.durations, strict=True)]
    kept = slice(0, -1)
    inner = [(t[kept], everywhere[kept, arc]) for arc, t in enumerate(times)]
    return np.concatenate([*(t for t, _ in inner), times[-1][-1:]]), np.concatenate(
        [*(p for _, p in inner), everywhere[-1:, -1]]
    )


def _on_arcs(
    times: Float[np.ndarray, " T"],
    points: Float[np.ndarray, "T 2 X"],
    durations: Float[np.ndarray, " K"],
    mesh: Float[np.ndarray, " M"],
) -> Float[np.ndarray, "M K 2 X"]:
    """Return the same trajectory, cut into arcs."""
    starts = np.concatenate([[0.0], np.cumsum(durations)[:-1]])
    when = (starts[None, :] + mesh[:, None] * durations[None, :]).ravel()
    columns = [np.interp(when, times, column) for column in points.reshape(len(times), -1).T]
    return np.stack(columns, axis=1).reshape(len(mesh), len(durations), *points.shape[1:])


def _severity(solution: Solution) -> float:
    worst = max(solution.residuals)
    return worst if np.isfinite(worst) else np.inf


def _infeasibility(problem: ControlProblem) -> str:
    """Return why there is no solution if the final state cannot be reached in time, else an empty string."""
    if problem.final_state is None or problem.horizon is None or not np.isfinite(problem.limit).all():
        return ""
    miss = closest_approach(problem, problem.final_state)
    if miss <= REACHED:
        return ""
    return (
        f". The horizon is infeasible: within {problem.horizon:g} and |u| ≤ "
        f"{np.asarray(problem.limit).tolist()} the closest that any control came to the final state is "
        f"{miss:.3g}. Use a longer horizon or larger limits"
    )
