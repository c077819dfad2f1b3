"""Problems with names, for the command line and as examples of how a problem is put together."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.registry import Registry
from costate._base.types import Array, Float
from costate.control.costs import AbstractControlCost, FreeControl, FuelCost, QuadraticCost
from costate.control.problem import ControlProblem
from costate.control.riccati import LinearQuadratic, as_control_problem
from costate.control.systems import CartPole, Pendulum, double_integrator

PROBLEMS: Registry[Callable[[], ControlProblem]] = Registry("problem")


@PROBLEMS.register("lqr")
def lqr() -> ControlProblem:
    """An undamped oscillator, brought to rest for a quadratic cost; nothing is bounded."""
    matrices = LinearQuadratic(
        np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [1.0]]), np.eye(2), np.eye(1), np.eye(2)
    )
    return as_control_problem(matrices, "lqr", np.array([1.0, 0.0]), 5.0)


@PROBLEMS.register("double-integrator-energy")
def double_integrator_energy() -> ControlProblem:
    """A unit mass moved by 1 from rest to rest in unit time for the least ∫u² dt: u* = 6 − 12t."""
    return _double_integrator("energy", QuadraticCost(jnp.eye(1)), jnp.full(1, jnp.inf), 1.0)


@PROBLEMS.register("double-integrator-time")
def double_integrator_time() -> ControlProblem:
    """A unit mass moved by 1 from rest to rest in the least time with |u| ≤ 1: full thrust, then full brake; t_f = 2."""
    return _double_integrator("time", FreeControl(), jnp.ones(1), None)


@PROBLEMS.register("double-integrator-fuel")
def double_integrator_fuel() -> ControlProblem:
    """A unit mass moved by 1 from rest to rest in a time of 3 for the least ∫|u| dt with |u| ≤ 1: thrust, coast, brake."""
    return _double_integrator("fuel", FuelCost(), jnp.ones(1), 3.0)


@PROBLEMS.register("pendulum")
def pendulum() -> ControlProblem:
    """A pendulum swung up with a torque that cannot lift it at once."""
    system = Pendulum()
    with jax.enable_x64(True):
        return ControlProblem(
            "pendulum", system.drift, system.influence, lambda x: 0.1 * x[1] ** 2 + 2.0 * (1.0 - jnp.cos(x[0])), QuadraticCost(jnp.full((1, 1), 0.1)),
            lambda x: 50.0 * x @ x, jnp.asarray([jnp.pi, 0.0]), jnp.full(1, 5.0), 4.0,
        )  # fmt: skip


@PROBLEMS.register("cartpole")
def cartpole() -> ControlProblem:
    """A pole swung up by its cart, both at rest in the middle of the rail at the end."""
    system = CartPole()
    with jax.enable_x64(True):
        return ControlProblem(
            "cartpole", system.drift, system.influence, lambda x: 0.1 * x[0] ** 2, QuadraticCost(jnp.full((1, 1), 0.01)), _nothing,
            jnp.asarray([0.0, jnp.pi, 0.0, 0.0]), jnp.full(1, 20.0), 2.0, jnp.zeros(4),
        )  # fmt: skip


def _double_integrator(
    kind: str, cost: AbstractControlCost, limit: Float[Array, " U"], horizon: float | None
) -> ControlProblem:
    system = double_integrator()
    # Time costs only where it is free; elsewhere it would add the same number to every trajectory.
    time_cost = _one if horizon is None else _nothing
    return ControlProblem(
        f"double-integrator-{kind}",
        system.drift,
        system.influence,
        time_cost,
        cost,
        _nothing,
        jnp.asarray([-1.0, 0.0]),
        limit,
        horizon,
        jnp.zeros(2),
    )


def _nothing(state: Float[Array, " X"]) -> Float[Array, ""]:
    return jnp.zeros((), state.dtype)


def _one(state: Float[Array, " X"]) -> Float[Array, ""]:
    return jnp.ones((), state.dtype)
