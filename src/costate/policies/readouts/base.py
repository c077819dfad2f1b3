"""Readouts: control laws that minimise the Hamiltonian given the hidden state, with exploration."""

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax

from costate._base.plain_data import chosen_from
from costate._base.registry import Registry
from costate._base.types import Array, Float, Key
from costate.policies.distribution import AbstractDistribution


class AbstractReadout(eqx.Module):
    """u* = argmin_u { c(u) + uᵀ G(ỹ) h } as a function of ỹ and h, and exploration around it."""

    @abc.abstractmethod
    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        """Return the control that minimises the Hamiltonian."""

    def costate(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S K"]:
        """Return the co-state in the Hamiltonian: the hidden state, unless it holds several hypotheses."""
        return hidden

    @abc.abstractmethod
    def distribution(
        self, features: Float[Array, "*S F"], hidden: Float[Array, "*S H"]
    ) -> AbstractDistribution:
        """Return π(u | ỹ, h) for any number of streams; its mode is ``control``."""

    @abc.abstractmethod
    def exploration(self) -> dict[str, Float[Array, ""]]:
        """Return the width of exploration, under the names of metrics."""


@dataclasses.dataclass(frozen=True)
class ReadoutConfig(abc.ABC):
    """Settings of a readout; a subclass is registered in ``READOUTS`` under the readout's name."""

    off_policy_obstacle: ClassVar[str] = ""
    """Why soft actor-critic cannot use this readout; empty if it can.

    Soft actor-critic squashes the readout's control and differentiates a value by it.
    """

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> AbstractReadout:
        """Return a readout with fresh weights. Encoded observations are as wide as the hidden state."""


READOUTS: Registry[type[ReadoutConfig]] = chosen_from("readout", ReadoutConfig)


def over_streams(
    law: Callable[[Float[Array, " F"], Float[Array, " H"]], Float[Array, " A"]],
    features: Float[Array, "*S F"],
    hidden: Float[Array, "*S H"],
) -> Float[Array, "*S A"]:
    """Apply a law of one stream to any number of streams."""
    for _ in range(hidden.ndim - 1):
        law = jax.vmap(law)
    return law(features, hidden)
