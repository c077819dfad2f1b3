"""Control problems in the paper's form, and their Hamiltonian (Section 3.1).

The dynamics are ẋ = f(x) + g(x)u, and the cost ∫ q(x) + c(u) dt + Φ(x(t_f)) is minimised.
A critic predicts reward, so its gradient is −λ.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from costate._base.counted import counted
from costate._base.errors import ConfigError
from costate._base.types import Array, Float
from costate.control.costs import AbstractControlCost, FuelCost, QuadraticCost

State = Float[Array, " X"]
Control = Float[Array, " U"]


class ControlProblem(eqx.Module):
    """An optimal control problem from a given initial state.

    All functions take one state, and JAX can trace them.
    """

    name: str = eqx.field(static=True)
    drift: Callable[[State], State]
    """f(x)."""
    influence: Callable[[State], Float[Array, "X U"]]
    """g(x)."""
    state_cost: Callable[[State], Float[Array, ""]]
    """q(x), the running cost of the state."""
    control_cost: AbstractControlCost
    """c(u), the running cost of the control."""
    terminal_cost: Callable[[State], Float[Array, ""]]
    """Φ(x)."""
    initial_state: Float[Array, " X"]
    limit: Float[Array, " U"]
    """Largest absolute value of each component of the control. May be infinite."""
    horizon: float | None = None
    """t_f. None leaves it free, so that H(t_f) = 0 determines it."""
    final_state: Float[Array, " X"] | None = None
    """Required state at t_f. None leaves it free, so that λ(t_f) = ∇Φ."""

    def __check_init__(self) -> None:
        check_problem(self)

    @property
    def state_size(self) -> int:
        return int(self.initial_state.shape[0])

    @property
    def control_size(self) -> int:
        return int(self.limit.shape[0])

    def velocity(self, state: State, control: Control) -> State:
        """Return ẋ = f(x) + g(x)u = ∇_λ H."""
        return self.drift(state) + self.influence(state) @ control

    def running_cost(self, state: State, control: Control) -> Float[Array, ""]:
        """Return L(x, u) = q(x) + c(u)."""
        return self.state_cost(state) + self.control_cost.value(control)

    def best_control(self, state: State, costate: State) -> Control:
        """Return u* = argmin_u H(x, λ, u)."""
        return self.control_cost.minimiser(self.influence(state).T @ costate, self.limit)


class Partials(NamedTuple):
    """Partial derivatives of the Hamiltonian: the right-hand sides of Proposition 3.1, and ∇_u H.

    ∇_u H is zero at an optimal control that is not at a limit.
    """

    by_state: Float[Array, " X"]
    """∇_x H = ∇q + (∇_x ẋ) λ = −λ̇."""
    by_costate: Float[Array, " X"]
    """∇_λ H = ẋ."""
    by_control: Float[Array, " U"]
    """∇_u H."""


def hamiltonian(problem: ControlProblem, state: State, costate: State, control: Control) -> Float[Array, ""]:
    """Return H(x, λ, u) = q(x) + c(u) + λᵀ(f(x) + g(x)u) (Eq. 3.1)."""
    return problem.running_cost(state, control) + costate @ problem.velocity(state, control)


def hamiltonian_partials(problem: ControlProblem, state: State, costate: State, control: Control) -> Partials:
    """Return all partial derivatives of the Hamiltonian."""
    by_state, by_costate, by_control = jax.grad(
        lambda *point: hamiltonian(problem, *point), argnums=(0, 1, 2)
    )(state, costate, control)
    return Partials(by_state, by_costate, by_control)


def check_problem(problem: ControlProblem) -> None:
    """Raise unless all parts fit together. The message names the part that does not."""
    states, controls = problem.initial_state, problem.limit
    if states.ndim != 1 or controls.ndim != 1 or not states.size or not controls.size:
        raise ConfigError(
            f"{problem.name}: initial_state has shape {states.shape} and limit has shape {controls.shape}, "
            f"but they must be vectors: one number per state component, and one per actuator."
        )
    if not isinstance(states, jax.core.Tracer) and not np.isfinite(states).all():
        raise ConfigError(
            f"{problem.name}: initial_state is {np.asarray(states).tolist()}, but every component must be a "
            f"finite number. Give {counted(states.size, 'number')}, one for each component of the state."
        )
    size, width = states.shape[0], controls.shape[0]
    expected = {"drift": (size,), "influence": (size, width), "state_cost": (), "terminal_cost": ()}
    for name, shape in expected.items():
        # Shapes do not depend on precision, and a float64 problem may be checked in a process that uses
        # float32.
        with jax.enable_x64(True):
            found = jax.eval_shape(getattr(problem, name), states).shape
        if found != shape:
            raise ConfigError(
                f"{problem.name}: {name} returns an array of shape {found}, but with {size} state components "
                f"and {width} control components it must have shape {shape}."
            )
    if problem.final_state is not None and problem.final_state.shape != (size,):
        raise ConfigError(
            f"{problem.name}: final_state has shape {problem.final_state.shape}, but the state has {size} "
            f"components."
        )
    if problem.horizon is not None and not (np.isfinite(problem.horizon) and problem.horizon > 0.0):
        raise ConfigError(
            f"{problem.name}: horizon is {problem.horizon}, but it must be a positive time, or None for a "
            f"free one."
        )
    _check_limits(problem, np.asarray(controls))


def _check_limits(problem: ControlProblem, limit: np.ndarray) -> None:
    cost = problem.control_cost
    if not (limit > 0.0).all():
        raise ConfigError(
            f"{problem.name}: limit is {limit.tolist()}, but every actuator needs a positive one; `inf` "
            f"means no limit."
        )
    if isinstance(cost, QuadraticCost):
        if cost.weight.shape != (limit.size, limit.size):
            raise ConfigError(
                f"{problem.name}: R has shape {cost.weight.shape}, but with {limit.size} actuators it must "
                f"have shape ({limit.size}, {limit.size})."
            )
        coupled = not np.allclose(np.asarray(cost.weight), np.diag(np.diag(np.asarray(cost.weight))))
        if coupled and np.isfinite(limit).any():
            raise ConfigError(
                f"{problem.name}: R couples actuators that have limits, so clipping R⁻¹ no longer minimises "
                f"the Hamiltonian. Use a diagonal R, or no limits."
            )
    elif not np.isfinite(limit).all():
        kind = "fuel" if isinstance(cost, FuelCost) else "no"
        raise ConfigError(
            f"{problem.name}: limit is {limit.tolist()}, but with {kind} cost of control the Hamiltonian has "
            f"no minimum unless every actuator has a finite limit."
        )


class QuadraticForm(eqx.Module):
    """xᵀWx, as a cost of the state."""

    weight: Float[Array, "X X"]

    def __call__(self, state: State) -> Float[Array, ""]:
        return state @ self.weight.astype(state.dtype) @ state
