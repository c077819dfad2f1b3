"""The environment contract: dm_env semantics for a batch of environments inside a compiled loop.

After a last step the next step returns a first step and ignores the action. ``discount`` is 0 only where the episode truly terminated; at a time
limit it stays 1, so that a learner bootstraps from the last observation.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from costate._base.types import Array, Bool, Float, Key

EnvState = Any
Drawn = Any
"""What is random in a step, as a pytree."""
Layout = tuple[tuple[str, int], ...]
"""Observed quantities in order: the names of groups of sensors, with their sizes."""


class TimeStep(eqx.Module):
    """What environments show after a reset or a step; one environment has no axes ``S``, a batch has one."""

    observation: Float[Array, "*S O"]
    reward: Float[Array, "*S"]
    discount: Float[Array, "*S"]
    is_first: Bool[Array, "*S"]
    is_last: Bool[Array, "*S"]
    complete: Float[Array, "*S O"] | None = None
    """What working sensors would have shown, where failing ones stand between. For learning only: a trained policy never reads it."""
    seen: Bool[Array, "*S"] | None = None
    """Whether any sensor gave a reading, where failing ones stand between; None where every reading is one. Known from
    the faults themselves: zeros can be a true reading, and in the dark the last value may be held."""


def true_observation(timestep: TimeStep) -> Float[Array, "*S O"]:
    """Return what working sensors show; without failing ones in between, what is observed."""
    return timestep.observation if timestep.complete is None else timestep.complete


def anything_seen(timestep: TimeStep) -> Bool[Array, "*S"]:
    """Return whether any sensor gave a reading; without failing ones in between, all do."""
    return jnp.ones(timestep.is_first.shape, bool) if timestep.seen is None else timestep.seen


class AbstractActuators(abc.ABC):
    """What a controller has to know of that which it controls."""

    batch_size: int
    """Environments of one seed."""
    action_size: int
    action_low: np.ndarray
    action_high: np.ndarray


class AbstractEnv(AbstractActuators):
    """A batch of environments, for each of one or more seeds. Resets run on the host between compiled programs, ``step`` inside them.

    ``step`` is written for one seed; where several train together, it is vmapped over them.
    """

    observation_size: int
    episode_steps: int
    written_in_jax: bool = False
    """Whether nothing outside of JAX is stepped. Then a program with its steps inside is the same in every process, so that a compiled one can be
    kept for the next, and the learner can be part of it."""

    @property
    @abc.abstractmethod
    def seed_axis(self) -> Any:
        """Axis of the seeds in the state that :meth:`reset_seeds` returns, or a tree of axes for the parts of it; None where all share one."""

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, TimeStep]:
        """Start a new episode in every environment, where there is one seed."""

    @abc.abstractmethod
    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[EnvState, TimeStep]:
        """The same for every seed with its own key; the time step has the seeds as its first axis."""

    @abc.abstractmethod
    def step(
        self, state: EnvState, action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[EnvState, TimeStep]:
        """One control step of every environment. The state is used once: it must not be stepped from twice."""

    def draw(self, key: Key[Array, ""]) -> Drawn:
        """What is random in one step, as far as it can be drawn beforehand; the key itself where an environment does not say otherwise.

        Random numbers inside of a rollout's loop take much longer than those of all its steps at once.
        """
        return key

    def advance(
        self, state: EnvState, action: Float[Array, "B A"], drawn: Drawn
    ) -> tuple[EnvState, TimeStep]:
        """:meth:`step` with what :meth:`draw` has drawn."""
        return self.step(state, action, drawn)

    @abc.abstractmethod
    def skip_resets(self, counts: np.ndarray) -> None:
        """Bring an environment that was just built to where one stands that has started ``counts[i]`` episodes in environment i of all seeds'.

        This is how a resumed run sees the episodes that an uninterrupted run would have seen.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release threads and memory."""

    def share(self, mesh: Mesh) -> bool:
        """Whether the devices of a mesh can each step a share of the environments; if so, they do from then on, in programs compiled for all of them.

        By default they cannot: a simulator outside of JAX would be stepped once by each.
        """
        return False

    def check(self) -> None:
        """Raise what went wrong in steps since the last reset. Called after a compiled program, which cannot raise it itself."""


def first_step(observation: Float[Array, "B O"]) -> TimeStep:
    """The time step after a reset of every environment."""
    batch = observation.shape[0]
    return TimeStep(
        observation,
        # Made by NumPy: outside of a compiled program, each of JAX's own would be compiled first.
        reward=jax.device_put(np.zeros(batch, np.float32)),
        discount=jax.device_put(np.ones(batch, np.float32)),
        is_first=jax.device_put(np.ones(batch, bool)),
        is_last=jax.device_put(np.zeros(batch, bool)),
    )
