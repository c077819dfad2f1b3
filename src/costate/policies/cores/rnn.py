"""The vanilla recurrent network (Elman 1990), the simplest memory that learns what to keep."""

import dataclasses

import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.policies.cores.affine import AbstractAffineCore, AbstractCell, Affine
from costate.policies.cores.base import CORES, CoreConfig, CoreFlops
from costate.policies.initialisation import Initialisation, recurrent_matrix


@dataclasses.dataclass(frozen=True)
class TanhCell(AbstractCell):
    """h' = a = tanh(drive)."""

    def activate(self, drive: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        return jnp.tanh(drive)

    def slope(self, activations: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        return 1.0 - activations * activations

    def combine(self, activations: Float[Array, "*N P"], state: Float[Array, "*N C"]) -> Float[Array, "*N C"]:
        return activations


class RNN(AbstractAffineCore):
    """h' = tanh(W ỹ + U h + b).

    The state is h, and all of it plays the co-state. It is the CT-RNN of Eq. 3.5 with a leak of 1, so that
    all memory passes through U, the counterpart of −F.
    """

    input_weights: Float[Array, "F H"]
    recurrent_weights: Float[Array, "H H"]
    bias: Float[Array, " H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    @property
    def cell(self) -> TanhCell:
        return TanhCell()

    def affine(self) -> Affine:
        return Affine(self.input_weights, self.recurrent_weights, self.bias)


@CORES.register("rnn")
@dataclasses.dataclass(frozen=True)
class RNNConfig(CoreConfig):
    """Vanilla recurrent network."""

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices."""

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> RNN:
        key_input, key_recurrent = jax.random.split(key)
        return RNN(
            recurrent_matrix(key_input, self.initialisation, feature_size, hidden_size),
            recurrent_matrix(key_recurrent, self.initialisation, hidden_size, hidden_size),
            bias=jnp.zeros(hidden_size),
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(2.0 * square, square)
