"""Where one episode is played with exact states: read, stepped one control at a time, and differentiated afterwards."""

import abc
from typing import NamedTuple

import numpy as np

from costate._base.types import Float
from costate.control.linearisation import Linearised
from costate.envs.base import AbstractActuators


class Outcome(NamedTuple):
    """Of one control step."""

    reward: float
    terminated: bool


class AbstractStage(abc.ABC):
    """One environment at the start of an episode. It remembers every state that it was in. All numbers are float64."""

    robot: AbstractActuators
    state_names: tuple[str, ...]
    """Of the components of the coordinates in which derivatives are taken."""

    @abc.abstractmethod
    def observe(self) -> Float[np.ndarray, " O"]:
        """y_t, as working sensors show it."""

    @abc.abstractmethod
    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        """One control step."""

    @abc.abstractmethod
    def states(self) -> Float[np.ndarray, "S N"]:
        """x_0 … x_T as numbers, one row more than there were steps."""

    @abc.abstractmethod
    def linearise(self, controls: Float[np.ndarray, "T U"], threads: int | None = None) -> Linearised:
        """The steps that were made, to first order."""
