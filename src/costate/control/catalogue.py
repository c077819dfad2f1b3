"""Named control problems, for the command line and as examples of how to define one."""

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
    """The regulation of an undamped oscillator with quadratic cost and no limits."""
    matrices = LinearQuadratic(
        np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [1.0]]), np.eye(2), np.eye(1), np.eye(2)
    )
    return as_control_problem(matrices, "lqr", np.array([1.0, 0.0]), 5.0)


@PROBLEMS.register("double-integrator-energy")
def double_integrator_energy() -> ControlProblem:
    """The minimum-energy move of a unit mass by 1, rest to rest, in unit time: u* = 6 − 12t."""
    return _double_integrator("energy", QuadraticCost(jnp.eye(1)), jnp.full(1, jnp.inf), 1.0)


@PROBLEMS.register("double-integrator-time")
def double_integrator_time() -> ControlProblem:
    """The minimum-time move of a unit mass by 1, rest to rest, with |u| ≤ 1.

    The solution is full thrust, then full brake, with t_f = 2.
    """
    return _double_integrator("time", FreeControl(), jnp.ones(1), None)


@PROBLEMS.register("double-integrator-fuel")
def double_integrator_fuel() -> ControlProblem:
    """The minimum-fuel move of a unit mass by 1, rest to rest, in a time of 3 with |u| ≤ 1.

    The cost is ∫|u| dt, and the solution is thrust, coast, brake.
    """
    return _double_integrator("fuel", FuelCost(), jnp.ones(1), 3.0)


@PROBLEMS.register("pendulum")
def pendulum() -> ControlProblem:
    """The swing-up of a pendulum whose torque limit is too low to lift it directly."""
    system = Pendulum()
    with jax.enable_x64(True):
        return ControlProblem(
            "pendulum",
            system.drift,
            system.influence,
            lambda x: 0.1 * x[1] ** 2 + 2.0 * (1.0 - jnp.cos(x[0])),
            QuadraticCost(jnp.full((1, 1), 0.1)),
            lambda x: 50.0 * x @ x,
            jnp.asarray([jnp.pi, 0.0]),
            jnp.full(1, 5.0),
            4.0,
        )


@PROBLEMS.register("cartpole")
def cartpole() -> ControlProblem:
    """The swing-up of a pole on a cart, which must end at rest in the middle of the rail."""
    system = CartPole()
    with jax.enable_x64(True):
        return ControlProblem(
            "cartpole",
            system.drift,
            system.influence,
            lambda x: 0.1 * x[0] ** 2,
            QuadraticCost(jnp.full((1, 1), 0.01)),
            _nothing,
            jnp.asarray([0.0, jnp.pi, 0.0, 0.0]),
            jnp.full(1, 20.0),
            2.0,
            jnp.zeros(4),
        )


def _double_integrator(
    kind: str, cost: AbstractControlCost, limit: Float[Array, " U"], horizon: float | None
) -> ControlProblem:
    system = double_integrator()
    # Time costs only if it is free. With a fixed horizon it would add a constant to every trajectory.
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
