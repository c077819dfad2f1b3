"""The states that a learner passes to the rest of the library, which knows them by these interfaces only.

Required fields are abstract variables to Equinox. Type checkers would take those for fields that come first,
so they are shown properties instead.
"""

import abc
import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx

from costate._base.types import Array, Bool, Int, Key
from costate.envs.base import EnvState, TimeStep


class LearnerState(eqx.Module):
    """The training state of one seed, or of several as the first axis. Each learner defines its own."""

    if TYPE_CHECKING:

        @property
        def key(self) -> Key[Array, "*N"]: ...
        @property
        def iteration(self) -> Int[Array, "*N"]: ...

    else:
        key: eqx.AbstractVar[Key[Array, "*N"]]
        iteration: eqx.AbstractVar[Int[Array, "*N"]]


class StreamState(eqx.Module):
    """State of all environments between two rollouts, with the policy's memory.

    Each learner defines its own.
    """

    if TYPE_CHECKING:

        @property
        def env_state(self) -> EnvState: ...
        @property
        def timestep(self) -> TimeStep: ...

    else:
        env_state: eqx.AbstractVar[EnvState]
        timestep: eqx.AbstractVar[TimeStep]

    def with_env(self, env_state: EnvState) -> "StreamState":
        """Return a copy with another simulator state, which may be None."""
        return dataclasses.replace(self, env_state=env_state)  # type: ignore[call-arg]


class Acting(eqx.Module):
    """The part of a state that a rollout needs. It is moved to the simulator's device in every iteration."""


class Experience(eqx.Module):
    """The rows of a rollout, opaque to all but the learner that collected them."""

    @property
    @abc.abstractmethod
    def is_first(self) -> Bool[Array, "*N T B"]:
        """True for the first row of each episode."""
