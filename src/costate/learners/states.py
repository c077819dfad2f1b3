"""The states that a learner passes to the rest of the library, which knows no more of them than stands here.

What a state must have is an abstract variable to Equinox. Type checkers would take that for a field that comes first, so
they are told of a property.
"""

import abc
import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx

from costate._base.types import Array, Bool, Int, Key
from costate.envs.base import EnvState, TimeStep


class LearnerState(eqx.Module):
    """All that training changes, of one seed or with the seeds as the first axis. Each learner has its own."""

    if TYPE_CHECKING:

        @property
        def key(self) -> Key[Array, "*N"]: ...
        @property
        def iteration(self) -> Int[Array, "*N"]: ...

    else:
        key: eqx.AbstractVar[Key[Array, "*N"]]
        iteration: eqx.AbstractVar[Int[Array, "*N"]]


class StreamState(eqx.Module):
    """The place of every environment between two rollouts, and what a policy carries along. Each learner has its own."""

    if TYPE_CHECKING:

        @property
        def env_state(self) -> EnvState: ...
        @property
        def timestep(self) -> TimeStep: ...

    else:
        env_state: eqx.AbstractVar[EnvState]
        timestep: eqx.AbstractVar[TimeStep]

    def with_env(self, env_state: EnvState) -> "StreamState":
        """Return the same with another state of the simulator, which may be none."""
        return dataclasses.replace(self, env_state=env_state)  # type: ignore[call-arg]


class Acting(eqx.Module):
    """The part of a state that a rollout needs. It is moved to the simulator's device in every iteration."""


class Experience(eqx.Module):
    """The rows of a rollout. Only the learner that collected them looks into them."""

    @property
    @abc.abstractmethod
    def is_first(self) -> Bool[Array, "*N T B"]:
        """Whether an episode starts with a row."""
