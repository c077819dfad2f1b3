"""What a recurrent core is: one step of memory, and how a step becomes a whole sequence."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._registry import Registry
from costate._types import Array, Bool, Float, Key


class AbstractCore(eqx.Module):
    """How memory evolves: h_t = step(ỹ_t, h_{t−1}), written for one stream. This is all a new core has to say."""

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """Width of the hidden state."""

    @abc.abstractmethod
    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        """The next hidden state from the encoded observation and the previous hidden state."""


class AbstractFastCore(AbstractCore):
    """A core that also unrolls itself faster than a differentiated scan would. Must equal the scan in value and gradient."""

    @abc.abstractmethod
    def fast_unroll(self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
        """The same as :func:`scan_unroll`."""


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


def unroll(core: AbstractCore, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
    """All hidden states by the fastest way the core offers."""
    if isinstance(core, AbstractFastCore):
        return core.fast_unroll(features, hidden, is_first)
    return scan_unroll(core, features, hidden, is_first)


def previous_hidden(hiddens: Float[Array, "T B H"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]) -> Float[Array, "T B H"]:
    """What the core held before it read each observation: h_{t−1}, or 0 where an episode starts."""
    return forget_at_start(jnp.concatenate([hidden[None], hiddens[:-1]]), is_first)
