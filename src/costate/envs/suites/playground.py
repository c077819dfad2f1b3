"""MuJoCo Playground's versions of dm_control's tasks, as ``playground:TASK``, on any device of JAX."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from costate._base.errors import ConfigError
from costate._base.registry import nearest
from costate.envs.base import AbstractEnv, Layout
from costate.envs.tasks import TASKS, Family, Task

# The tasks of its dm_control suite, copied from Playground 0.2.0, so that tasks can be listed and configs
# read without it. Its reachers cannot be built with MuJoCo 3.17.
NAMES = (
    "AcrobotSwingup",
    "AcrobotSwingupSparse",
    "BallInCup",
    "CartpoleBalance",
    "CartpoleBalanceSparse",
    "CartpoleSwingup",
    "CartpoleSwingupSparse",
    "CheetahRun",
    "FingerSpin",
    "FingerTurnEasy",
    "FingerTurnHard",
    "FishSwim",
    "HopperHop",
    "HopperStand",
    "HumanoidRun",
    "HumanoidStand",
    "HumanoidWalk",
    "PendulumSwingup",
    "PointMass",
    "SwimmerSwimmer6",
    "WalkerRun",
    "WalkerStand",
    "WalkerWalk",
)

_WALKER: Layout = (("orientations", 14), ("upright", 1), ("velocity", 9))
# Tasks that observe something else than dm_control: instead of "height", Playground's walker reads the tilt
# of the torso.
_LAYOUTS = {"WalkerRun": _WALKER, "WalkerStand": _WALKER, "WalkerWalk": _WALKER}
# Tasks that observe the same in another order.
_SHOWN: dict[str, Layout] = {
    "FishSwim": (("upright", 1), ("joint_angles", 7), ("target", 3), ("velocity", 13))
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaygroundTask(Task):
    """A task in MJX."""

    engine: ClassVar[str] = "playground"
    original: str
    """Its name in Playground, which is also that of the dm_control task that it imitates."""
    shown: Layout
    """Playground's observation layout, in its own order."""

    @property
    def aliases(self) -> tuple[str, ...]:
        return (f"Playground {self.original}",)

    def check_engine(self) -> None:
        # The environment variable that selects the backend may be wrong too.
        self._engine().implementation()

    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        engine = self._engine()
        built: AbstractEnv = engine.PlaygroundEnv(
            self, engine.load_simulator(self.original), self.shown, batch_size, seeds
        )
        return built

    def _engine(self) -> Any:
        # Imported here, because it is an optional package that takes seconds to load.
        try:
            from costate.envs.engines import playground as engine_playground
        except ImportError as error:
            raise ConfigError(
                f"{self.name} needs MuJoCo Playground, which cannot be loaded ({error}). Install it with: "
                f"pip install 'costate[playground]'. Without it, use {self.original}, the same task in "
                f"EnvPool."
            ) from error
        return engine_playground


def find_playground(name: str, identifier: str) -> Task:
    """Return the record of a task by Playground's name for it.

    It equals the record of the same task of dm_control, except for the observations.
    """
    if identifier not in NAMES:
        raise ConfigError(
            f"MuJoCo Playground has no task {identifier!r} in its dm_control suite. "
            f"{nearest(identifier, NAMES, LISTING)}"
        )
    twin = TASKS[identifier]
    layout = _LAYOUTS.get(identifier, twin.observation)
    return PlaygroundTask(
        name=name,
        observation=layout,
        action_size=twin.action_size,
        control_timestep=twin.control_timestep,
        episode_steps=twin.episode_steps,
        budget=twin.budget,
        original=identifier,
        shown=_SHOWN.get(identifier, layout),
    )


LISTING = ", listed in docs/playground.md"
TASKS.families["playground"] = Family(
    find_playground,
    f"playground:TASK  {len(NAMES)} of the tasks above in MuJoCo Playground, the paper's simulator, such as "
    f"playground:WalkerStand",
)
