"""A robot that can be looked at: one environment in this process, stepped one control at a time. MuJoCo's are drawn here, others draw themselves."""

import abc
from typing import Any

import numpy as np

from costate._base.types import Float, UInt8
from costate.envs.base import AbstractActuators
from costate.envs.stage import Outcome


class AbstractRobot(abc.ABC):
    """One robot. Unlike a stage it remembers nothing, so that it can run for ever."""

    actuators: AbstractActuators

    @abc.abstractmethod
    def start(self, seed: int) -> None:
        """Start the episode of this seed."""

    @abc.abstractmethod
    def observe(self) -> Float[np.ndarray, " O"]:
        """y, as working sensors show it."""

    @abc.abstractmethod
    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        """One control step. There is no time limit."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release what it holds."""


class AbstractVisibleRobot(AbstractRobot):
    """A robot with MuJoCo's model and state in the open, from which it is drawn."""

    @property
    @abc.abstractmethod
    def model(self) -> Any:
        """MuJoCo's ``MjModel``; an episode may change it."""

    @property
    @abc.abstractmethod
    def data(self) -> Any:
        """MuJoCo's ``MjData``. Forces in its ``xfrc_applied`` act on the next steps until they are taken away."""


class AbstractPicturedRobot(AbstractRobot):
    """A robot that draws itself."""

    @abc.abstractmethod
    def picture(self) -> UInt8[np.ndarray, "H W 3"]:
        """The robot as it stands, in a picture of a size of its own."""
