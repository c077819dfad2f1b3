"""A head that predicts the value itself and learns it by squared error."""

import dataclasses

import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.policies.heads.base import HEADS, HeadConfig
from costate.policies.heads.layered import AbstractLayeredHead, fresh_layers
from costate.policies.layer import Layer


class ScalarHead(AbstractLayeredHead):
    """Q(h, u), learnt by ½ (Q − backup)²."""

    first: Layer
    second: Layer
    last: Layer

    def predict(self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        return self.outputs(hidden, action)[..., 0]

    def value(self, prediction: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return prediction

    def target(self, backup: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return backup

    def loss(self, prediction: Float[Array, "*S"], target: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return 0.5 * jnp.square(prediction - target)


@HEADS.register("scalar")
@dataclasses.dataclass(frozen=True)
class ScalarHeadConfig(HeadConfig):
    """One number for each value."""

    @property
    def outputs(self) -> int:
        return 1

    def build(self, key: Key[Array, ""], inputs: int, width: int) -> ScalarHead:
        return ScalarHead(*fresh_layers(key, inputs, width, self.outputs))
