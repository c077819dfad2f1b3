"""The original dm_control: one robot in plain MuJoCo, whose exact state can be read, set and differentiated.

EnvPool, in which policies are trained, returns observations only. docs/adjoint.md lists the differences.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Float
from costate.control.linearisation import Linearised
from costate.control.mujoco_adjoint import (
    Simulation,
    Snapshot,
    linearise,
    snapshot,
    state_names,
    unclamp_controls,
)
from costate.envs.base import AbstractActuators
from costate.envs.stage import AbstractStage, Outcome
from costate.envs.visible import AbstractVisibleRobot

# Nothing is rendered here, and looking for a graphics card takes seconds.
os.environ.setdefault("MUJOCO_GL", "disable")
try:
    import absl.logging
    from dm_control import suite
    from dm_control.rl.control import Environment
except ImportError as error:  # pragma: no cover
    raise ConfigError(
        "Exact states need dm_control, which is not installed. Install it with: pip install "
        "'costate[adjoint]'."
    ) from error


class Actuators(AbstractActuators):
    """Actuators of one robot."""

    def __init__(self, environment: Environment) -> None:
        spec = environment.action_spec()
        self.batch_size = 1
        self.action_size = spec.shape[0]
        self.action_low = spec.minimum
        self.action_high = spec.maximum


class DmControlStage(AbstractStage):
    """One robot of dm_control, without a time limit."""

    def __init__(self, name: str, domain: str, goal: str, seed: int) -> None:
        self.environment = load_dm_control(name, domain, goal, seed)
        self.environment.reset()
        self.robot = Actuators(self.environment)
        self.state_names = state_names(self.environment.physics.model.ptr)
        self.snapshots: list[Snapshot] = []
        self._states: list[np.ndarray] = []
        self._remember()

    def observe(self) -> Float[np.ndarray, " O"]:
        return observation_vector(self.environment)

    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        timestep = self.environment.step(control)
        self._remember()
        return Outcome(float(timestep.reward), bool(timestep.last()))

    def states(self) -> Float[np.ndarray, "S N"]:
        """Return MuJoCo's qpos (including quaternions), qvel and act."""
        return np.stack(self._states)

    def linearise(self, controls: Float[np.ndarray, "T U"], threads: int | None = None) -> Linearised:
        return linearise(
            copies_of(self.environment, threads or len(os.sched_getaffinity(0))), self.snapshots, controls
        )

    def _remember(self) -> None:
        physics = self.environment.physics
        self.snapshots.append(snapshot(physics.model.ptr, physics.data.ptr))
        self._states.append(np.concatenate([physics.data.qpos, physics.data.qvel, physics.data.act]))


class DmControlRobot(AbstractVisibleRobot):
    """One robot of dm_control, for drawing."""

    def __init__(self, name: str, domain: str, goal: str) -> None:
        self._environment = load_dm_control(name, domain, goal, seed=0)
        self.actuators = Actuators(self._environment)

    @property
    def model(self) -> Any:
        return self._environment.physics.model.ptr

    @property
    def data(self) -> Any:
        return self._environment.physics.data.ptr

    def start(self, seed: int) -> None:
        self._environment.task.random.seed(seed)
        self._environment.reset()

    def observe(self) -> Float[np.ndarray, " O"]:
        return observation_vector(self._environment)

    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        timestep = self._environment.step(control)
        return Outcome(float(timestep.reward), bool(timestep.last()))

    def close(self) -> None:
        self._environment.close()


def load_dm_control(name: str, domain: str, goal: str, seed: int) -> Environment:
    """Load dm_control's own environment of a task, without a time limit."""
    if (domain, goal) not in suite.ALL_TASKS:
        raise ConfigError(
            f"{name} has no MuJoCo model: dm_control has no task {goal!r} of a robot {domain!r}. Co-states "
            f"through MuJoCo exist only for the tasks of dm_control, such as CartpoleSwingup or WalkerStand."
        )
    with _errors_only():
        environment = suite.load(domain, goal, task_kwargs={"random": seed, "time_limit": float("inf")})
    physics = environment.physics
    # dm_control's rough terrain updates the renderer's copy of the terrain, but there is no renderer here.
    physics.__class__ = type(type(physics).__name__, (type(physics),), {"contexts": None})
    return environment


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Silence the warnings about future MuJoCo versions that every model of dm_control raises on loading."""
    before = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.ERROR)
    try:
        yield
    finally:
        absl.logging.set_verbosity(before)


def observation_vector(environment: Environment) -> Float[np.ndarray, " O"]:
    """Return the current sensor values, in the order of the task's record."""
    return _flat(environment.task, environment.physics)


def copies_of(environment: Environment, count: int) -> list[Simulation]:
    """Return independent simulations of the same robot in the same episode.

    They include any changes that the episode made to the model.
    """
    return [_simulation(environment) for _ in range(count)]


def _simulation(environment: Environment) -> Simulation:
    physics, task = environment.physics.copy(), environment.task
    unclamp_controls(physics.model.ptr)
    substeps = round(environment.control_timestep() / physics.timestep())

    def read() -> Float[np.ndarray, " R"]:
        return np.append(task.get_reward(physics), _flat(task, physics))

    return Simulation(physics.model.ptr, physics.data.ptr, substeps, read)


def _flat(task: Any, physics: Any) -> Float[np.ndarray, " O"]:
    return np.concatenate([np.ravel(value) for value in task.get_observation(physics).values()]).astype(
        np.float64
    )
