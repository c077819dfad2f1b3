"""One control for several candidate systems, which minimises the mean Hamiltonian (Appendix D).

    ẋ_i = f_i(x_i) + g_i(x_i)u,    λ̇_i = −∇_x H_i,    λ_i(t_f) = ∇Φ_i,
    u* = argmin_u (1/m) Σ_i H_i(x_i, λ_i, u)

These are the conditions of a single problem with the states of all members and the mean of their costs. Its
co-state is λ_i / m, because a change of one member's cost changes the mean by an m-th of that.
"""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Float
from costate.control.pontryagin import solve
from costate.control.problem import ControlProblem, State
from costate.control.solution import Solution


@dataclasses.dataclass(frozen=True, eq=False)
class EnsembleSolution:
    """The shared control, and the trajectory and co-states of every member."""

    joint: Solution
    """Solution for the mean cost. States are those of all members, concatenated.

    Co-states are those of the members divided by the number of members.
    """
    states: Float[np.ndarray, "T M X"]
    costates: Float[np.ndarray, "T M X"]
    """λ_i, each for its own member's cost."""


class SideBySide(eqx.Module):
    """Functions of each member's state, joined into one function of the joint state."""

    parts: list[Callable[[State], Array]]

    def __call__(self, joint: State) -> Array:
        return jnp.concatenate(
            [part(state) for part, state in zip(self.parts, jnp.split(joint, len(self.parts)), strict=True)]
        )


class Mean(eqx.Module):
    """The mean of the members' costs, as a function of the joint state."""

    parts: list[Callable[[State], Float[Array, ""]]]

    def __call__(self, joint: State) -> Float[Array, ""]:
        return jnp.mean(
            jnp.stack(
                [
                    part(state)
                    for part, state in zip(self.parts, jnp.split(joint, len(self.parts)), strict=True)
                ]
            )
        )


def solve_ensemble(members: Sequence[ControlProblem]) -> EnsembleSolution:
    """Return the open-loop control that minimises the mean cost over all members."""
    joint = solve(joint_problem(members))
    shape = (len(joint.times), len(members), members[0].state_size)
    return EnsembleSolution(joint, joint.states.reshape(shape), len(members) * joint.costates.reshape(shape))


def joint_problem(members: Sequence[ControlProblem]) -> ControlProblem:
    """Return one problem with the states of all members, a shared control and the mean cost."""
    # Members in float64 keep their precision, even in a process that uses float32.
    with jax.enable_x64(True):
        _check_members(members)
        return ControlProblem(
            f"{len(members)} × {members[0].name}",
            SideBySide([m.drift for m in members]),
            SideBySide([m.influence for m in members]),
            Mean([m.state_cost for m in members]),
            members[0].control_cost,
            Mean([m.terminal_cost for m in members]),
            jnp.concatenate([m.initial_state for m in members]),
            members[0].limit,
            members[0].horizon,
        )


def _check_members(members: Sequence[ControlProblem]) -> None:
    if not members:
        raise ConfigError("The ensemble is empty; it needs at least one member.")
    first = members[0]
    for index, member in enumerate(members):
        shared = [(m.state_size, m.control_cost, m.limit, m.horizon) for m in (first, member)]
        if not eqx.tree_equal(*shared):
            raise ConfigError(
                f"Member {index} of the ensemble ({member.name}) differs from the first one ({first.name}) "
                f"in state size, control cost, limits or horizon. Members share one control, so these must "
                f"be equal."
            )
        if member.horizon is None or member.final_state is not None:
            raise ConfigError(
                f"Member {index} of the ensemble ({member.name}) has a free final time or a fixed final "
                f"state, but one control cannot bring several systems to one state. "
                f"Give a horizon, and replace the final state by a terminal cost."
            )
