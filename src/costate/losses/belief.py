"""Belief loss: the memory predicts what working sensors would have shown."""

import dataclasses

import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.losses.base import LOSSES, AbstractAuxiliaryLoss, AuxiliaryLossConfig, Evidence
from costate.policies.initialisation import orthogonal


class Belief(AbstractAuxiliaryLoss):
    """½ |W h_t + b − y_t|² / O with y_t the normalised true observation, blacked out or not.

    The minimiser over all functions of the memory is the conditional mean E[y_t | everything read so far].
    """

    weights: Float[Array, "H O"]
    bias: Float[Array, " O"]

    def predict(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S O"]:
        """Return the predicted observation."""
        product = hidden @ self.weights
        return product + jnp.broadcast_to(self.bias, product.shape)

    def distance(self, evidence: Evidence) -> Float[Array, "T S"]:
        return 0.5 * jnp.square(self.predict(evidence.hidden) - evidence.complete).mean(-1)


@LOSSES.register("belief")
@dataclasses.dataclass(frozen=True)
class BeliefConfig(AuxiliaryLossConfig):
    """Predict the true observation from the memory."""

    def build(
        self, key: Key[Array, ""], hidden_size: int, feature_size: int, observation_size: int
    ) -> Belief:
        return Belief(orthogonal(key, hidden_size, observation_size), jnp.zeros(observation_size))
