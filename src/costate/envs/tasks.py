"""One record per task: its observations, sizes and engine, and the paper's training budget.

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
    """Observations of working sensors."""
    seen: Bool[np.ndarray, " T"]
    """Whether the policy received them."""
    controls: Float[np.ndarray, "T U"]


class KnownOptimum(NamedTuple):
    """The best mean return that any controller can reach."""

    mean_return: float
    standard_error: float
    """Standard error of the mean return over sampled blackouts, or 0 if it is exact."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """A control task: everything that is known of it before its engine is loaded."""

    engine: ClassVar[str]
    """Name of the engine that runs it."""
    name: str
    observation: Layout
    """Names and sizes of the observed quantities, in order."""
    action_size: int
    control_timestep: float
    """Seconds between two actions."""
    episode_steps: int = 1000
    budget: int = PAPER_STEPS
    """Environment steps of training, which are the paper's if the paper trains the task."""
    in_paper: bool = False
    observes_state: bool = True
    """Whether working sensors determine everything that matters for the future."""

    @property
    def folder(self) -> str:
        """The name as a folder name that is valid on any system."""
        return self.name.replace("/", "-").replace(":", "-")

    @property
    def aliases(self) -> tuple[str, ...]:
        """Names in other libraries, each with the name of the library."""
        return ()

    @property
    def observation_size(self) -> int:
        return sum(size for _, size in self.observation)

    def check_engine(self) -> None:
        """Raise unless the engine can be loaded. The default is that it always can.

        It is called before anything is written.
        """
        return

    @abc.abstractmethod
    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        """Build ``batch_size`` environments for each seed, without sensor faults."""

    def stage(self, seed: int) -> AbstractStage:
        """Return the task for one episode with exact states and their derivatives."""
        raise ConfigError(
            f"{self.name} has no exact states to differentiate: the engine {self.engine} does not provide "
            f"them. Co-states exist for the tasks of dm_control, through MuJoCo, and for tasks written in "
            f"JAX."
        )

    def visible(self) -> AbstractRobot:
        """Return one robot that can be drawn."""
        raise ConfigError(
            f"{self.name} cannot be drawn: the engine {self.engine} has no MuJoCo model of it. Only tasks of "
            f"dm_control, your own robots in MuJoCo and Gymnasium's environments can be drawn. For any other "
            f"task, use `costate evaluate` and `costate report`."
        )

    def best_gradients(self, played: Played, discount: float) -> dict[str, Float[np.ndarray, "T X"]]:
        """Return gradients of the best future reward by the state along an episode, or nothing if unknown.

        Keys say at which state the gradient is taken.
        """
        return {}

    def optimum(self, dropout: float) -> KnownOptimum | None:
        """Return the best mean return under blackouts with this probability, or None if it is unknown."""
        return None


class TaskRegistry(Registry[Task]):
    """Tasks by name. Tasks of a family, ``FAMILY:ID``, are made on request and not listed."""

    def __init__(self) -> None:
        super().__init__("task", listed_by="costate tasks")
        self._listing += "; for a task of your own, pass its Python file with --tasks FILE"
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
    """A set of tasks that another library identifies by its own ids."""

    find: Callable[[str, str], Task]
    """Returns the record of a task by its name and its id."""
    description: str
    """Description in the list of tasks."""


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
