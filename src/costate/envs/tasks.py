"""One record per task: what is observed, how large it is, the paper's training budget, and the engine that runs it.

The records themselves are in ``suites``, one file for each engine or family of tasks.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from costate._base.errors import ConfigError
from costate._base.registry import Registry, nearest
from costate._base.types import Bool, Float
from costate.envs.base import AbstractEnv, Layout
from costate.envs.stage import AbstractStage
from costate.envs.visible import AbstractRobot

PAPER_STEPS = 60_000_000


class Played(NamedTuple):
    """An episode with exact states."""

    states: Float[np.ndarray, "T X"]
    observations: Float[np.ndarray, "T O"]
    """As working sensors show them."""
    seen: Bool[np.ndarray, " T"]
    """Whether the policy got them."""
    controls: Float[np.ndarray, "T U"]


class KnownOptimum(NamedTuple):
    """What no controller can beat on average."""

    mean_return: float
    standard_error: float
    """Of the mean return, where it is an average over sampled blackouts; 0 where it is exact."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """A control task: everything that can be known of it before its engine is loaded."""

    engine: ClassVar[str]
    """What runs it."""
    name: str
    observation: Layout
    """Observed quantities in order, with their sizes."""
    action_size: int
    control_timestep: float
    """Seconds between two actions."""
    episode_steps: int = 1000
    budget: int = PAPER_STEPS
    """Environment steps of training: the paper's where the paper trains the task."""
    in_paper: bool = False
    observes_state: bool = True
    """Whether working sensors show all that matters for what comes next."""

    @property
    def folder(self) -> str:
        """Its name as that of a folder on any system."""
        return self.name.replace("/", "-").replace(":", "-")

    @property
    def aliases(self) -> tuple[str, ...]:
        """What other libraries call it, each with the name of the library."""
        return ()

    @property
    def observation_size(self) -> int:
        return sum(size for _, size in self.observation)

    def check_engine(self) -> None:
        """Raise unless what runs the task can be loaded. Asked before anything is written; most engines always can."""
        return

    @abc.abstractmethod
    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        """``batch_size`` environments for each seed, with sensors that never fail."""

    def stage(self, seed: int) -> AbstractStage:
        """The task for one episode with exact states and their derivatives."""
        raise ConfigError(
            f"{self.name} has no exact states to differentiate: the engine {self.engine} does not give them. Co-states exist for the tasks of "
            f"dm_control, through MuJoCo, and for those written in JAX."
        )

    def visible(self) -> AbstractRobot:
        """One robot that can be drawn."""
        raise ConfigError(
            f"{self.name} cannot be drawn: the engine {self.engine} has no MuJoCo model of it. Tasks of dm_control, robots of your own in MuJoCo "
            f"and Gymnasium's environments can be; of any other task, `costate evaluate` and `costate report` show what a policy does."
        )

    def best_gradients(self, played: Played, discount: float) -> dict[str, Float[np.ndarray, "T X"]]:
        """Gradients by the state of the best reward to come along an episode, under names that say at which state; empty where nobody knows them."""
        return {}

    def optimum(self, dropout: float) -> KnownOptimum | None:
        """The best mean return of an episode under blackouts with this probability; None where nobody knows it."""
        return None


class TaskRegistry(Registry[Task]):
    """Tasks by their names; those of a family, ``FAMILY:ID``, are made when they are asked for and are not listed."""

    def __init__(self) -> None:
        super().__init__("task", listed_by="costate tasks")
        self._listing += "; for a task of your own, name its Python file with --tasks FILE"
        self.families: dict[str, Family] = {}
        self._made: dict[str, Task] = {}

    def __getitem__(self, name: Any) -> Task:
        self.require_text(name)
        prefix, colon, identifier = name.partition(":")
        if name in self or not colon:
            return super().__getitem__(name)
        if prefix not in self.families:
            raise ConfigError(
                f"Unknown family of tasks {prefix!r} in {name!r}. {nearest(prefix, tuple(self.families))}"
            )
        if name not in self._made:
            self._made[name] = self.families[prefix].find(name, identifier)
        return self._made[name]


class Family(NamedTuple):
    """Tasks that another library knows by ids of its own."""

    find: Callable[[str, str], Task]
    """The record of a task by its name and its id."""
    description: str
    """For the list of tasks."""


TASKS = TaskRegistry()

PAPER_TASKS = (
    "CartpoleSwingup",
    "BallInCup",
    "FingerTurnHard",
    "FishSwim",
    "WalkerStand",
    "WalkerWalk",
    "WalkerRun",
    "CheetahRun",
)
