"""Show the inside of a policy while it acts: its critic's value and co-state, and its memory."""

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
    """The inside at one step of every stream."""

    control: Float[Array, "B A"]
    value: Float[Array, " B"]
    """V, the critic's value, in the units of its training."""
    hidden: Float[Array, "B F"]
    """h, as the co-state loss compares it: the mean of several hypotheses, mapped if features have another
    width."""
    costate: Float[Array, "B F"]
    """λ̂ = ∂V/∂ỹ."""
    cosine: Float[Array, " B"]
    """cos(h, λ̂)."""
    remembered: Float[Array, "B O"]
    """(∂ỹ/∂y)ᵀ h: the memory, read as a co-state, for every sensor in units of its own standard deviation."""
    expected: Float[Array, "B O"]
    """(∂ỹ/∂y)ᵀ λ̂ = ∂V/∂y: the critic's, in the same units."""


class AbstractInsight(eqx.Module):
    """A controller with what is needed to look inside."""

    controller: eqx.AbstractVar[AbstractController]

    @abc.abstractmethod
    def empty_memory(self, env: AbstractActuators) -> Carry:
        """Return the memory before the first step, the critic's included."""

    @abc.abstractmethod
    def look(self, env: AbstractActuators, now: TimeStep, memory: Carry) -> tuple[Look, Carry]:
        """Make one step by the controller, and return what is inside with the memory after it."""


class PolicyInsight(AbstractInsight):
    """The inside of the paper's policy, whose critic reads the memory itself."""

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
    """The inside of soft actor-critic, whose critic is a separate network and may read more sensors."""

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
    """Return a look, from the critic's ``value`` as a function of its encoded ``inputs``.

    The first ``sensors`` of the inputs are observed.
    """
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
