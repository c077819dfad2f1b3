"""Optimal control by Pontryagin's minimum principle: the two-point boundary-value problem of Proposition 3.1, solved and checked.

1. A guess by direct transcription. A cost whose minimiser jumps is first replaced by one whose minimiser is continuous.
2. The boundary-value problem with that continuous law, roughly.
3. The pieces of the true law that the slope gᵀλ passes through; between them the law is smooth, and how long each lasts is unknown.
4. The boundary-value problem on these arcs, accurately, and again if its own slopes tell of other arcs.

With less and less smoothing until every condition holds. What is returned says whether it does.
"""

import dataclasses
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._types import Float
from costate.control.arcs import WholeArc
from costate.control.boundary_value import Extremal, solve_arcs
from costate.control.costs import AbstractSwitchingCost
from costate.control.problem import ControlProblem
from costate.control.solution import Solution, as_solution
from costate.control.switching import split_at_kinks
from costate.control.transcription import Guess, closest_approach, transcribe

# What a control at its limit costs more in the smoothed problems, one after the other.
SMOOTHING = (1.0, 0.1, 0.01, 0.001)
ROUGH, ACCURATE = 1e-3, 1e-9
ROUGH_NODES, ACCURATE_NODES = 4_000, 20_000
# How often the arcs may turn out to be others than those assumed.
REVISIONS = 4
# Points of each arc with which the accurate solver starts, and points at which slopes are looked at.
MESH, LOOKS = 41, 1001
# An end farther than this from the final state is not reached; controls held constant for short steps cannot be expected to come nearer.
REACHED = 1e-2


def solve(problem: ControlProblem) -> Solution:
    """Solve one problem in float64. A problem without a solution, or one that was not found, gives a `Solution` that is not `converged`."""
    with jax.enable_x64(True):
        double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, problem)
        best = None
        for solution in _attempts(double):
            best = solution if best is None or _severity(solution) < _severity(best) else best
            if best.converged:
                return best
        assert best is not None
        return dataclasses.replace(best, message=best.message + _explanation(double))


def _attempts(problem: ControlProblem) -> Iterator[Solution]:
    """Solutions with less and less smoothing, each from the one before."""
    cost = problem.control_cost
    amounts = SMOOTHING if isinstance(cost, AbstractSwitchingCost) else (None,)
    rough = None
    for amount in amounts:
        smooth = problem
        if amount is not None and isinstance(cost, AbstractSwitchingCost):
            smooth = dataclasses.replace(problem, control_cost=cost.smoothed(jnp.asarray(amount), problem.limit))
        rough = _from_guess(smooth, transcribe(smooth)) if rough is None else _from_extremal(smooth, rough)
        yield from _refined(problem, rough)


def _from_guess(problem: ControlProblem, guess: Guess) -> Extremal:
    mesh = np.linspace(0.0, 1.0, len(guess.states))
    return solve_arcs(problem, WholeArc(), mesh, guess.points, np.array([guess.final_time]), ROUGH, ROUGH_NODES)


def _from_extremal(problem: ControlProblem, earlier: Extremal) -> Extremal:
    return solve_arcs(problem, WholeArc(), earlier.mesh, earlier.points(earlier.mesh), earlier.durations, ROUGH, ROUGH_NODES)


def _refined(problem: ControlProblem, rough: Extremal) -> Iterator[Solution]:
    """Accurate solutions on the arcs that the one before implies, until they imply themselves."""
    extremal = rough
    structure = None
    for _ in range(REVISIONS):
        times, points = _sampled(extremal)
        arcs, durations = split_at_kinks(problem, times, points)
        found = (arcs.components.tolist(), arcs.levels.tolist(), arcs.gains.tolist())
        if found == structure:
            return
        structure = found
        mesh = np.linspace(0.0, 1.0, MESH)
        extremal = solve_arcs(problem, arcs, mesh, _on_arcs(times, points, durations, mesh), durations, ACCURATE, ACCURATE_NODES)
        if not (np.isfinite(extremal.durations).all() and (extremal.durations > 0.0).all()):
            return
        yield as_solution(extremal)


def _sampled(extremal: Extremal) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "T 2 X"]]:
    """States and co-states over increasing time, all arcs in a row."""
    progress = np.linspace(0.0, 1.0, LOOKS)
    starts = np.concatenate([[0.0], extremal.switching_times])
    everywhere = extremal.points(progress)
    times = [start + duration * progress for start, duration in zip(starts, extremal.durations, strict=True)]
    kept = slice(0, -1)
    inner = [(t[kept], everywhere[kept, arc]) for arc, t in enumerate(times)]
    return np.concatenate([*(t for t, _ in inner), times[-1][-1:]]), np.concatenate([*(p for _, p in inner), everywhere[-1:, -1]])


def _on_arcs(
    times: Float[np.ndarray, " T"], points: Float[np.ndarray, "T 2 X"], durations: Float[np.ndarray, " K"], mesh: Float[np.ndarray, " M"]
) -> Float[np.ndarray, "M K 2 X"]:
    """The same trajectory, cut into arcs."""
    starts = np.concatenate([[0.0], np.cumsum(durations)[:-1]])
    when = (starts[None, :] + mesh[:, None] * durations[None, :]).ravel()
    columns = [np.interp(when, times, column) for column in points.reshape(len(times), -1).T]
    return np.stack(columns, axis=1).reshape(len(mesh), len(durations), *points.shape[1:])


def _severity(solution: Solution) -> float:
    worst = max(solution.residuals)
    return worst if np.isfinite(worst) else np.inf


def _explanation(problem: ControlProblem) -> str:
    """Why there may be no solution: a final state that cannot be reached in time."""
    if problem.final_state is None or problem.horizon is None or not np.isfinite(problem.limit).all():
        return ""
    miss = closest_approach(problem, problem.final_state)
    if miss <= REACHED:
        return ""
    return (
        f". The horizon is infeasible: within {problem.horizon:g} and |u| ≤ {np.asarray(problem.limit).tolist()} the nearest that any control found "
        f"comes to the final state is {miss:.3g}. Use a longer horizon or larger limits"
    )
