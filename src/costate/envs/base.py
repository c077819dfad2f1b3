"""The environment contract: dm_env semantics for a batch of environments in a compiled loop.

The step after a last step is a first step and ignores the action. ``discount`` is 0 only if the episode truly
terminated. At a time limit it stays 1, so that a learner bootstraps from the last observation.
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
"""The random numbers of one step, as a pytree."""
Layout = tuple[tuple[str, int], ...]
"""Names and sizes of the groups of sensors, in order."""


class TimeStep(eqx.Module):
    """Result of a reset or a step. A single environment has no axes ``S``, a batch has one."""

    observation: Float[Array, "*S O"]
    reward: Float[Array, "*S"]
    discount: Float[Array, "*S"]
    is_first: Bool[Array, "*S"]
    is_last: Bool[Array, "*S"]
    complete: Float[Array, "*S O"] | None = None
    """The observation without sensor faults, or None if there are no faulty sensors.

    It is for learning only. A trained policy never reads it.
    """
    seen: Bool[Array, "*S"] | None = None
    """Whether any sensor gave a reading, or None if all always do.

    It comes from the faults themselves, because zeros can be a true reading and a blackout may hold the last
    value.
    """


def true_observation(timestep: TimeStep) -> Float[Array, "*S O"]:
    """Return the observation without sensor faults."""
    return timestep.observation if timestep.complete is None else timestep.complete


def anything_seen(timestep: TimeStep) -> Bool[Array, "*S"]:
    """Return whether any sensor gave a reading, which is always true without sensor faults."""
    return jnp.ones(timestep.is_first.shape, bool) if timestep.seen is None else timestep.seen


class AbstractActuators(abc.ABC):
    """The properties of actuators that a controller must know."""

    batch_size: int
    """Number of environments per seed."""
    action_size: int
    action_low: np.ndarray
    action_high: np.ndarray


class AbstractEnv(AbstractActuators):
    """A batch of environments for each of one or more seeds.

    Resets run on the host between compiled programs, and ``step`` runs inside them. ``step`` is written for
    one seed, and is vmapped if several seeds train together.
    """

    observation_size: int
    episode_steps: int
    written_in_jax: bool = False
    """Whether all stepping happens in JAX.

    A compiled program that contains the steps is then valid in every process, so that it can be cached and
    can include the learner.
    """

    @property
    @abc.abstractmethod
    def seed_axis(self) -> Any:
        """Vmap axis of the seeds in the state of :meth:`reset_seeds`: an axis, a tree of axes, or None.

        None means that all seeds share one state.
        """

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, TimeStep]:
        """Start a new episode in every environment, if there is one seed."""

    @abc.abstractmethod
    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[EnvState, TimeStep]:
        """Start new episodes for every seed with its own key. The time step's first axis is the seed."""

    @abc.abstractmethod
    def step(
        self, state: EnvState, action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[EnvState, TimeStep]:
        """Take one control step in every environment. A state may be stepped from only once."""

    def draw(self, key: Key[Array, ""]) -> Drawn:
        """Draw the random numbers of one step.

        By default these are the key itself. Drawing them for all steps at once is much faster than inside a
        rollout's loop.
        """
        return key

    def advance(
        self, state: EnvState, action: Float[Array, "B A"], drawn: Drawn
    ) -> tuple[EnvState, TimeStep]:
        """Do what :meth:`step` does, with the random numbers from :meth:`draw`."""
        return self.step(state, action, drawn)

    @abc.abstractmethod
    def skip_resets(self, counts: np.ndarray) -> None:
        """Skip the first ``counts[i]`` episodes in environment i of all seeds, in a newly built environment.

        A resumed run then gets the episodes that an uninterrupted run would have got.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release threads and memory."""

    def share(self, mesh: Mesh) -> bool:
        """Let each device of a mesh step a share of the environments, and return whether that is possible.

        If it is, they do so in all programs compiled from then on. The default is False, because each device
        would step a simulator outside of JAX once.
        """
        return False

    def check(self) -> None:
        """Raise any error of the steps since the last reset.

        It is called after a compiled program, which cannot raise the error itself.
        """


def first_step(observation: Float[Array, "B O"]) -> TimeStep:
    """Return the time step after a reset of every environment."""
    batch = observation.shape[0]
    return TimeStep(
        observation,
        # NumPy arrays, because outside of a compiled program JAX would compile each of its own first.
        reward=jax.device_put(np.zeros(batch, np.float32)),
        discount=jax.device_put(np.ones(batch, np.float32)),
        is_first=jax.device_put(np.ones(batch, bool)),
        is_last=jax.device_put(np.zeros(batch, bool)),
    )
