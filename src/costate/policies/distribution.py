"""Distributions over controls: how a policy explores, and the control law without exploration.

Readouts give a Gaussian or a Gibbs distribution, and the actor of soft actor-critic a squashed
Gaussian. Learners and controllers know this interface alone.
"""

import abc

import equinox as eqx
import numpy as np

from costate._base.types import Array, Float


class AbstractDistribution(eqx.Module):
    """π(u | ỹ, h), each component of the control by itself, for any number of streams.

    Samples are functions of standard normal noise and not of a random key: a rollout draws its
    noise before it starts, and that noise may be correlated over time.
    """

    @abc.abstractmethod
    def mode(self) -> Float[Array, "*S A"]:
        """Return the control without exploration, which is the control law."""

    @abc.abstractmethod
    def sample(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        """Return a random control as a function of standard normal noise."""

    @abc.abstractmethod
    def log_prob(self, action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """Return log π(u), summed over the components of the control."""

    def sample_and_log_prob(
        self, noise: Float[Array, "*S A"]
    ) -> tuple[Float[Array, "*S A"], Float[Array, "*S"]]:
        """Return a random control and its log π(u).

        Override it where log π(u) is more accurate by the noise than by the control that came of it.
        """
        action = self.sample(noise)
        return action, self.log_prob(action)

    @abc.abstractmethod
    def entropy(self) -> Float[Array, "*E"] | None:
        """Return the entropy, summed over the components of the control.

        It has no axes if it is the same in every state, and is None if there is no closed form.
        """

    @abc.abstractmethod
    def actuate(
        self, action: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
    ) -> Float[Array, "*S A"]:
        """Return the action that actuators with these bounds make of a control."""

    def margin(self) -> Float[Array, "*S A"] | None:
        """Return how far each control is from switching, in units of σ; None if the law never switches."""
        return None
