"""The contract of an auxiliary loss: its inputs, its result, and its place in the loss of a learner.

An auxiliary loss shapes the memory beside the learner's own losses. It may have weights of its own. They are
trained and saved with the learner, and left out of everything that only acts: milestones, bundles and
exports.
"""

import abc
import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.plain_data import chosen_from
from costate._base.types import Array, Bool, Float, Key


class Evidence(eqx.Module):
    """The inputs of an auxiliary loss, for S streams over T steps.

    Observations are normalised, as networks read them. Gradients reach the core and the encoder through
    ``hidden`` and ``features``; the rest is constant.
    """

    hidden: Float[Array, "T S H"]
    """h_t, the hidden state after reading y_t; of an ensemble all hypotheses, concatenated."""
    features: Float[Array, "T S F"]
    """ỹ_t, the encoded observation that the core read."""
    observation: Float[Array, "T S O"]
    """What the sensors showed."""
    complete: Float[Array, "T S O"]
    """What working sensors would have shown."""
    costate: Float[Array, "T S G"]
    """λ̂_t = ∂V/∂ỹ_t by the learner's critic, the target of the co-state loss."""
    seen: Bool[Array, "T S"]
    """True where anything was observed at all, as far as a receiver can tell."""
    is_first: Bool[Array, "T S"]
    """True where an episode starts with y_t, before which the core forgets."""


class AbstractAuxiliaryLoss(eqx.Module):
    """A loss on the memory, with its own weights."""

    @abc.abstractmethod
    def distance(self, evidence: Evidence) -> Float[Array, "T S"]:
        """Return the loss of every step. The learner drops steps that count in no loss."""


@dataclasses.dataclass(frozen=True)
class AuxiliaryLossConfig(abc.ABC):
    """Settings of an auxiliary loss."""

    coef: float = 0.0
    """Weight of the loss relative to the learner's own; 0 leaves it out."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.coef < float("inf"):
            raise ConfigError(
                f"coef of an auxiliary loss is {self.coef}, but a weight is a finite number that is at "
                "least 0. Use 0 to leave the loss out."
            )

    @abc.abstractmethod
    def build(
        self, key: Key[Array, ""], hidden_size: int, feature_size: int, observation_size: int
    ) -> AbstractAuxiliaryLoss:
        """Return the loss with fresh weights."""


LOSSES = chosen_from("auxiliary loss", AuxiliaryLossConfig)


class WeightedLoss(eqx.Module):
    """An auxiliary loss with its name and its weight in the total."""

    loss: AbstractAuxiliaryLoss
    name: str = eqx.field(static=True)
    coef: float = eqx.field(static=True)


def build_losses(
    configs: Sequence[AuxiliaryLossConfig],
    key: Key[Array, ""],
    hidden_size: int,
    feature_size: int,
    observation_size: int,
) -> tuple[WeightedLoss, ...]:
    """Return the losses of a run with fresh weights, each from a key of its own."""
    return tuple(
        WeightedLoss(
            config.build(jax.random.fold_in(key, number), hidden_size, feature_size, observation_size),
            LOSSES.name_of(type(config)),
            config.coef,
        )
        for number, config in enumerate(configs)
    )


def auxiliary_terms(
    losses: Sequence[WeightedLoss], evidence: Evidence, weight: Float[Array, "T S"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return Σ_i c_i E_t[ℓ_i(t)] and the single means as metrics.

    ``weight`` is the share of each row in a mean: 1 in sum over all devices, 0 for rows that count in no
    loss.
    """
    total, metrics = jnp.zeros(()), {}
    for each in losses:
        mean = (each.loss.distance(evidence) * weight).sum()
        metrics[f"losses/{each.name}"] = mean
        total = total + each.coef * mean
    return total, metrics
