"""Controllers: networks with frozen normalisers that act without learning.

They read raw observations and give controls within their bounds.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from costate._base.types import Array, Float
from costate.envs.base import AbstractActuators, TimeStep, anything_seen
from costate.policies.acting import act_by_actor, act_by_policy
from costate.policies.cores import empty_core_state
from costate.policies.forms import ACTOR_CRITIC, SQUASHED_ACTOR
from costate.policies.policy import RecurrentActorCritic
from costate.policies.running_stats import RunningStats, normalise
from costate.policies.sac_networks import RecurrentActor, sac_inputs

Carry = Any
"""The memory of a controller between two steps."""


class AbstractAgent(eqx.Module):
    """A policy in a batch of streams, trained or not."""

    @abc.abstractmethod
    def empty_memory(self, env: AbstractActuators) -> Carry:
        """Return the memory before the first step."""

    @abc.abstractmethod
    def decide(
        self, env: AbstractActuators, now: TimeStep, memory: Carry
    ) -> tuple[Float[Array, "B A"], Carry]:
        """Return a control for every stream and the memory after it.

        A stream whose episode starts forgets first.
        """


class AbstractController(AbstractAgent):
    """Deterministic control of a batch of streams."""

    stats: eqx.AbstractVar[RunningStats]
    """Statistics that normalise observations."""

    @abc.abstractmethod
    def feature(self, now: TimeStep, memory: Carry) -> Float[Array, "B F"]:
        """Return ỹ, the encoded observation that the core reads."""

    @abc.abstractmethod
    def hidden(self, memory: Carry) -> Float[Array, "B H"]:
        """Return h, the part of a memory that plays the co-state."""

    def in_features(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S F"]:
        """Return h in the coordinates of features, where the co-state loss compares it with ∂V/∂ỹ.

        It is h itself unless features have another width.
        """
        return hidden

    @abc.abstractmethod
    def core_state(self, memory: Carry) -> Float[Array, "B C"]:
        """Return the core's part of a memory, of which h is all or a part."""

    @abc.abstractmethod
    def with_core_state(self, memory: Carry, core_state: Float[Array, "B C"]) -> Carry:
        """Return the memory with another state of the core."""


class AbstractNetworkController(AbstractController):
    """A controller that can be exported as a bundle, in one of the forms of ``deploy.network.FORMS``."""

    form: ClassVar[str]
    """Name of that form."""
    observation_clip: eqx.AbstractVar[float | None]
    """Bound of a normalised observation."""

    @property
    @abc.abstractmethod
    def weights(self) -> eqx.Module:
        """Return the network that acts, without the statistics and without what only training needs."""


class PolicyController(AbstractNetworkController):
    """The paper's policy without noise: the control law itself, within the bounds."""

    form: ClassVar[str] = ACTOR_CRITIC
    policy: RecurrentActorCritic
    stats: RunningStats
    observation_clip: float | None = eqx.field(static=True)

    @property
    def weights(self) -> RecurrentActorCritic:
        return self.policy

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return empty_core_state(self.policy.core, env.batch_size)

    def decide(
        self, env: AbstractActuators, now: TimeStep, memory: Carry
    ) -> tuple[Float[Array, "B A"], Carry]:
        acted = act_by_policy(
            self.policy,
            self.stats,
            self.observation_clip,
            now.observation,
            now.is_first,
            memory,
            env.action_low,
            env.action_high,
        )
        return acted.action, acted.core_state

    def feature(self, now: TimeStep, memory: Carry) -> Float[Array, "B F"]:
        return self.policy.encoder.encode(normalise(self.stats, now.observation, self.observation_clip))

    def hidden(self, memory: Carry) -> Float[Array, "B H"]:
        return self.policy.readout.costate(self.policy.core.expose(memory))

    def in_features(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S F"]:
        return self.policy.in_features(hidden)

    def core_state(self, memory: Carry) -> Float[Array, "B C"]:
        core_state: Float[Array, "B C"] = memory
        return core_state

    def with_core_state(self, memory: Carry, core_state: Float[Array, "B C"]) -> Carry:
        return core_state


class SquashedController(AbstractNetworkController):
    """The actor of soft actor-critic without noise. Its memory includes the last control."""

    form: ClassVar[str] = SQUASHED_ACTOR
    actor: RecurrentActor
    stats: RunningStats
    observation_clip: float | None = eqx.field(static=True)

    @property
    def weights(self) -> RecurrentActor:
        return self.actor

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return empty_core_state(self.actor.core, env.batch_size), jnp.zeros((env.batch_size, env.action_size))

    def decide(
        self, env: AbstractActuators, now: TimeStep, memory: Carry
    ) -> tuple[Float[Array, "B A"], Carry]:
        core_state, before = memory
        acted = act_by_actor(
            self.actor,
            self.stats,
            self.observation_clip,
            now.observation,
            anything_seen(now),
            now.is_first,
            core_state,
            before,
            env.action_low,
            env.action_high,
        )
        return acted.action, (acted.core_state, acted.control)

    def feature(self, now: TimeStep, memory: Carry) -> Float[Array, "B F"]:
        return self.actor.encoder.encode(
            sac_inputs(
                self.stats,
                self.observation_clip,
                now.observation,
                anything_seen(now),
                memory[1],
                now.is_first,
            )
        )

    def hidden(self, memory: Carry) -> Float[Array, "B H"]:
        return self.actor.core.expose(memory[0])

    def core_state(self, memory: Carry) -> Float[Array, "B C"]:
        core_state: Float[Array, "B C"] = memory[0]
        return core_state

    def with_core_state(self, memory: Carry, core_state: Float[Array, "B C"]) -> Carry:
        return core_state, memory[1]
