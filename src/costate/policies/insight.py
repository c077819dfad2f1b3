"""A look inside of a policy while it acts: what its critic expects, the co-state that the critic implies, and the memory that should be it."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float
from costate.envs.base import AbstractActuators, TimeStep, anything_seen, true_observation
from costate.policies.controllers import AbstractController, Carry, PolicyController, SquashedController
from costate.policies.cores import empty_core_state, step_batch
from costate.policies.costate_loss import cosine
from costate.policies.policy import Encoder
from costate.policies.running_stats import normalise
from costate.policies.sac_networks import RecurrentCritic, sac_inputs


class Look(NamedTuple):
    """What is inside at one step of every stream."""

    control: Float[Array, "B A"]
    value: Float[Array, " B"]
    """V, what the critic expects of the future, in the units that it was trained in."""
    hidden: Float[Array, "B F"]
    """h, as the co-state loss compares it: the mean of several hypotheses, and mapped where features have another width."""
    costate: Float[Array, "B F"]
    """λ̂ = ∂V/∂ỹ."""
    cosine: Float[Array, " B"]
    """cos(h, λ̂)."""
    remembered: Float[Array, "B O"]
    """(∂ỹ/∂y)ᵀ h: the memory, read as a co-state, by every sensor, each in units of its own standard deviation."""
    expected: Float[Array, "B O"]
    """(∂ỹ/∂y)ᵀ λ̂ = ∂V/∂y: the critic's, in the same units."""


class AbstractInsight(eqx.Module):
    """A controller, and what it takes to look inside."""

    controller: eqx.AbstractVar[AbstractController]

    @abc.abstractmethod
    def empty_memory(self, env: AbstractActuators) -> Carry:
        """What is remembered before the first step, the critic's memory included."""

    @abc.abstractmethod
    def look(self, env: AbstractActuators, now: TimeStep, memory: Carry) -> tuple[Look, Carry]:
        """One step; the control is the controller's."""


class PolicyInsight(AbstractInsight):
    """Of the paper's policy, whose critic reads the memory itself."""

    controller: PolicyController

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return self.controller.empty_memory(env)

    def look(self, env: AbstractActuators, now: TimeStep, memory: Carry) -> tuple[Look, Carry]:
        policy = self.controller.policy
        observation = normalise(self.controller.stats, now.observation, self.controller.observation_clip)
        control, after = self.controller.decide(env, now, memory)

        def value(features: Float[Array, "B F"]) -> Float[Array, " B"]:
            return policy.critic.value(
                policy.core.expose(step_batch(policy.core, features, memory, now.is_first))
            )

        compared = self.controller.in_features(self.controller.hidden(after))
        return _look(control, value, policy.encoder, observation, compared, now.observation.shape[-1]), after


class SquashedInsight(AbstractInsight):
    """Of soft actor-critic, whose critic has a network of its own, and may see what the actor does not."""

    controller: SquashedController
    critic: RecurrentCritic
    sighted: bool = eqx.field(static=True)

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return self.controller.empty_memory(env), empty_core_state(self.critic.core, env.batch_size)

    def look(self, env: AbstractActuators, now: TimeStep, memory: Carry) -> tuple[Look, Carry]:
        own, critics = memory
        control, after = self.controller.decide(env, now, own)
        _, chosen = after
        shown, seen = now.observation, anything_seen(now)
        if self.sighted:
            shown, seen = true_observation(now), jnp.ones_like(seen)
        stats, clip = self.controller.stats, self.controller.observation_clip
        inputs = sac_inputs(stats, clip, shown, seen, own[1], now.is_first)

        def value(features: Float[Array, "B F"]) -> Float[Array, " B"]:
            return self.critic.lowest(
                self.critic.core.expose(step_batch(self.critic.core, features, critics, now.is_first)), chosen
            )

        look = _look(
            control,
            value,
            self.critic.encoder,
            inputs,
            self.controller.hidden(after),
            now.observation.shape[-1],
        )
        return look, (
            after,
            step_batch(self.critic.core, self.critic.encoder.encode(inputs), critics, now.is_first),
        )


def _look(
    control: Float[Array, "B A"],
    value: Callable[[Float[Array, "B F"]], Float[Array, " B"]],
    encoder: Encoder,
    inputs: Float[Array, "B I"],
    hidden: Float[Array, "B F"],
    sensors: int,
) -> Look:
    """From the critic's value as a function of what its encoder makes of ``inputs``, of which the first ``sensors`` are observed."""
    features, pull_to_inputs = jax.vjp(encoder.encode, inputs)
    values, pull_to_features = jax.vjp(value, features)
    (costate,) = pull_to_features(jnp.ones_like(values))
    (remembered,), (expected,) = pull_to_inputs(hidden), pull_to_inputs(costate)
    return Look(
        control,
        values,
        hidden,
        costate,
        cosine(hidden, costate),
        remembered[:, :sensors],
        expected[:, :sensors],
    )
