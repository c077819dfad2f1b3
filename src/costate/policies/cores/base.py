"""What a recurrent core is: one step of memory, and how a step becomes a whole sequence."""

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
    """How memory evolves: s_t = step(ỹ_t, s_{t−1}) and h_t = expose(s_t), written for one stream.

    The state s is all that is carried from step to step; h, the hidden state, is the part of it that plays the co-state, and all that readout,
    critic and co-state loss see. They are the same unless a core says otherwise, so that ``hidden_size`` and ``step`` are all a new core has to say.
    """

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """Width of the hidden state."""

    @property
    def state_size(self) -> int:
        """Width of all that is carried from step to step."""
        return self.hidden_size

    @abc.abstractmethod
    def step(self, feature: Float[Array, " F"], state: Float[Array, " C"]) -> Float[Array, " C"]:
        """The next state from the encoded observation and the previous state."""

    def apart(self) -> "AbstractCore":
        """A core with the same step, in the form in which steps are fastest one by one; the core itself unless it says otherwise.

        A loop that holds weights as parts of larger arrays would copy those parts in every step.
        """
        return self

    def expose(self, state: Float[Array, "*N C"]) -> Float[Array, "*N H"]:
        """h, the part of a state that plays the co-state; of one stream, or of as many as there are."""
        return state


class Memory(eqx.Module):
    """What a sequence did to a core."""

    features: Float[Array, "T B F"]
    """The encoded observations that were read."""
    hiddens: Float[Array, "T B H"]
    """The hidden state after each observation was read."""
    previous: Float[Array, "T B C"]
    """The core's state before it was read: s_{t−1}, or 0 where an episode starts."""
    final: Float[Array, "B C"]
    """The core's state after the last observation, from which the sequence can be continued."""
    tape: PyTree
    """What a fast core keeps of each step for :func:`feature_gradients`; no gradient flows through it."""


class AbstractFastCore(AbstractCore):
    """A core that also reads whole sequences faster than a differentiated scan would. Must equal the scan in value and gradient."""

    @abc.abstractmethod
    def fast_read(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        """The same states as :func:`scan_unroll`, with a tape of the core's own."""

    @abc.abstractmethod
    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """The same as the plain :func:`feature_gradients`, from the tape."""


class CoreFlops(NamedTuple):
    """Floating-point operations in the matrix products of one step, with as many features as hidden units."""

    forward: float
    target: float
    """Those of the co-state's target: products with transposed input weights."""


@dataclasses.dataclass(frozen=True)
class CoreConfig(abc.ABC):
    """Settings of a core; a subclass is registered in ``CORES`` under the core's name."""

    shows_all: ClassVar[bool] = True
    """Whether the hidden state is all that the core carries."""

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> AbstractCore:
        """A core with fresh weights."""

    def flops(self, hidden_size: int) -> CoreFlops | None:
        """The matrix products of one step; None where they are not known, which only `costate bench` needs."""
        return None


CORES: Registry[type[CoreConfig]] = chosen_from("core", CoreConfig)


def empty_core_state(core: AbstractCore, batch: int) -> Float[Array, "B C"]:
    """s_0 = 0 for every stream."""
    return jnp.zeros((batch, core.state_size))


def forget_at_start(state: Float[Array, "*N C"], is_first: Bool[Array, "*N"]) -> Float[Array, "*N C"]:
    """The state that the core continues from: s_0 = 0 where an episode starts."""
    return jnp.where(is_first[..., None], jnp.zeros_like(state), state)


def step_batch(
    core: AbstractCore, features: Float[Array, "B F"], state: Float[Array, "B C"], is_first: Bool[Array, " B"]
) -> Float[Array, "B C"]:
    """One step of every stream; a stream whose episode starts forgets before it reads."""
    return jax.vmap(core.step)(features, forget_at_start(state, is_first))


def scan_states(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Float[Array, "T B C"]:
    """All states s_1 … s_T, by scanning ``step``; differentiable to the start of the sequence (full BPTT)."""

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
    """All hidden states h_1 … h_T, the plain way."""
    return core.expose(scan_states(core, features, state, is_first))


def read_sequence(
    core: AbstractCore,
    features: Float[Array, "T B F"],
    state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Memory:
    """All hidden states by the fastest way the core offers, with what their derivatives need."""
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
    """The memory of a sequence whose states, after each observation, are known."""
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
    """All hidden states by the fastest way the core offers."""
    return read_sequence(core, features, state, is_first).hiddens


def feature_gradients(
    core: AbstractCore, memory: Memory, cotangents: Float[Array, "T B H"]
) -> Float[Array, "T B F"]:
    """(∂h_t/∂ỹ_t)ᵀ c_t with s_{t−1} held fixed, for cotangents c of all steps at once.

    It passes through exactly one step of the core, so it is a product in bulk: no second pass through time.
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
    """(∂h_t/∂s_{t−1})ᵀ c_t with ỹ_t held fixed: the same by what was carried instead of by what was read."""
    step = jax.vmap(jax.vmap(core.step))
    gradients: Float[Array, "T B C"] = jax.vjp(
        lambda previous: core.expose(step(memory.features, previous)), memory.previous
    )[1](cotangents)[0]
    return gradients


def previous_states(
    states: Float[Array, "T B C"], start: Float[Array, "B C"], is_first: Bool[Array, "T B"]
) -> Float[Array, "T B C"]:
    """What the core carried before it read each observation: s_{t−1}, or 0 where an episode starts."""
    return forget_at_start(jnp.concatenate([start[None], states[:-1]]), is_first)


def as_rows(sequence: Float[Array, "T B K"]) -> Float[Array, "N K"]:
    """Every step of every stream as a row of one matrix: the form in which products in bulk are fastest."""
    return sequence.reshape(-1, sequence.shape[-1])


def sum_of_outer_products(left: Float[Array, "T B K"], right: Float[Array, "T B L"]) -> Float[Array, "K L"]:
    """Σ over time and streams of left rightᵀ, the gradient of a matrix used in every step, in one product."""
    return as_rows(left).T @ as_rows(right)


def sum_of_rows(sequence: Float[Array, "T B K"]) -> Float[Array, " K"]:
    """Σ over time and streams, the gradient of a bias; as a product, which XLA's CPU backend sums faster than a reduction."""
    rows = as_rows(sequence)
    return jnp.matmul(jnp.ones(rows.shape[0], rows.dtype), rows, precision="highest")
