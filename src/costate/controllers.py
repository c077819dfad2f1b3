"""What acts when nobody learns: a network with its frozen normaliser, from raw observations to controls within their bounds."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from costate._types import Array, Float
from costate.cores import initial_hidden
from costate.envs.base import AbstractEnv, TimeStep
from costate.policy import RecurrentActorCritic, act
from costate.running_stats import RunningStats, normalise
from costate.sac_networks import RecurrentActor, act_once, sac_inputs
from costate.sac_rollout import scale_control

Carry = Any
"""What a controller remembers between two steps."""


class AbstractController(eqx.Module):
    """Deterministic control of a batch of streams."""

    @abc.abstractmethod
    def empty_memory(self, env: AbstractEnv) -> Carry:
        """What is remembered before the first step."""

    @abc.abstractmethod
    def decide(self, env: AbstractEnv, now: TimeStep, memory: Carry) -> tuple[Float[Array, "B A"], Carry]:
        """A control for every stream; where an episode starts, its memory does."""


class PolicyController(AbstractController):
    """The paper's policy without noise: the control law itself, within the bounds."""

    policy: RecurrentActorCritic
    stats: RunningStats
    observation_clip: float | None = eqx.field(static=True)

    def empty_memory(self, env: AbstractEnv) -> Carry:
        return initial_hidden(self.policy.core, env.batch_size)

    def decide(self, env: AbstractEnv, now: TimeStep, memory: Carry) -> tuple[Float[Array, "B A"], Carry]:
        decision = act(self.policy, normalise(self.stats, now.observation, self.observation_clip), memory, now.is_first)
        control = decision.control.actuate(decision.control.mode(), env.action_low, env.action_high)
        return control, decision.hidden


class SquashedController(AbstractController):
    """The actor of soft actor-critic without noise; it also remembers what it did last."""

    actor: RecurrentActor
    stats: RunningStats
    observation_clip: float | None = eqx.field(static=True)

    def empty_memory(self, env: AbstractEnv) -> Carry:
        return initial_hidden(self.actor.core, env.batch_size), jnp.zeros((env.batch_size, env.action_size))

    def decide(self, env: AbstractEnv, now: TimeStep, memory: Carry) -> tuple[Float[Array, "B A"], Carry]:
        hidden, before = memory
        inputs = sac_inputs(self.stats, self.observation_clip, now.observation, before, now.is_first)
        policy, hidden = act_once(self.actor, inputs, hidden, now.is_first)
        control = policy.mode()
        return scale_control(env, control), (hidden, control)
