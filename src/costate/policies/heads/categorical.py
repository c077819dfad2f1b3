"""A head that predicts a distribution over a range of values and learns it by cross-entropy."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Float, Key
from costate.policies.heads.base import HEADS, HeadConfig
from costate.policies.heads.layered import AbstractLayeredHead, fresh_layers
from costate.policies.layer import Layer


class CategoricalHead(AbstractLayeredHead):
    """Q(h, u) = Σ_k p_k z_k over values z_1 < … < z_K in equal steps, with p the softmax of the outputs.

    A backup between two of the values becomes the probabilities of these two whose mean it is ("two-hot";
    Imani and White 2018, Schrittwieser et al. 2020). A backup outside of the range counts as the end of it.
    """

    first: Layer
    second: Layer
    last: Layer
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def predict(self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"]) -> Float[Array, "*S K"]:
        return self.outputs(hidden, action)

    def value(self, prediction: Float[Array, "*S K"]) -> Float[Array, "*S"]:
        values = jnp.asarray(np.linspace(self.low, self.high, prediction.shape[-1]), prediction.dtype)
        return jnp.matmul(jax.nn.softmax(prediction), values, precision="highest")

    def target(self, backup: Float[Array, "*S"]) -> Float[Array, "*S K"]:
        """Return p_k = max(0, 1 − |x − k|) at the place x of the backup, in steps from the lowest value."""
        count = self.last.bias.shape[0]
        place = (jnp.clip(backup, self.low, self.high) - self.low) * ((count - 1) / (self.high - self.low))
        place = jnp.broadcast_to(place[..., None], (*backup.shape, count))
        values = jnp.broadcast_to(jnp.arange(count, dtype=backup.dtype), place.shape)
        return jnp.maximum(0.0, 1.0 - jnp.abs(place - values))

    def loss(self, prediction: Float[Array, "*S K"], target: Float[Array, "*S K"]) -> Float[Array, "*S"]:
        """Return the cross-entropy −Σ_k target_k log p_k."""
        return -(target * jax.nn.log_softmax(prediction)).sum(-1)


@HEADS.register("categorical")
@dataclasses.dataclass(frozen=True)
class CategoricalHeadConfig(HeadConfig):
    """Probabilities of values in equal steps over a range."""

    low: float = -100.0
    """Lowest value that can be predicted. Returns below it are learnt as if they were it."""
    high: float = 100.0
    """Highest value that can be predicted; 100 is reached by a reward of 1 a step with a discount of 0.99."""
    bins: int = 101
    """Values over the range, its ends included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -math.inf < self.low < self.high < math.inf:
            raise ConfigError(
                f"low is {self.low} and high is {self.high}, but a range of values has finite ends, the "
                "lower first."
            )
        if self.bins < 2:
            raise ConfigError(
                f"bins is {self.bins}, but a range needs at least its two ends. The default is 101."
            )

    @property
    def outputs(self) -> int:
        return self.bins

    def build(self, key: Key[Array, ""], inputs: int, width: int) -> CategoricalHead:
        first, second, last = fresh_layers(key, inputs, width, self.bins)
        # No value is likelier than another at the start, so that Q is the middle of the range.
        empty = Layer(jnp.zeros_like(last.weights), last.bias)
        return CategoricalHead(first, second, empty, self.low, self.high)
