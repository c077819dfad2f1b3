"""The MuJoCo engine: a batch of a user's own robot in threads.

Physics runs in parallel. The world's Python methods take turns.
"""

import concurrent.futures
import os
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from costate._base.checks import WIDEST_BOUND
from costate._base.errors import ConfigError, SimulationError
from costate._base.types import Float
from costate.envs.base import AbstractActuators, Layout
from costate.envs.engines.host import AbstractSimulator, HostRows
from costate.envs.stage import Outcome
from costate.envs.visible import AbstractVisibleRobot
from costate.envs.worlds.mujoco_world import AbstractMujocoWorld

# Warnings of diverged physics, which MuJoCo does not treat as errors.
FATAL = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


def load_model(name: str, world: AbstractMujocoWorld) -> Any:
    """Compile the model. Raise if it cannot be trained on."""
    try:
        model = mujoco.MjModel.from_xml_path(str(world.path))
    except (ValueError, OSError) as error:
        raise ConfigError(f"{name}: MuJoCo cannot load {world.path}: {str(error).strip()}") from error
    if model.nu == 0:
        raise ConfigError(
            f"{name}: {world.path} has no actuators, so there is nothing to control. Add some to its "
            f"<actuator>."
        )
    for i in range(model.nu):
        if not model.actuator_ctrllimited[i] or np.abs(model.actuator_ctrlrange[i]).max() > WIDEST_BOUND:
            label = model.actuator(i).name or f"number {i}"
            raise ConfigError(
                f"{name}: the actuator {label} of {world.path} has no bounds. Give it ctrllimited and "
                f"ctrlrange."
            )
    substeps(name, world, model)
    # By default MuJoCo silently resets a diverged simulation and continues.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model


def substeps(name: str, world: AbstractMujocoWorld, model: Any) -> int:
    """Return the number of physics steps in one control step."""
    ratio = float(world.control_timestep / model.opt.timestep)
    if round(ratio) < 1 or abs(ratio - round(ratio)) > 1e-6:
        raise ConfigError(
            f"{name}: control_timestep is {world.control_timestep} s, but it must be a multiple of the "
            f"model's time step, {model.opt.timestep} s."
        )
    return round(ratio)


def describe(name: str, world: AbstractMujocoWorld) -> tuple[Layout, int]:
    """Return the observation layout and the number of controls. Raise if a world cannot be trained on."""
    if world.episode_steps < 1:
        raise ConfigError(
            f"{name}: episode_steps is {world.episode_steps}, but an episode has at least 1 step."
        )
    model = load_model(name, world)
    data = mujoco.MjData(model)
    _begin(world, model, data, np.random.default_rng(0))
    try:
        shown = world.observe(model, data)
        reward = world.reward(model, data)
    except Exception as error:
        raise ConfigError(
            f"{name}: observe or reward raised {type(error).__name__} at the start of an episode: {error}"
        ) from error
    if not isinstance(shown, Mapping) or not shown:
        raise ConfigError(
            f"{name}: observe returned {shown!r}, but it must return a dictionary such as "
            f'{{"position": data.qpos, "velocity": data.qvel}}.'
        )
    if np.ndim(reward) != 0:
        raise ConfigError(f"{name}: reward returned {reward!r}, but it must return one number.")
    return tuple((str(label), int(np.size(part))) for label, part in shown.items()), int(model.nu)


def _begin(world: AbstractMujocoWorld, model: Any, data: Any, random: np.random.Generator) -> None:
    # Remove every trace of the previous episode.
    mujoco.mj_resetData(model, data)
    world.initial(model, data, random)
    mujoco.mj_forward(model, data)


def advance(model: Any, data: Any, control: Float[np.ndarray, " A"], substeps: int) -> None:
    """Simulate one control step."""
    data.ctrl[:] = control
    mujoco.mj_step(model, data, substeps)
    # Otherwise body positions and sensor readings would be those before the last physics step.
    mujoco.mj_forward(model, data)


def flat(shown: Mapping[str, Any]) -> np.ndarray:
    """Concatenate all observed quantities."""
    return np.concatenate([np.ravel(part) for part in shown.values()])


class MujocoSimulator(AbstractSimulator):
    """A batch of one world. Each copy has its own random generator, which every start reseeds."""

    def __init__(self, name: str, world: AbstractMujocoWorld, count: int) -> None:
        self._name = name
        self._world = world
        self._model = load_model(name, world)
        self._substeps = substeps(name, world, self._model)
        self.count = count
        self.layout, _ = describe(name, world)
        self.action_low, self.action_high = self._model.actuator_ctrlrange.T.copy()
        self._size = sum(size for _, size in self.layout)
        self._data = [mujoco.MjData(self._model) for _ in range(count)]
        self._random = [np.random.default_rng(i) for i in range(count)]
        self._elapsed = np.zeros(count, int)
        self._ended = np.zeros(count, bool)
        threads = min(count, len(os.sched_getaffinity(0)))
        self._shares = [range(i, count, threads) for i in range(threads)]
        self._threads = concurrent.futures.ThreadPoolExecutor(threads)

    def start(self, seeds: Sequence[int]) -> Float[np.ndarray, "N O"]:
        self._elapsed[:] = 0
        self._ended[:] = False
        self._random = [np.random.default_rng(seed) for seed in seeds]
        for data, random in zip(self._data, self._random, strict=True):
            _begin(self._world, self._model, data, random)
        return np.stack([self._observe(data) for data in self._data])

    def advance(self, action: Float[np.ndarray, "N A"]) -> HostRows:
        first = self._ended
        rows = HostRows(
            np.empty((self.count, self._size), np.float32),
            np.zeros(self.count),
            np.zeros(self.count, bool),
            np.zeros(self.count, bool),
            first,
        )
        self._elapsed = np.where(first, 0, self._elapsed + 1)
        controls = np.clip(action.astype(np.float64), self.action_low, self.action_high)
        work = [self._threads.submit(self._advance_share, share, controls, rows) for share in self._shares]
        for part in work:
            part.result()
        rows.truncated[:] = self._elapsed >= self._world.episode_steps
        self._ended = rows.terminated | rows.truncated
        return rows

    def close(self) -> None:
        self._threads.shutdown()

    def _advance_share(self, share: range, controls: Float[np.ndarray, "N A"], rows: HostRows) -> None:
        world, model = self._world, self._model
        for i in share:
            data = self._data[i]
            if rows.is_first[i]:
                _begin(world, model, data, self._random[i])
            else:
                advance(model, data, controls[i], self._substeps)
                self._require_sound(i)
                rows.reward[i] = world.reward(model, data)
                rows.terminated[i] = world.terminated(model, data)
            rows.observation[i] = self._observe(data)

    def _require_sound(self, i: int) -> None:
        for warning in FATAL:
            if self._data[i].warning[warning].number:
                raise SimulationError(
                    f"{self._name}: the physics of environment {i} diverged at step {self._elapsed[i]} of "
                    f"its episode ({warning.name}). A smaller timestep in the MJCF file, more damping, or "
                    f"smaller controls may help."
                )

    def _observe(self, data: Any) -> Float[np.ndarray, " O"]:
        shown = self._world.observe(self._model, data)
        layout = tuple((str(label), int(np.size(part))) for label, part in shown.items())
        if layout != self.layout:
            raise SimulationError(
                f"{self._name} observed {layout}, but at first it was {self.layout}. Observe the same "
                f"quantities in every step."
            )
        return flat(shown).astype(np.float32)


class Actuators(AbstractActuators):
    """Actuators of one robot."""

    batch_size = 1

    def __init__(self, model: Any) -> None:
        self.action_size = int(model.nu)
        self.action_low, self.action_high = model.actuator_ctrlrange.T.copy()


class MujocoRobot(AbstractVisibleRobot):
    """One robot of a world, for drawing."""

    def __init__(self, name: str, world: AbstractMujocoWorld) -> None:
        self._world = world
        self._model = load_model(name, world)
        self._data = mujoco.MjData(self._model)
        self._substeps = substeps(name, world, self._model)
        self.actuators = Actuators(self._model)

    @property
    def model(self) -> Any:
        return self._model

    @property
    def data(self) -> Any:
        return self._data

    def start(self, seed: int) -> None:
        _begin(self._world, self._model, self._data, np.random.default_rng(seed))

    def observe(self) -> Float[np.ndarray, " O"]:
        return flat(self._world.observe(self._model, self._data)).astype(np.float64)

    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        advance(
            self._model,
            self._data,
            np.clip(control, self.actuators.action_low, self.actuators.action_high),
            self._substeps,
        )
        return Outcome(
            float(self._world.reward(self._model, self._data)),
            bool(self._world.terminated(self._model, self._data)),
        )

    def close(self) -> None:
        """Do nothing: MuJoCo's memory is freed with its objects."""
