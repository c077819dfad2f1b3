"""The explicit neural co-state policy of Definition 3.2: a memory with the co-state's differential equation.

    ḣ = −B(ỹ) − F(ỹ, u) h,    F(ỹ, u) = D(ỹ, u) + S(ỹ, u)

**Which F.** A co-state is known at the end of a trajectory, and its equation is stable when it is run
backwards from there. A memory runs forwards, where −F h grows without bound along every stable direction of
the plant. So F is learnt among the matrices that are stable forwards: D is diagonal and at least d > 0, S is
skew-symmetric, hence hᵀF h ≥ d |h|². What is lost is growth, which no bounded memory can have; observations
have to correct for it instead, as in a filter. S is tridiagonal, which loses nothing where it is constant:
every skew-symmetric matrix is tridiagonal in some orthonormal coordinates, and the coordinates of h are free.
Time is measured in control steps.

**Which u.** F sees the control of the co-state before this observation, û = G h_{t−1}: the quadratic control
law with the core's own G. It stands for the control of the step that led to y_t, without exploration noise,
which a memory trained on-policy never sees. The readout has another G, because a core does not know the
actuators. Off-policy, ỹ itself contains the control that was applied.

**Which integrator.** S is the sum of its even and its odd couplings, each a set of rotations in disjoint
planes. The implicit midpoint rule does the rotations, plane by plane; then the implicit Euler rule does decay
and source:

    h ← R_odd R_even h_{t−1},   (I + ½Ω) R = I − ½Ω in each plane,        h_t = (h − B(ỹ_t)) / (1 + D(ỹ_t, û))

**Why h is bounded.** R is an isometry whatever the frequencies, |B_i| ≤ 1 because B ends in tanh, and D ≥ d,
so that

    |h_t| ≤ (|h_{t−1}| + √H) / (1 + d),

and the ball |h| ≤ √H/d, in which every episode starts, is never left. None of this needs a small time step.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores.base import (
    CORES,
    AbstractFastCore,
    CoreConfig,
    CoreFlops,
    Memory,
    as_rows,
    forget_at_start,
    remember,
)
from costate.policies.initialisation import Initialisation, recurrent_matrix


class Terms(NamedTuple):
    """The arguments of B and F, before the functions that bound them."""

    source: Float[Array, "*S H"]
    """B = tanh(source)."""
    decay: Float[Array, "*S H"]
    """D = d + softplus(decay)."""
    frequency: Float[Array, "*S J"]
    """The off-diagonal entries of S, J = H − 1: first the even couplings, then the odd ones."""


class CostateCell(AbstractFastCore):
    """h_t = (R_odd R_even h_{t−1} − B(ỹ_t)) / (1 + D(ỹ_t, û)) with û = G h_{t−1}.

    This is one stable step of ḣ = −B(ỹ) − F(ỹ, u) h.
    """

    source_weights: Float[Array, "F H"]
    decay_weights: Float[Array, "F H"]
    frequency_weights: Float[Array, "F J"]
    influence: Float[Array, "H C"]
    """G, transposed."""
    decay_by_control: Float[Array, "C H"]
    frequency_by_control: Float[Array, "C J"]
    bias: Float[Array, " H"]
    decay_bias: Float[Array, " H"]
    frequency_bias: Float[Array, " J"]
    slowest_decay: float = eqx.field(static=True)

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    def step(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " H"]:
        return self._integrate(self._controlled(self._drives(feature[None]), hidden[None]), hidden[None])[0]

    def fast_read(
        self, features: Float[Array, "T B F"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        """Multiply all observations by their weights before the loop, which is elementwise except for û."""
        drives = jax.tree.map(
            lambda drive: drive.reshape(*is_first.shape, -1), self._drives(as_rows(features))
        )

        def advance(hidden: Array, row: tuple[Terms, Array]) -> tuple[Array, tuple[Array, Terms]]:
            hidden = forget_at_start(hidden, row[1])
            terms = self._controlled(row[0], hidden)
            hidden = self._integrate(terms, hidden)
            return hidden, (hidden, terms)

        _, (hiddens, terms) = jax.lax.scan(advance, hidden, (drives, is_first))
        return remember(self, features, hiddens, hidden, is_first, terms)

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Differentiate the elementwise step at the stored terms, then multiply by each transposed matrix."""
        terms: Terms = jax.tree.map(as_rows, memory.tape)
        previous = as_rows(memory.previous)
        deltas: Terms = jax.vjp(lambda terms: self._integrate(terms, previous), terms)[1](
            as_rows(cotangents)
        )[0]
        gradients = (
            deltas.source @ self.source_weights.T
            + deltas.decay @ self.decay_weights.T
            + deltas.frequency @ self.frequency_weights.T
        )
        return gradients.reshape(*cotangents.shape[:2], -1)

    def _drives(self, features: Float[Array, "N F"]) -> Terms:
        """Return the terms that depend on the observations."""
        return Terms(
            features @ self.source_weights + self.bias[None],
            features @ self.decay_weights + self.decay_bias[None],
            features @ self.frequency_weights + self.frequency_bias[None],
        )

    def _controlled(self, drives: Terms, hidden: Float[Array, "N H"]) -> Terms:
        """Add the terms of F that depend on the control û. B does not depend on it."""
        control = hidden @ self.influence
        return Terms(
            drives.source,
            drives.decay + control @ self.decay_by_control,
            drives.frequency + control @ self.frequency_by_control,
        )

    def _integrate(self, terms: Terms, hidden: Float[Array, "N H"]) -> Float[Array, "N H"]:
        """Apply the rotations, then decay and source."""
        decay = self.slowest_decay + jax.nn.softplus(terms.decay)
        return (rotate(terms.frequency, hidden) - jnp.tanh(terms.source)) / (1.0 + decay)


def rotate(frequency: Float[Array, "N J"], hidden: Float[Array, "N H"]) -> Float[Array, "N H"]:
    """Return R_odd R_even h for the tridiagonal S, an isometry.

    The units are coupled in the order even₀, odd₀, even₁, odd₁, …. The even ones are stored first, so that
    planes are pairs of contiguous slices.
    """
    half = -(-hidden.shape[-1] // 2)
    even, odd = hidden[:, :half], hidden[:, half:]
    pairs = odd.shape[-1]
    first, odd = turn(frequency[:, :pairs], even[:, :pairs], odd)
    even = jnp.concatenate([first, even[:, pairs:]], axis=-1)
    near, later = turn(frequency[:, pairs:], odd[:, : half - 1], even[:, 1:])
    return jnp.concatenate([even[:, :1], later, near, odd[:, half - 1 :]], axis=-1)


def turn(
    frequency: Float[Array, "N K"], left: Float[Array, "N K"], right: Float[Array, "N K"]
) -> tuple[Float[Array, "N K"], Float[Array, "N K"]]:
    """Rotate by 2 arctan(ω/2): one implicit midpoint step of (left, right)˙ = −(0 ω; −ω 0)(left, right)."""
    half = 0.5 * frequency
    scale = 1.0 / (1.0 + half * half)
    cosine, sine = (1.0 - half * half) * scale, frequency * scale
    return cosine * left - sine * right, sine * left + cosine * right


@CORES.register("costate-cell")
@dataclasses.dataclass(frozen=True)
class CostateCellConfig(CoreConfig):
    """The co-state's own differential equation with learned B, F and G, integrated stably."""

    initialisation: Initialisation = "orthogonal"
    """Initial matrices."""
    controls: int = 8
    """Components of the control that F sees. The core does not know how many actuators there are."""
    slowest_decay: float = 0.01
    """Least rate d at which the memory decays in a control step; the memory is bounded by √H/d."""

    def __post_init__(self) -> None:
        if self.controls < 1:
            raise ConfigError(
                f"controls is {self.controls}, but F needs at least one component of a control to depend on."
            )
        if not (math.isfinite(self.slowest_decay) and self.slowest_decay > 0.0):
            raise ConfigError(
                f"slowest_decay is {self.slowest_decay}, but it must be a positive number: it keeps the "
                "memory bounded."
            )

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> CostateCell:
        if hidden_size < 2:
            raise ConfigError(
                f"hidden_size is {hidden_size}, but a co-state cell couples neighbouring units and needs at "
                "least 2."
            )
        couplings, keys = hidden_size - 1, jax.random.split(key, 6)

        def matrix(index: int, rows: int, columns: int) -> Float[Array, "rows columns"]:
            return recurrent_matrix(keys[index], self.initialisation, rows, columns)

        return CostateCell(
            source_weights=matrix(0, feature_size, hidden_size),
            decay_weights=matrix(1, feature_size, hidden_size),
            frequency_weights=matrix(2, feature_size, couplings),
            influence=matrix(3, hidden_size, self.controls),
            decay_by_control=matrix(4, self.controls, hidden_size),
            frequency_by_control=matrix(5, self.controls, couplings),
            bias=jnp.zeros(hidden_size),
            # softplus(0) + d ≈ 0.7: at first the memory loses two fifths in every step.
            decay_bias=jnp.zeros(hidden_size),
            frequency_bias=jnp.zeros(couplings),
            slowest_decay=self.slowest_decay,
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        # B, D and S from the observation, whose transposes the target needs; D and S from a control,
        # which is a product of the memory.
        observed = 2.0 * hidden_size * (3 * hidden_size - 1)
        return CoreFlops(observed + 2.0 * self.controls * (3 * hidden_size - 1), observed)
