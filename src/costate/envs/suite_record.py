"""The record of a DeepMind Control Suite task, without the engines that run it."""

import dataclasses
from collections.abc import Callable

from costate._base.types import Array, Float
from costate.envs.tasks import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractSuiteTask(Task):
    """A control task of the DeepMind Control Suite."""

    domain: str
    """dm_control's name of the robot."""
    goal: str
    """dm_control's name of the robot's task."""
    envpool_id: str
    reward: Callable[[Float[Array, "B O"]], Float[Array, " B"]] | None = None
    """dm_control's reward as a function of the observation, for a task whose reward EnvPool gets wrong."""

    @property
    def aliases(self) -> tuple[str, ...]:
        return f"dm_control {self.domain}-{self.goal}", f"EnvPool {self.envpool_id}"
