"""Users' own robots as tasks: a world around an MJCF file, run by MuJoCo."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from costate._base.errors import ConfigError
from costate.envs.base import AbstractEnv
from costate.envs.tasks import TASKS, Task
from costate.envs.visible import AbstractVisibleRobot
from costate.envs.worlds.mujoco_world import AbstractMujocoWorld

# About half an hour for a small robot on two cores.
BUDGET = 3_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class MujocoTask(Task):
    """A world run by MuJoCo itself, in as many threads as there are cores."""

    engine: ClassVar[str] = "mujoco"
    budget: int = BUDGET
    world: AbstractMujocoWorld

    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        from costate.envs.engines.host import HostEnv
        from costate.envs.engines.mujoco import MujocoSimulator

        return HostEnv(
            MujocoSimulator(self.name, self.world, batch_size * len(seeds)),
            self.name,
            batch_size,
            seeds,
            self.episode_steps,
        )

    def visible(self) -> AbstractVisibleRobot:
        from costate.envs.engines.mujoco import MujocoRobot

        return MujocoRobot(self.name, self.world)


def register_mujoco(
    name: str, world: AbstractMujocoWorld, *, budget: int = BUDGET, observes_state: bool = True
) -> Task:
    """Register a world as a task with the given name."""
    try:
        from costate.envs.engines.mujoco import describe
    except ImportError as error:
        raise ConfigError(
            f"{name} needs MuJoCo, which cannot be loaded ({error}). Install it with: pip install "
            f"'costate[mujoco]'."
        ) from error
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
