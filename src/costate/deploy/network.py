"""A trained policy as one pure function.

It maps raw observations to bounded controls, and holds its memory as one row per stream.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.registry import Registry
from costate._base.types import Array, Bool, Float, Key
from costate.policies.acting import Acted, act_by_actor, act_by_policy
from costate.policies.cores import step_batch
from costate.policies.cores.base import forget_at_start
from costate.policies.forms import ACTOR_CRITIC, SQUASHED_ACTOR
from costate.policies.policy import PolicyConfig, RecurrentActorCritic, build_policy
from costate.policies.running_stats import RunningStats, normalise
from costate.policies.sac_networks import RecurrentActor, build_actor, nothing_but_zeros


class Decision(NamedTuple):
    """The result of one observation for every stream."""

    action: Float[Array, "B A"]
    state: Float[Array, "B S"]
    """Everything that is carried to the next step."""
    hidden: Float[Array, "B H"]
    """The part of the state that plays the co-state. For an ensemble all hypotheses, concatenated."""
    value: Float[Array, " B"] | None
    """The critic's value, or None if the critic is not part of the policy."""


class AbstractNetwork(eqx.Module):
    """A policy with its frozen normaliser and the bounds of its actuators. It acts without noise."""

    stats: eqx.AbstractVar[RunningStats]
    observation_clip: eqx.AbstractVar[float | None]
    low: eqx.AbstractVar[tuple[float, ...]]
    high: eqx.AbstractVar[tuple[float, ...]]

    @classmethod
    @abc.abstractmethod
    def build(
        cls,
        weights: eqx.Module,
        stats: RunningStats,
        clip: float | None,
        low: tuple[float, ...],
        high: tuple[float, ...],
    ) -> "AbstractNetwork":
        """Return the policy with these weights, which have the structure of :meth:`template`."""

    @staticmethod
    @abc.abstractmethod
    def template(
        config: PolicyConfig, key: Key[Array, ""], observation_size: int, action_size: int
    ) -> eqx.Module:
        """Return untrained weights, as a template for names and shapes."""

    @staticmethod
    @abc.abstractmethod
    def constant_input(
        weights: Float[np.ndarray, "I F"], bias: Float[np.ndarray, " F"], inputs: int
    ) -> Float[np.ndarray, " F"]:
        """Return the encoder row that absorbs a constant among the first ``inputs`` inputs, to be edited."""

    @property
    @abc.abstractmethod
    def state_size(self) -> int:
        """Width of the state that is carried from step to step."""

    @abc.abstractmethod
    def __call__(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Decision:
        """Take one step in every stream. A stream whose episode starts resets its memory first."""

    @abc.abstractmethod
    def costate(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Float[Array, "B F"] | None:
        """Return λ̂ = ∂V/∂ỹ by the critic with the previous state held fixed.

        Return None if the critic is not part of the policy.
        """

    @abc.abstractmethod
    def margin(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Float[Array, "B A"] | None:
        """Return each control's distance from switching in units of σ, or None if the law does not switch."""


FORMS: Registry[type[AbstractNetwork]] = Registry("form of an acting network")
"""Forms of an acting network, by the controller's name for them, which bundles store as `algorithm`."""


@FORMS.register(ACTOR_CRITIC)
class ActorCriticNetwork(AbstractNetwork):
    """The paper's policy, whose critic reads the memory and is part of the policy."""

    policy: RecurrentActorCritic
    stats: RunningStats
    observation_clip: float | None = eqx.field(static=True)
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def build(
        cls,
        weights: eqx.Module,
        stats: RunningStats,
        clip: float | None,
        low: tuple[float, ...],
        high: tuple[float, ...],
    ) -> "ActorCriticNetwork":
        assert isinstance(weights, RecurrentActorCritic), "made like the template"
        return cls(policy=weights, stats=stats, observation_clip=clip, low=low, high=high)

    @staticmethod
    def template(
        config: PolicyConfig, key: Key[Array, ""], observation_size: int, action_size: int
    ) -> RecurrentActorCritic:
        return build_policy(config, key, observation_size, action_size)

    @staticmethod
    def constant_input(
        weights: Float[np.ndarray, "I F"], bias: Float[np.ndarray, " F"], inputs: int
    ) -> Float[np.ndarray, " F"]:
        return bias

    @property
    def state_size(self) -> int:
        return self.policy.core.state_size

    def __call__(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Decision:
        acted = self._act(observation, state, is_first)
        return Decision(
            acted.action.astype(state.dtype),
            acted.core_state,
            self.policy.core.expose(acted.core_state),
            acted.value,
        )

    def costate(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Float[Array, "B F"]:
        core, critic = self.policy.core, self.policy.critic

        def total(features: Float[Array, "B F"]) -> Float[Array, ""]:
            return critic.value(core.expose(step_batch(core, features, state, is_first))).sum()

        gradient: Float[Array, "B F"] = jax.grad(total)(
            self.policy.encoder.encode(normalise(self.stats, observation, self.observation_clip))
        )
        return gradient

    def margin(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Float[Array, "B A"] | None:
        return self._act(observation, state, is_first).distribution.margin()

    def _act(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Acted:
        # The bounds are what the actuators were in training.
        return act_by_policy(
            self.policy,
            self.stats,
            self.observation_clip,
            observation,
            is_first,
            state,
            np.asarray(self.low),
            np.asarray(self.high),
        )


@FORMS.register(SQUASHED_ACTOR)
class SquashedNetwork(AbstractNetwork):
    """The actor of soft actor-critic, whose state includes its last action.

    Its critics are used only in training, because they read what a robot cannot measure.
    """

    actor: RecurrentActor
    stats: RunningStats
    observation_clip: float | None = eqx.field(static=True)
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def build(
        cls,
        weights: eqx.Module,
        stats: RunningStats,
        clip: float | None,
        low: tuple[float, ...],
        high: tuple[float, ...],
    ) -> "SquashedNetwork":
        assert isinstance(weights, RecurrentActor), "made like the template"
        return cls(actor=weights, stats=stats, observation_clip=clip, low=low, high=high)

    @staticmethod
    def template(
        config: PolicyConfig, key: Key[Array, ""], observation_size: int, action_size: int
    ) -> RecurrentActor:
        return build_actor(config, key, observation_size, action_size)

    @staticmethod
    def constant_input(
        weights: Float[np.ndarray, "I F"], bias: Float[np.ndarray, " F"], inputs: int
    ) -> Float[np.ndarray, " F"]:
        # A row of zeros counts as a blackout, which adds nothing. The constant therefore belongs to the input
        # that says whether anything was seen, which follows the observation.
        row: Float[np.ndarray, " F"] = weights[inputs]
        return row

    @property
    def state_size(self) -> int:
        return self.actor.core.state_size + len(self.low)

    def __call__(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> Decision:
        carried = self.actor.core.state_size
        state = forget_at_start(state, is_first)
        acted = act_by_actor(
            self.actor,
            self.stats,
            self.observation_clip,
            observation,
            ~nothing_but_zeros(observation),
            is_first,
            state[:, :carried],
            state[:, carried:],
            np.asarray(self.low),
            np.asarray(self.high),
        )
        return Decision(
            acted.action.astype(state.dtype),
            jnp.concatenate([acted.core_state, acted.control], axis=-1),
            self.actor.core.expose(acted.core_state),
            acted.value,
        )

    def costate(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> None:
        return None

    def margin(
        self, observation: Float[Array, "B O"], state: Float[Array, "B S"], is_first: Bool[Array, " B"]
    ) -> None:
        return None
