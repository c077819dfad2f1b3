"""Long short-term memory (Hochreiter & Schmidhuber 1997) with a forget gate (Gers et al. 2000)."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Float, Key
from costate.policies.cores.affine import AbstractCell, AbstractPairCore, Affine, side_by_side
from costate.policies.cores.base import CORES, CoreConfig, CoreFlops
from costate.policies.initialisation import Initialisation, recurrent_matrices

# The four drives i, f, o, g in this order: three gates and a candidate.
GATES = 4


@dataclasses.dataclass(frozen=True)
class LSTMCell(AbstractCell):
    """c' = f ⊙ c + i ⊙ g,   h' = o ⊙ tanh(c'), of the state (h, c)."""

    forget_bias: float

    def activate(self, drive: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        i, f, o, g = jnp.split(drive, GATES, axis=-1)
        gates = (jax.nn.sigmoid(i), jax.nn.sigmoid(f + self.forget_bias), jax.nn.sigmoid(o))
        return jnp.concatenate([*gates, jnp.tanh(g)], axis=-1)

    def slope(self, activations: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        i, f, o, g = jnp.split(activations, GATES, axis=-1)
        return jnp.concatenate([*(gate * (1.0 - gate) for gate in (i, f, o)), 1.0 - g * g], axis=-1)

    def combine(self, activations: Float[Array, "*N P"], state: Float[Array, "*N C"]) -> Float[Array, "*N C"]:
        i, f, o, g = jnp.split(activations, GATES, axis=-1)
        _, c = jnp.split(state, 2, axis=-1)
        c = f * c + i * g
        return jnp.concatenate([o * jnp.tanh(c), c], axis=-1)


class LSTM(AbstractPairCore):
    """A memory with a cell behind gates.

    i, f, o = σ(W ỹ + U h + b) each with weights of its own,   g = tanh(W_g ỹ + U_g h + b_g)
    c' = f ⊙ c + i ⊙ g,   h' = o ⊙ tanh(c')

    The state is (h, c), and h plays the co-state. It is bounded by 1, drives the gates and is read by the
    control law, as λ drives its own equation and minimises the Hamiltonian. The cell c is unbounded and
    hidden behind the output gate.

    A constant is added to the forget gate, so that memory is kept at first (Jozefowicz et al. 2015), while
    every learned bias starts at zero.
    """

    input_weights: Float[Array, "4 F H"]
    recurrent_weights: Float[Array, "4 H H"]
    bias: Float[Array, "4 H"]
    forget_bias: float = eqx.field(static=True)

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    @property
    def cell(self) -> LSTMCell:
        return LSTMCell(self.forget_bias)

    def affine(self) -> Affine:
        return Affine(
            side_by_side(self.input_weights), side_by_side(self.recurrent_weights), self.bias.reshape(-1)
        )


@CORES.register("lstm")
@dataclasses.dataclass(frozen=True)
class LSTMConfig(CoreConfig):
    """Long short-term memory, whose output h plays the co-state."""

    shows_all = False

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices of each gate."""
    forget_bias: float = 1.0
    """Constant in the forget gate. The larger it is, the longer memory is kept before training."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.forget_bias):
            raise ConfigError(
                f"forget_bias is {self.forget_bias}, but it must be a finite number. The usual value is 1."
            )

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> LSTM:
        keys = jax.random.split(key, 2 * GATES)
        return LSTM(
            recurrent_matrices(keys[:GATES], self.initialisation, feature_size, hidden_size),
            recurrent_matrices(keys[GATES:], self.initialisation, hidden_size, hidden_size),
            bias=jnp.zeros((GATES, hidden_size)),
            forget_bias=self.forget_bias,
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(8.0 * square, 4.0 * square)
