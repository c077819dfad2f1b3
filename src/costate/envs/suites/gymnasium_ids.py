"""Environments of Gymnasium: those that it knows by an id, as ``gym:ID``, and a user's own under a name of their choice."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from costate._base.errors import ConfigError
from costate.envs.base import AbstractEnv
from costate.envs.tasks import TASKS, Family, Task
from costate.envs.visible import AbstractRobot

# Steps in Python are slow, so a run is short unless more is asked for.
BUDGET = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumTask(Task):
    """Environments in Python, stepped from inside the compiled rollout through a callback."""

    engine: ClassVar[str] = "gymnasium"
    budget: int = BUDGET
    make_vector: Callable[[int], Any]
    """So many of them, as a ``gymnasium.vector.VectorEnv``."""
    make_pictured: Callable[[], Any] | None = None
    """One whose ``render()`` gives pictures, where single ones can be made."""

    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        from costate.envs.engines.gymnasium import host_env

        return host_env(
            self.name, self.make_vector(batch_size * len(seeds)), batch_size, seeds, self.episode_steps
        )

    def visible(self) -> AbstractRobot:
        from costate.envs.engines.gymnasium_robots import visible_robot

        return visible_robot(self.name, self.make_vector, self.make_pictured)


def register_gymnasium(
    name: str,
    make: Callable[..., Any],
    *,
    episode_steps: int | None = None,
    budget: int = BUDGET,
    observes_state: bool = True,
) -> Task:
    """Make the environment that ``make()`` returns a task; an ``episode_steps`` cuts episodes off, for one that has no time limit of its own.

    To be filmed, it is made by ``make(render_mode="rgb_array")`` where ``make`` takes that, and else must have been made to give pictures.
    """
    engine = _engine()
    limited = engine.limited(make, episode_steps)
    task = _task(
        name,
        engine.describe(name, limited),
        lambda count: engine.side_by_side(name, limited, count),
        budget,
        observes_state,
    )
    return TASKS.add(name, dataclasses.replace(task, make_pictured=engine.pictured(make)))


def register_gymnasium_vector(
    name: str,
    make: Callable[[int], Any],
    *,
    episode_steps: int,
    budget: int = BUDGET,
    observes_state: bool = True,
) -> Task:
    """Make the vector environments that ``make(count)`` returns a task. No episode may be longer than ``episode_steps``."""
    return TASKS.add(
        name, _task(name, _engine().describe_vector(name, make, episode_steps), make, budget, observes_state)
    )


def find_gymnasium(name: str, identifier: str) -> Task:
    """The record of an id that Gymnasium knows."""
    engine = _engine()
    make = engine.known_id(identifier)
    task = _task(
        name, engine.describe(name, make), lambda count: engine.side_by_side(name, make, count), BUDGET, True
    )
    return dataclasses.replace(task, make_pictured=engine.pictured_id(identifier))


def _task(
    name: str, described: Any, make_vector: Callable[[int], Any], budget: int, observes_state: bool
) -> GymnasiumTask:
    return GymnasiumTask(
        name=name,
        observation=described.layout,
        action_size=described.action_size,
        control_timestep=described.control_timestep,
        episode_steps=described.episode_steps,
        budget=budget,
        observes_state=observes_state,
        make_vector=make_vector,
    )


def _engine() -> Any:
    """Loaded when it is asked for: it takes a moment that `costate --help` should not."""
    try:
        from costate.envs.engines import gymnasium as engine_gymnasium
    except ImportError as error:
        raise ConfigError(
            f"Gymnasium cannot be loaded ({error}). Install it with: pip install 'costate[gymnasium]'."
        ) from error
    return engine_gymnasium


TASKS.families["gym"] = Family(
    find_gymnasium,
    "gym:ID      any environment that Gymnasium knows, with continuous actions, such as gym:Pendulum-v1",
)
