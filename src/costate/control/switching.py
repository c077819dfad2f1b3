"""Find the pieces of the control law that a trajectory passes through, from its slopes s = gᵀλ."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Float
from costate.control.arcs import SwitchedArcs, slopes
from costate.control.problem import ControlProblem

# Crossings nearer than this share of the horizon to its ends, or to each other, count as errors of the
# trajectory.
SHORTEST = 1e-4


def split_at_kinks(
    problem: ControlProblem, times: Float[np.ndarray, " T"], points: Float[np.ndarray, "T 2 X"]
) -> tuple[SwitchedArcs, Float[np.ndarray, " K"]]:
    """Return the arcs between crossings of a kink of the minimiser by a slope, and their durations."""
    found = np.asarray(_slopes(problem, jnp.asarray(points)))
    crossings = _crossings(times, found, np.asarray(problem.control_cost.kinks(problem.limit)))
    borders = np.concatenate([times[:1], [when for when, _, _ in crossings], times[-1:]])
    middles = 0.5 * (borders[1:] + borders[:-1])
    offsets, gains = _pieces(
        problem, jnp.asarray(np.stack([np.interp(middles, times, column) for column in found.T], axis=1))
    )
    components, levels = [component for _, component, _ in crossings], [level for _, _, level in crossings]
    return SwitchedArcs(
        offsets, gains, jnp.asarray(components, jnp.int32), jnp.asarray(levels, offsets.dtype)
    ), np.diff(borders)


def _crossings(
    times: Float[np.ndarray, " T"], found: Float[np.ndarray, "T U"], kinks: Float[np.ndarray, "K U"]
) -> list[tuple[float, int, float]]:
    """Return (time, component, level) of each crossing in order of time, by linear interpolation."""
    crossings = []
    for level_index, component in np.ndindex(*kinks.shape):
        level = float(kinks[level_index, component])
        if np.isfinite(level):
            gap = found[:, component] - level
            before = np.flatnonzero((gap[:-1] > 0.0) != (gap[1:] > 0.0))
            share = gap[before] / (gap[before] - gap[before + 1])
            crossings += [
                (float(when), component, level)
                for when in times[before] + share * (times[before + 1] - times[before])
            ]
    return _without_slivers(sorted(crossings), times[0], times[-1])


def _without_slivers(
    crossings: list[tuple[float, int, float]], start: float, end: float
) -> list[tuple[float, int, float]]:
    """Drop crossings at the very ends, and pairs in which a component crosses a level and returns at once."""
    shortest = SHORTEST * (end - start)
    kept: list[tuple[float, int, float]] = []
    for crossing in crossings:
        if kept and kept[-1][1:] == crossing[1:] and crossing[0] - kept[-1][0] < shortest:
            kept.pop()
        elif start + shortest < crossing[0] < end - shortest:
            kept.append(crossing)
    return kept


@eqx.filter_jit
def _slopes(problem: ControlProblem, points: Float[Array, "T 2 X"]) -> Float[Array, "T U"]:
    return slopes(problem, points)


@eqx.filter_jit
def _pieces(
    problem: ControlProblem, at: Float[Array, "K U"]
) -> tuple[Float[Array, "K U"], Float[Array, "K U U"]]:
    """Return the minimiser around each slope as offset + gain · slope, which is exact between kinks."""

    def piece(slope: Float[Array, " U"]) -> tuple[Float[Array, " U"], Float[Array, "U U"]]:
        gain = jax.jacfwd(problem.control_cost.minimiser)(slope, problem.limit)
        return problem.control_cost.minimiser(slope, problem.limit) - gain @ slope, gain

    return jax.vmap(piece)(at)
