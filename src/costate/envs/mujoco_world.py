"""A robot of one's own: an MJCF file, what is observed of it, and what it is rewarded for."""

import abc
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from costate._errors import ConfigError
from costate.envs.base import AbstractEnv
from costate.envs.tasks import TASKS, Task
from costate.envs.visible import AbstractVisibleRobot

# About half an hour for a small robot on two cores.
BUDGET = 3_000_000


class AbstractMujocoWorld(abc.ABC):
    """One robot in MuJoCo. ``model`` and ``data`` are MuJoCo's own ``MjModel`` and ``MjData``; several threads call these methods at once."""

    path: str | pathlib.Path
    """The MJCF file."""
    control_timestep: float
    """Seconds between two actions, a multiple of the model's own time step."""
    episode_steps: int
    """Time limit."""

    @abc.abstractmethod
    def observe(self, model: Any, data: Any) -> Mapping[str, Any]:
        """What the sensors show: numbers or vectors by the names of groups of sensors, always the same ones in the same order."""

    @abc.abstractmethod
    def reward(self, model: Any, data: Any) -> float:
        """Of the step that led here; the control is ``data.ctrl``."""

    def terminated(self, model: Any, data: Any) -> bool:
        """Whether the episode is over for good, with nothing to gain or lose after it. A time limit is not termination."""
        return False

    def initial(self, model: Any, data: Any, random: np.random.Generator) -> None:  # noqa: B027 (an episode may always start the same way)
        """Change ``data``, which stands as the model says, into the start of an episode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MujocoTask(Task):
    """A world run by MuJoCo itself, in as many threads as there are cores."""

    engine: ClassVar[str] = "mujoco"
    budget: int = BUDGET
    world: AbstractMujocoWorld

    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        from costate.envs.engine_mujoco import MujocoSimulator
        from costate.envs.host import HostEnv

        return HostEnv(MujocoSimulator(self.name, self.world, batch_size * len(seeds)), self.name, batch_size, seeds, self.episode_steps)

    def visible(self) -> AbstractVisibleRobot:
        from costate.envs.engine_mujoco import MujocoRobot

        return MujocoRobot(self.name, self.world)


def register_mujoco(name: str, world: AbstractMujocoWorld, *, budget: int = BUDGET, observes_state: bool = True) -> Task:
    """Make a world a task, to be trained on by this name."""
    try:
        from costate.envs.engine_mujoco import describe
    except ImportError as error:
        raise ConfigError(f"{name} needs MuJoCo, which cannot be loaded ({error}). Install it with: pip install 'costate[mujoco]'.") from error
    layout, action_size = describe(name, world)
    return TASKS.add(
        name,
        MujocoTask(
            name=name,
            observation=layout,
            action_size=action_size,
            control_timestep=world.control_timestep,
            episode_steps=world.episode_steps,
            budget=budget,
            observes_state=observes_state,
            world=world,
        ),
    )
