"""Recurrent cores: one step of memory, and how steps are run over a whole sequence."""

import abc
import dataclasses
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.plain_data import chosen_from
from costate._base.registry import Registry
from costate._base.types import Array, Bool, Float, Key, PyTree


class AbstractCore(eqx.Module):
    """A recurrent memory: s_t = step(ỹ_t, s_{t−1}) and h_t = expose(s_t), written for one stream.

    The state s is all that is carried from step to step. The hidden state h is the part of it that plays the
    co-state; readout, critic and co-state loss see nothing else. By default h is s, so a new core needs only
    ``hidden_size`` and ``step``.
    """

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """Width of the hidden state."""

    @property
    def state_size(self) -> int:
        """Width of the state, which is carried from step to step."""
        return self.hidden_size

    @abc.abstractmethod
    def step(self, feature: Float[Array, " F"], state: Float[Array, " C"]) -> Float[Array, " C"]:
        """Return the next state from the encoded observation and the previous state."""

    def unstacked(self) -> "AbstractCore":
        """Return a core with the same step, in the form in which single steps are fastest.

        A loop over weights that are parts of larger arrays copies those parts in every step.
        """
        return self

    def expose(self, state: Float[Array, "*N C"]) -> Float[Array, "*N H"]:
        """Return h, the part of a state that plays the co-state, for one or any number of streams."""
        return state


class Memory(eqx.Module):
    """The states of a core over a sequence."""

    features: Float[Array, "T B F"]
    """The encoded observations that were read."""
    hiddens: Float[Array, "T B H"]
    """The hidden state after each observation was read."""
    previous: Float[Array, "T B C"]
    """The core's state before it was read: s_{t−1}, or 0 where an episode starts."""
    final: Float[Array, "B C"]
    """The core's state after the last observation, from which the sequence can be continued."""
    tape: PyTree
    """Intermediate results of a fast core for :func:`feature_gradients`. No gradient flows through them."""


class AbstractFastCore(AbstractCore):
    """A core that reads whole sequences faster than a scan of steps, with the same values and gradients."""

    @abc.abstractmethod
    def fast_read(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        """Return the same states as :func:`scan_unroll`, with a tape of the core's own."""

    @abc.abstractmethod
    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Return the same as the generic :func:`feature_gradients`, computed from the tape."""


class CoreFlops(NamedTuple):
    """Floating-point operations in the matrix products of one step, with as many features as hidden units."""

    forward: float
    target: float
    """Operations of the co-state's target: products with transposed input weights."""


@dataclasses.dataclass(frozen=True)
class CoreConfig(abc.ABC):
    """Settings of a core; a subclass is registered in ``CORES`` under the core's name."""

    shows_all: ClassVar[bool] = True
    """True if the hidden state is all that the core carries."""

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> AbstractCore:
        """Return a core with fresh weights."""

    def flops(self, hidden_size: int) -> CoreFlops | None:
        """Return the operations of one step's matrix products; None if unknown.

        Only `costate bench` needs them.
        """
        return None


CORES: Registry[type[CoreConfig]] = chosen_from("core", CoreConfig)


def empty_core_state(core: AbstractCore, batch: int) -> Float[Array, "B C"]:
    """Return s_0 = 0 for every stream."""
    return jnp.zeros((batch, core.state_size))


def forget_at_start(state: Float[Array, "*N C"], is_first: Bool[Array, "*N"]) -> Float[Array, "*N C"]:
    """Return the state that the core continues from: s_0 = 0 where an episode starts."""
    return jnp.where(is_first[..., None], jnp.zeros_like(state), state)


def step_batch(
    core: AbstractCore, features: Float[Array, "B F"], state: Float[Array, "B C"], is_first: Bool[Array, " B"]
) -> Float[Array, "B C"]:
    """Return one step of every stream. A stream whose episode starts forgets before it reads."""
    return jax.vmap(core.step)(features, forget_at_start(state, is_first))


def scan_states(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Float[Array, "T B C"]:
    """Return all states s_1 … s_T by scanning ``step``; gradients flow back to the start (full BPTT)."""

    def advance(state: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        state = step_batch(core, row[0], state, row[1])
        return state, state

    return jax.lax.scan(advance, state, (features, is_first))[1]


def scan_unroll(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Float[Array, "T B H"]:
    """Return all hidden states h_1 … h_T by scanning ``step``."""
    return core.expose(scan_states(core, features, state, is_first))


def read_sequence(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Memory:
    """Return all hidden states by the fastest way that the core offers, with what their derivatives need."""
    if isinstance(core, AbstractFastCore):
        return core.fast_read(features, state, is_first)
    return remember(core, features, scan_states(core, features, state, is_first), state, is_first, tape=None)


def remember(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    states: Float[Array, "T B C"],
    start: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
    tape: PyTree,
) -> Memory:
    """Return the memory of a sequence, given the states after each observation."""
    return Memory(
        features,
        core.expose(states),
        previous_states(states, start, is_first),
        states[-1],
        jax.lax.stop_gradient(tape),
    )


def unroll(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Float[Array, "T B H"]:
    """Return all hidden states by the fastest way that the core offers."""
    return read_sequence(core, features, state, is_first).hiddens


def feature_gradients(
    core: AbstractCore, memory: Memory, cotangents: Float[Array, "T B H"]
) -> Float[Array, "T B F"]:
    """Return (∂h_t/∂ỹ_t)ᵀ c_t with s_{t−1} held fixed, for cotangents c of all steps at once.

    It passes through exactly one step of the core, so it needs large products, but no second pass through
    time.
    """
    if isinstance(core, AbstractFastCore):
        return core.fast_feature_gradients(memory, cotangents)
    step = jax.vmap(jax.vmap(core.step))
    gradients: Float[Array, "T B F"] = jax.vjp(
        lambda features: core.expose(step(features, memory.previous)), memory.features
    )[1](cotangents)[0]
    return gradients


def state_gradients(
    core: AbstractCore, memory: Memory, cotangents: Float[Array, "T B H"]
) -> Float[Array, "T B C"]:
    """Return (∂h_t/∂s_{t−1})ᵀ c_t with ỹ_t held fixed, for cotangents c of all steps at once."""
    step = jax.vmap(jax.vmap(core.step))
    gradients: Float[Array, "T B C"] = jax.vjp(
        lambda previous: core.expose(step(memory.features, previous)), memory.previous
    )[1](cotangents)[0]
    return gradients


def previous_states(
    states: Float[Array, "T B C"], start: Float[Array, "B C"], is_first: Bool[Array, "T B"]
) -> Float[Array, "T B C"]:
    """Return the states before each observation was read: s_{t−1}, or 0 where an episode starts."""
    return forget_at_start(jnp.concatenate([start[None], states[:-1]]), is_first)


def as_rows(sequence: Float[Array, "T B K"]) -> Float[Array, "N K"]:
    """Return every step of every stream as a row of one matrix, for which products are fastest."""
    return sequence.reshape(-1, sequence.shape[-1])


def sum_of_outer_products(left: Float[Array, "T B K"], right: Float[Array, "T B L"]) -> Float[Array, "K L"]:
    """Return Σ left rightᵀ over time and streams: the gradient of a matrix used in every step."""
    return as_rows(left).T @ as_rows(right)


def sum_of_rows(sequence: Float[Array, "T B K"]) -> Float[Array, " K"]:
    """Return the sum over time and streams: the gradient of a bias.

    It is a product, because XLA's CPU backend sums slower by a reduction.
    """
    rows = as_rows(sequence)
    return jnp.matmul(jnp.ones(rows.shape[0], rows.dtype), rows, precision="highest")
