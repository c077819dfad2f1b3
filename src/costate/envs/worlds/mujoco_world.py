"""A user's own robot: an MJCF file, its observations and its reward."""

import abc
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np


class AbstractMujocoWorld(abc.ABC):
    """One robot in MuJoCo.

    ``model`` and ``data`` are MuJoCo's own ``MjModel`` and ``MjData``. Several threads call these methods at
    once.
    """

    path: str | pathlib.Path
    """Path of the MJCF file."""
    control_timestep: float
    """Seconds between two actions, a multiple of the model's own time step."""
    episode_steps: int
    """Time limit."""

    @abc.abstractmethod
    def observe(self, model: Any, data: Any) -> Mapping[str, Any]:
        """Return numbers or vectors by the names of groups of sensors.

        The groups must be the same in every step, in the same order.
        """

    @abc.abstractmethod
    def reward(self, model: Any, data: Any) -> float:
        """Return the reward of the step that led to ``data``. Its control is ``data.ctrl``."""

    def terminated(self, model: Any, data: Any) -> bool:
        """Return whether the episode has terminated, with no reward after it.

        A time limit is not termination.
        """
        return False

    # B027: there is a default, because an episode may always start in the same way.
    def initial(self, model: Any, data: Any, random: np.random.Generator) -> None:  # noqa: B027
        """Change ``data`` from the model's default state into the start of an episode."""
