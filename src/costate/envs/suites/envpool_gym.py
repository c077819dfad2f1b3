"""Gym's MuJoCo robots in EnvPool, as ``envpool:ID``: the same tasks as ``gym:ID``, in C++ threads."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from costate.envs.base import AbstractEnv
from costate.envs.tasks import TASKS, Family, Task

# The usual length of benchmarks with these robots.
BUDGET = 3_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymRobotTask(Task):
    """A robot of Gym in EnvPool."""

    engine: ClassVar[str] = "envpool"
    budget: int = BUDGET
    envpool_id: str

    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        from costate.envs.engines.envpool import GymPoolEnv

        return GymPoolEnv(self, self.envpool_id, batch_size, seeds)


def find_robot(name: str, identifier: str) -> Task:
    """Return the record of a robot by EnvPool's id."""
    # Imported here, because loading the engine takes a second, which `costate --help` should not take.
    from costate.envs.engines.envpool import gym_robot

    robot = gym_robot(identifier)
    return GymRobotTask(
        name=name,
        observation=(("observation", robot.observation_size),),
        action_size=robot.action_size,
        # EnvPool does not report it.
        control_timestep=float("nan"),
        episode_steps=robot.episode_steps,
        envpool_id=identifier,
    )


TASKS.families["envpool"] = Family(
    find_robot, "envpool:ID  Gym's MuJoCo robots in C++ threads, such as envpool:HalfCheetah-v4"
)
