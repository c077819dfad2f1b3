"""A robot that can be drawn: one environment in this process, stepped one control at a time.

Robots of MuJoCo are drawn by this library. Others draw themselves.
"""

import abc
from typing import Any

import numpy as np

from costate._base.types import Float, UInt8
from costate.envs.base import AbstractActuators
from costate.envs.stage import Outcome


class AbstractRobot(abc.ABC):
    """One robot. Unlike a stage it records nothing, so that it can run forever."""

    actuators: AbstractActuators

    @abc.abstractmethod
    def start(self, seed: int) -> None:
        """Start the episode of this seed."""

    @abc.abstractmethod
    def observe(self) -> Float[np.ndarray, " O"]:
        """Return y, as working sensors report it."""

    @abc.abstractmethod
    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        """Take one control step. There is no time limit."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release its resources."""


class AbstractVisibleRobot(AbstractRobot):
    """A robot that exposes MuJoCo's model and state, from which it is drawn."""

    @property
    @abc.abstractmethod
    def model(self) -> Any:
        """MuJoCo's ``MjModel``, which an episode may change."""

    @property
    @abc.abstractmethod
    def data(self) -> Any:
        """MuJoCo's ``MjData``. Forces in its ``xfrc_applied`` act on all steps until they are cleared."""


class AbstractPicturedRobot(AbstractRobot):
    """A robot that draws itself."""

    @abc.abstractmethod
    def picture(self) -> UInt8[np.ndarray, "H W 3"]:
        """Return an image of the robot in its present state, in its own size."""
