"""Pontryagin's boundary-value problem, divided into arcs: time intervals on which the control law is smooth.

The time on each arc is scaled to [0, 1].

The unknowns are the states and co-states on K arcs and the duration of each arc. Within an arc (Proposition
3.1)

    dx/ds = d ∇_λ H,    dλ/ds = −d ∇_x H,

where d is the arc's duration. The boundary conditions are the initial state, continuity between arcs, one
condition for each switch, and the final state or transversality. One more condition fixes the sum of the
durations: it equals the horizon, or H(t_f) = 0 if the final time is free.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Int
from costate.control.problem import ControlProblem, hamiltonian, hamiltonian_partials

Points = Float[Array, "K 2 X"]
"""State and co-state, one pair per arc."""


class AbstractArcs(eqx.Module):
    """The control law on each arc, and the conditions under which one arc ends and the next begins."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of arcs, K."""

    @abc.abstractmethod
    def controls(self, problem: ControlProblem, points: Points) -> Float[Array, "K U"]:
        """Return u on each arc."""

    @abc.abstractmethod
    def switching(self, problem: ControlProblem, ends: Points) -> Float[Array, " K-1"]:
        """Return the residuals that are zero at the end of every arc but the last."""


class WholeArc(AbstractArcs):
    """A single arc that uses the minimiser of the Hamiltonian itself, kinks included."""

    @property
    def count(self) -> int:
        return 1

    def controls(self, problem: ControlProblem, points: Points) -> Float[Array, "K U"]:
        return jax.vmap(lambda point: problem.best_control(point[0], point[1]))(points)

    def switching(self, problem: ControlProblem, ends: Points) -> Float[Array, " K-1"]:
        return jnp.zeros(0, ends.dtype)


class SwitchedArcs(AbstractArcs):
    """Arcs on which the minimiser is linear in the slope s = gᵀλ of the Hamiltonian: u = offset + gain s.

    The gain is 0 where the control is at a limit.
    """

    offsets: Float[Array, "K U"]
    gains: Float[Array, "K U U"]
    components: Int[Array, " K-1"]
    """Index of the control component whose slope ends each arc."""
    levels: Float[Array, " K-1"]
    """Value of that slope at the end of the arc."""

    @property
    def count(self) -> int:
        return int(self.offsets.shape[0])

    def controls(self, problem: ControlProblem, points: Points) -> Float[Array, "K U"]:
        return self.offsets + jnp.einsum("kuv,kv->ku", self.gains, slopes(problem, points))

    def switching(self, problem: ControlProblem, ends: Points) -> Float[Array, " K-1"]:
        return (
            jnp.take_along_axis(slopes(problem, ends)[:-1], self.components[:, None], axis=1)[:, 0]
            - self.levels
        )


def slopes(problem: ControlProblem, points: Float[Array, "N 2 X"]) -> Float[Array, "N U"]:
    """Return s = gᵀλ = −σ at many points."""
    influences: Float[Array, "N X U"] = jax.vmap(problem.influence)(points[:, 0])
    return jnp.einsum("nxu,nx->nu", influences, points[:, 1])


def rates(
    problem: ControlProblem, arcs: AbstractArcs, points: Points, durations: Float[Array, " K"]
) -> Points:
    """Return d/ds of the states and co-states on all arcs."""
    partials = jax.vmap(lambda point, control: hamiltonian_partials(problem, point[0], point[1], control))(
        points, arcs.controls(problem, points)
    )
    return durations[:, None, None] * jnp.stack([partials.by_costate, -partials.by_state], axis=1)


def conditions(
    problem: ControlProblem, arcs: AbstractArcs, starts: Points, ends: Points, durations: Float[Array, " K"]
) -> Float[Array, " N"]:
    """Return all 2XK + K residuals of the boundary conditions, which are zero at a solution."""
    final = ends[-1]
    timing = (
        jnp.sum(durations) - problem.horizon
        if problem.horizon is not None
        else final_hamiltonian(problem, arcs, ends)
    )
    return jnp.concatenate(
        [
            starts[0, 0] - problem.initial_state,
            (starts[1:] - ends[:-1]).ravel(),
            arcs.switching(problem, ends),
            end_condition(problem, final),
            timing[None],
        ]
    )


def end_condition(problem: ControlProblem, final: Float[Array, "2 X"]) -> Float[Array, " X"]:
    """Return x(t_f) − x_f if a final state is given, else λ(t_f) − ∇Φ(x(t_f)) for transversality."""
    if problem.final_state is not None:
        return final[0] - problem.final_state
    slope: Float[Array, " X"] = jax.grad(problem.terminal_cost)(final[0])
    return final[1] - slope


def final_hamiltonian(problem: ControlProblem, arcs: AbstractArcs, ends: Points) -> Float[Array, ""]:
    """Return H(t_f), which is zero if the final time is free."""
    return hamiltonian(problem, ends[-1, 0], ends[-1, 1], arcs.controls(problem, ends)[-1])
