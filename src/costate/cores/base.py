"""What a recurrent core is: one step of memory, and how a step becomes a whole sequence."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._registry import Registry
from costate._types import Array, Bool, Float, Key, PyTree


class AbstractCore(eqx.Module):
    """How memory evolves: h_t = step(ỹ_t, h_{t−1}), written for one stream. This is all a new core has to say."""

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """Width of the hidden state."""

    @abc.abstractmethod
    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        """The next hidden state from the encoded observation and the previous hidden state."""


class Memory(eqx.Module):
    """What a sequence did to a core."""

    features: Float[Array, "T B F"]
    """The encoded observations that were read."""
    hiddens: Float[Array, "T B H"]
    """The hidden state after each observation was read."""
    previous: Float[Array, "T B H"]
    """The hidden state before it was read: h_{t−1}, or 0 where an episode starts."""
    tape: PyTree
    """What a fast core keeps of each step for :func:`feature_gradients`; no gradient flows through it."""


class AbstractFastCore(AbstractCore):
    """A core that also reads whole sequences faster than a differentiated scan would. Must equal the scan in value and gradient."""

    @abc.abstractmethod
    def fast_read(self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Memory:
        """The same states as :func:`scan_unroll`, with a tape of the core's own."""

    @abc.abstractmethod
    def fast_feature_gradients(self, memory: Memory, cotangents: Float[Array, "T B H"]) -> Float[Array, "T B F"]:
        """The same as the plain :func:`feature_gradients`, from the tape."""


@dataclasses.dataclass(frozen=True)
class CoreConfig(abc.ABC):
    """Settings of a core; a subclass is registered in ``CORES`` under the core's name."""

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> AbstractCore:
        """A core with fresh weights."""


CORES: Registry[type[CoreConfig]] = Registry("core")


def initial_hidden(core: AbstractCore, batch: int) -> Float[Array, "B H"]:
    """h_0 = 0 for every stream."""
    return jnp.zeros((batch, core.hidden_size))


def forget_at_start(hidden: Float[Array, "*S H"], is_first: Bool[Array, "*S"]) -> Float[Array, "*S H"]:
    """The hidden state that the core continues from: h_0 = 0 where an episode starts."""
    return jnp.where(is_first[..., None], jnp.zeros_like(hidden), hidden)


def step_batch(core: AbstractCore, features: Float[Array, "B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, " B"]) -> Float[Array, "B H"]:
    """One step of every stream; a stream whose episode starts forgets before it reads."""
    return jax.vmap(core.step)(features, forget_at_start(hidden, is_first))


def scan_unroll(
    core: AbstractCore, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]
) -> Float[Array, "T B H"]:
    """All hidden states h_1 … h_T, by scanning ``step``; differentiable to the start of the sequence (full BPTT)."""

    def advance(hidden: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        hidden = step_batch(core, row[0], hidden, row[1])
        return hidden, hidden

    return jax.lax.scan(advance, hidden, (features, is_first))[1]


def read_sequence(core: AbstractCore, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Memory:
    """All hidden states by the fastest way the core offers, with what their derivatives need."""
    if isinstance(core, AbstractFastCore):
        return core.fast_read(features, hidden, is_first)
    hiddens = scan_unroll(core, features, hidden, is_first)
    return Memory(features, hiddens, previous_hidden(hiddens, hidden, is_first), tape=None)


def unroll(core: AbstractCore, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
    """All hidden states by the fastest way the core offers."""
    return read_sequence(core, features, hidden, is_first).hiddens


def feature_gradients(core: AbstractCore, memory: Memory, cotangents: Float[Array, "T B H"]) -> Float[Array, "T B F"]:
    """(∂h_t/∂ỹ_t)ᵀ c_t with h_{t−1} held fixed, for cotangents c of all steps at once.

    It passes through exactly one step of the core, so it is a product in bulk: no second pass through time.
    """
    if isinstance(core, AbstractFastCore):
        return core.fast_feature_gradients(memory, cotangents)
    step = jax.vmap(jax.vmap(core.step))
    gradients: Float[Array, "T B F"] = jax.vjp(lambda features: step(features, memory.previous), memory.features)[1](cotangents)[0]
    return gradients


def previous_hidden(hiddens: Float[Array, "T B H"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
    """What the core held before it read each observation: h_{t−1}, or 0 where an episode starts."""
    return forget_at_start(jnp.concatenate([hidden[None], hiddens[:-1]]), is_first)


def as_rows(sequence: Float[Array, "T B K"]) -> Float[Array, "N K"]:
    """Every step of every stream as a row of one matrix: the form in which products in bulk are fastest."""
    return sequence.reshape(-1, sequence.shape[-1])


def sum_of_outer_products(left: Float[Array, "T B K"], right: Float[Array, "T B L"]) -> Float[Array, "K L"]:
    """Σ over time and streams of left rightᵀ, the gradient of a matrix used in every step, in one product."""
    return as_rows(left).T @ as_rows(right)


def sum_of_rows(sequence: Float[Array, "T B K"]) -> Float[Array, " K"]:
    """Σ over time and streams, the gradient of a bias; as a product, which XLA's CPU backend sums faster than a reduction."""
    rows = as_rows(sequence)
    return jnp.ones(rows.shape[0], rows.dtype) @ rows
