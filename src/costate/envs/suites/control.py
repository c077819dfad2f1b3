"""Textbook control problems in JAX, with the paper's three control costs and, if linear, a known optimum."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from costate._base.types import Float
from costate.control.costs import FreeControl, FuelCost
from costate.control.discretisation import accumulated_noise, held_control
from costate.control.regulator import Regulator, best_expected_cost, estimates, stationary_value
from costate.envs.base import Layout
from costate.envs.tasks import TASKS, KnownOptimum, Played, Task
from costate.envs.worlds import double_integrator, torque_pendulum
from costate.envs.worlds.analytic import AbstractWorld, AnalyticEnv
from costate.envs.worlds.double_integrator import ReachRestWorld
from costate.envs.worlds.linear_quadratic import LinearQuadraticWorld
from costate.envs.worlds.stage_world import WorldStage
from costate.envs.worlds.torque_pendulum import TorquePendulumWorld

TIMESTEP = 0.1
# Steps of every episode here.
STEPS = 200
# Standard deviation of initial position and velocity.
START = 0.4
# More than four times the largest deviation of the best control, which is that of the first step, and ten
# times the later one.
REGULATOR_LIMIT = 6.0
# Enough for LQR to come within 5 % of its optimum.
BUDGET = 8_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyticTask(Task):
    """A task written in JAX, with one actuator."""

    engine: ClassVar[str] = "jax"
    action_size: int = 1
    episode_steps: int = STEPS
    budget: int = BUDGET

    @abc.abstractmethod
    def world(self) -> AbstractWorld:
        """Return the task's world."""

    def build(self, batch_size: int, seeds: Sequence[int]) -> AnalyticEnv:
        return AnalyticEnv(self.world(), batch_size, seeds)

    def stage(self, seed: int) -> WorldStage:
        return WorldStage(self.world(), seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldTask(AnalyticTask):
    """A task defined by a world alone."""

    make_world: Callable[[], AbstractWorld]

    def world(self) -> AbstractWorld:
        return self.make_world()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegulatorTask(AnalyticTask):
    """A linear-quadratic-Gaussian task, whose best controller is known."""

    problem: Callable[[], Regulator]

    def world(self) -> AbstractWorld:
        return LinearQuadraticWorld(self.problem(), REGULATOR_LIMIT, ("position", "velocity"))

    def best_gradients(self, played: Played, discount: float) -> dict[str, Float[np.ndarray, "T X"]]:
        """Return −2Px at the true state and at its best estimate from the measurements.

        The second is all that a memory can know.
        """
        problem = self.problem()
        value = stationary_value(problem, discount)
        # The signal that accompanies a measurement is not part of it.
        known = estimates(problem, played.observations[:, :-1], played.seen, played.controls)
        return {
            "best, at the state": -2.0 * played.states @ value,
            "best, at the estimate": -2.0 * known @ value,
        }

    def optimum(self, dropout: float) -> KnownOptimum:
        cost = best_expected_cost(self.problem(), dropout)
        return KnownOptimum(-cost.mean, cost.standard_error)


def line_regulator(friction: float, disturbance: float, position_noise: float | None = None) -> Regulator:
    """Return a unit mass on a line: ẍ = −friction ẋ + u + white noise of deviation ``disturbance``.

    The cost of every step is x² + 0.1 ẋ² + 0.1 u². Position and velocity are measured exactly, or the
    position alone with noise of deviation ``position_noise``.
    """
    a, b = np.array([[0.0, 1.0], [0.0, -friction]]), np.array([[0.0], [1.0]])
    dynamics, influence = held_control(a, b, TIMESTEP)
    return Regulator(
        dynamics=dynamics,
        influence=influence,
        sensors=np.eye(2) if position_noise is None else np.array([[1.0, 0.0]]),
        state_cost=np.diag([1.0, 0.1]),
        control_cost=np.array([[0.1]]),
        process_noise=accumulated_noise(a, np.diag([0.0, disturbance**2]), TIMESTEP),
        measurement_noise=np.zeros((2, 2)) if position_noise is None else np.array([[position_noise**2]]),
        initial_covariance=START**2 * np.eye(2),
        steps=STEPS,
    )


def lqr() -> Regulator:
    """Return a regulator with disturbances whose whole state is measured."""
    return line_regulator(friction=1.0, disturbance=0.5)


def lqg() -> Regulator:
    """Return a regulator with disturbances whose position alone is measured, with noise."""
    return line_regulator(friction=1.0, disturbance=0.5, position_noise=0.1)


def energy() -> Regulator:
    """Return a regulator without friction and disturbances."""
    return line_regulator(friction=0.0, disturbance=0.0)


_WHOLE: Layout = (("position", 1), ("velocity", 1), ("signal", 1))
_POSITION: Layout = (("position", 1), ("signal", 1))


def _regulator(name: str, layout: Layout, problem: Callable[[], Regulator]) -> None:
    whole = layout is _WHOLE
    TASKS.add(
        name,
        RegulatorTask(
            name=name, observation=layout, control_timestep=TIMESTEP, observes_state=whole, problem=problem
        ),
    )


def _world(name: str, layout: Layout, timestep: float, make_world: Callable[[], AbstractWorld]) -> None:
    TASKS.add(
        name, WorldTask(name=name, observation=layout, control_timestep=timestep, make_world=make_world)
    )


_regulator("LQR", _WHOLE, lqr)
_regulator("LQG", _POSITION, lqg)
_regulator("DoubleIntegratorEnergy", _WHOLE, energy)
_world("DoubleIntegratorTime", _WHOLE, double_integrator.TIMESTEP, lambda: ReachRestWorld(FreeControl()))
_world("DoubleIntegratorFuel", _WHOLE, double_integrator.TIMESTEP, lambda: ReachRestWorld(FuelCost()))
_world("TorquePendulum", (("orientation", 2), ("velocity", 1)), torque_pendulum.TIMESTEP, TorquePendulumWorld)
