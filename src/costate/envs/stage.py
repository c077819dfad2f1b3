"""The interface for playing one episode with exact states: step it, read its states, and differentiate it."""

import abc
from typing import NamedTuple

import numpy as np

from costate._base.types import Float
from costate.control.linearisation import Linearised
from costate.envs.base import AbstractActuators


class Outcome(NamedTuple):
    """Result of one control step."""

    reward: float
    terminated: bool


class AbstractStage(abc.ABC):
    """One environment at the start of an episode. It records every state that it was in, in float64."""

    robot: AbstractActuators
    state_names: tuple[str, ...]
    """Names of the components of x, the coordinates in which derivatives are taken."""

    @abc.abstractmethod
    def observe(self) -> Float[np.ndarray, " O"]:
        """Return y_t, as working sensors report it."""

    @abc.abstractmethod
    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        """Take one control step."""

    @abc.abstractmethod
    def states(self) -> Float[np.ndarray, "S N"]:
        """Return x_0 … x_T, one row more than there were steps."""

    @abc.abstractmethod
    def linearise(self, controls: Float[np.ndarray, "T U"], threads: int | None = None) -> Linearised:
        """Linearise the steps that were made."""
