"""One control for several systems that may each be the true one: minimisation of the mean Hamiltonian (Appendix D).

    ẋ_i = f_i(x_i) + g_i(x_i)u,    λ̇_i = −∇_x H_i,    λ_i(t_f) = ∇Φ_i,    u* = argmin_u (1/m) Σ_i H_i(x_i, λ_i, u)

These are the conditions of one problem whose state is that of all members and whose cost is their mean. Its co-state is λ_i / m, because moving one
member changes the mean by an m-th of what it changes that member's cost.
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
    """The shared control, and what it does to every member."""

    joint: Solution
    """Of the mean cost; its states are those of all members in a row, its co-states those of the members divided by their number."""
    states: Float[np.ndarray, "T M X"]
    costates: Float[np.ndarray, "T M X"]
    """λ_i, each with respect to its own member's cost."""


class SideBySide(eqx.Module):
    """Functions of the members' states, joined."""

    parts: list[Callable[[State], Array]]

    def __call__(self, joint: State) -> Array:
        return jnp.concatenate(
            [part(state) for part, state in zip(self.parts, jnp.split(joint, len(self.parts)), strict=True)]
        )


class Mean(eqx.Module):
    """Costs of the members' states, averaged."""

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
    """The open-loop control that minimises the mean cost over all members."""
    joint = solve(joint_problem(members))
    shape = (len(joint.times), len(members), members[0].state_size)
    return EnsembleSolution(joint, joint.states.reshape(shape), len(members) * joint.costates.reshape(shape))


def joint_problem(members: Sequence[ControlProblem]) -> ControlProblem:
    """All members side by side under one control, for their mean cost."""
    # Members in float64 stay so, where the process is in float32.
    with jax.enable_x64(True):
        _check_members(members)
        return ControlProblem(
            f"{len(members)} × {members[0].name}", SideBySide([m.drift for m in members]), SideBySide([m.influence for m in members]),
            Mean([m.state_cost for m in members]), members[0].control_cost, Mean([m.terminal_cost for m in members]),
            jnp.concatenate([m.initial_state for m in members]), members[0].limit, members[0].horizon,
        )  # fmt: skip


def _check_members(members: Sequence[ControlProblem]) -> None:
    if not members:
        raise ConfigError("The ensemble is empty; it needs at least one member.")
    first = members[0]
    for index, member in enumerate(members):
        shared = [(m.state_size, m.control_cost, m.limit, m.horizon) for m in (first, member)]
        if not eqx.tree_equal(*shared):
            raise ConfigError(
                f"Member {index} of the ensemble ({member.name}) has another size of state, cost of control, limit or horizon than the first one "
                f"({first.name}). Members share one control, so they must share what it costs, its limits and how long it lasts."
            )
        if member.horizon is None or member.final_state is not None:
            raise ConfigError(
                f"Member {index} of the ensemble ({member.name}) has a free final time or a fixed final state, but one control cannot bring several "
                f"systems to one state. Give a horizon, and judge the end by a terminal cost."
            )
