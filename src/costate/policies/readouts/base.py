"""What a readout is: the control law that minimises the Hamiltonian given the hidden state, and how exploration is spread around it."""

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np

from costate._base.plain_data import chosen_from
from costate._base.registry import Registry
from costate._base.types import Array, Float, Key


class AbstractDistribution(eqx.Module):
    """π(u | ỹ, h), each component of the control by itself, for any number of streams. This is all that a learner knows of exploration."""

    @abc.abstractmethod
    def mode(self) -> Float[Array, "*S A"]:
        """The most likely control, which is what the control law gives."""

    @abc.abstractmethod
    def sample(self, noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
        """A random control, as a function of standard normal noise."""

    @abc.abstractmethod
    def log_prob(self, action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """log π(u), summed over the components of the control."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, "*E"]:
        """The entropy, summed over the components of the control; without any axis where it is the same in every state."""

    @abc.abstractmethod
    def actuate(
        self, action: Float[Array, "*S A"], low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]
    ) -> Float[Array, "*S A"]:
        """What actuators with these bounds do with a control."""


class AbstractReadout(eqx.Module):
    """u* = argmin_u { c(u) + uᵀ G(ỹ) h } as a function of ỹ and h, and exploration around it."""

    @abc.abstractmethod
    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        """The control that minimises the Hamiltonian."""

    def costate(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S K"]:
        """The co-state in the Hamiltonian that the control minimises: the hidden state itself, unless it holds several hypotheses."""
        return hidden

    @abc.abstractmethod
    def distribution(
        self, features: Float[Array, "*S F"], hidden: Float[Array, "*S H"]
    ) -> AbstractDistribution:
        """π(u | ỹ, h) for any number of streams; its mode is ``control``."""

    @abc.abstractmethod
    def exploration(self) -> dict[str, Float[Array, ""]]:
        """How widely it explores, under the names of metrics."""


@dataclasses.dataclass(frozen=True)
class ReadoutConfig(abc.ABC):
    """Settings of a readout; a subclass is registered in ``READOUTS`` under the readout's name."""

    off_policy_obstacle: ClassVar[str] = ""
    """Why soft actor-critic, which squashes the readout's control and differentiates a value by it, cannot use this one; empty if it can."""

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> AbstractReadout:
        """A readout with fresh weights. Encoded observations are as wide as the hidden state."""


READOUTS: Registry[type[ReadoutConfig]] = chosen_from("readout", ReadoutConfig)


def over_streams(
    law: Callable[[Float[Array, " F"], Float[Array, " H"]], Float[Array, " A"]],
    features: Float[Array, "*S F"],
    hidden: Float[Array, "*S H"],
) -> Float[Array, "*S A"]:
    """A law of one stream applied to any number of them."""
    for _ in range(hidden.ndim - 1):
        law = jax.vmap(law)
    return law(features, hidden)
