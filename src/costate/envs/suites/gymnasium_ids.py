"""Environments of Gymnasium: by id as ``gym:ID``, or a user's own under a name of their choice."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from costate._base.errors import ConfigError
from costate.envs.base import AbstractEnv
from costate.envs.tasks import TASKS, Family, Task
from costate.envs.visible import AbstractRobot

# Steps in Python are slow, so runs are short by default.
BUDGET = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumTask(Task):
    """Environments in Python, stepped from inside the compiled rollout through a callback."""

    engine: ClassVar[str] = "gymnasium"
    budget: int = BUDGET
    make_vector: Callable[[int], Any]
    """Makes the given number of environments, as a ``gymnasium.vector.VectorEnv``."""
    make_pictured: Callable[[], Any] | None = None
    """Makes a single environment whose ``render()`` returns images. None if single ones cannot be made."""

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
    """Register the environment that ``make()`` returns as a task.

    ``episode_steps`` adds a time limit to an environment that has none. For films,
    ``make(render_mode="rgb_array")`` is called if ``make`` accepts that. Otherwise its environment must
    already render images.
    """
    engine = _engine()
    limited = engine.with_time_limit(make, episode_steps)
    task = _task(
        name,
        engine.describe(name, limited),
        lambda count: engine.make_vector(name, limited, count),
        budget,
        observes_state,
    )
    return TASKS.add(name, dataclasses.replace(task, make_pictured=engine.with_rendering(make)))


def register_gymnasium_vector(
    name: str,
    make: Callable[[int], Any],
    *,
    episode_steps: int,
    budget: int = BUDGET,
    observes_state: bool = True,
) -> Task:
    """Register the vector environments that ``make(count)`` returns.

    No episode may exceed ``episode_steps``.
    """
    return TASKS.add(
        name, _task(name, _engine().describe_vector(name, make, episode_steps), make, budget, observes_state)
    )


def find_gymnasium(name: str, identifier: str) -> Task:
    """Return the record of an id that Gymnasium knows."""
    engine = _engine()
    make = engine.maker_of(identifier)
    task = _task(
        name, engine.describe(name, make), lambda count: engine.make_vector(name, make, count), BUDGET, True
    )
    return dataclasses.replace(task, make_pictured=engine.rendering_maker_of(identifier))


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
    """Load the engine on demand, because it takes time that `costate --help` should not take."""
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
