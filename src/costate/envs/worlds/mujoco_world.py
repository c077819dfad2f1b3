"""A robot of one's own: an MJCF file, what is observed of it, and what it is rewarded for."""

import abc
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np


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
