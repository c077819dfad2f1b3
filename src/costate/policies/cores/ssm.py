"""Linear diagonal state-space core, read in parallel.

It is the LRU of Orvieto et al. 2023, a discrete-time relative of S5 (Smith et al. 2023):

    x' = Λ x + Γ (W ỹ),    h = tanh(C x + b),    Λ = diag(r e^{iθ}),    r = exp(−exp(ν)) < 1,    Γ² = 1 − r²

x is complex. Its real and imaginary parts are carried, on which W and C are ordinary real matrices. |Λ| < 1
whatever ν is, and Γ gives x the size of its input, however slow a mode is.

**Which part is the co-state.** With a constant F the co-state's equation ḣ = −B(ỹ) − F h of Definition 3.2 is
linear. The modes x are its coordinates along the eigenvectors of F, in which it separates into one equation
for each pair of conjugate eigenvalues. So half as many modes as hidden units are as many as an F of that size
has. Modes are not directions of the features, where the target λ̂ = ∂V/∂ỹ lives. The real readout h brings
them back, and h plays the co-state.

**Why tanh.** With a linear memory and a linear critic the target would be Wᵀ Γ Cᵀ ∇V, the same vector at
every step and in every state: there would be nothing to align with. The tanh also bounds h by 1. The
recurrence stays linear.

**In parallel.** Steps x ↦ a x + b compose to steps of the same kind, (a₂, b₂) ∘ (a₁, b₁) =
(a₂ a₁, a₂ b₁ + b₂), and composition is associative. So all states of a sequence come from a tree of
compositions, whose depth is the logarithm of its length. Where an episode starts, a = 0, which removes
everything before from each composition.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Complex, Float, Key
from costate.policies.cores.base import (
    CORES,
    AbstractFastCore,
    CoreConfig,
    CoreFlops,
    Memory,
    as_rows,
    remember,
)
from costate.policies.initialisation import Initialisation, recurrent_matrix


class SSM(AbstractFastCore):
    """x' = Λ x + Γ (W ỹ),   h = tanh(C x + b). The state is (Re x, Im x), and h plays the co-state."""

    input_weights: Float[Array, "F C"]
    """W, transposed: for the real parts, then for the imaginary ones."""
    output_weights: Float[Array, "C H"]
    """C, transposed."""
    bias: Float[Array, " H"]
    log_decay: Float[Array, " K"]
    """ν."""
    phase: Float[Array, " K"]
    """θ, in radians for a control step."""

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    @property
    def state_size(self) -> int:
        return self.input_weights.shape[-1]

    def expose(self, state: Float[Array, "*N C"]) -> Float[Array, "*N H"]:
        product = state @ self.output_weights
        return jnp.tanh(product + jnp.broadcast_to(self.bias, product.shape))

    def step(self, feature: Float[Array, " F"], state: Float[Array, " C"]) -> Float[Array, " C"]:
        return to_parts(self._multipliers() * to_complex(state) + to_complex(self._drives(feature[None])[0]))

    def fast_read(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        drives = to_complex(self._drives(as_rows(features)).reshape(*is_first.shape, -1))
        multipliers = jnp.where(is_first[..., None], 0.0, jnp.broadcast_to(self._multipliers(), drives.shape))
        # The state before the sequence is one more drive of its first step.
        drives = drives.at[0].add(multipliers[0] * to_complex(state))
        _, modes = jax.lax.associative_scan(compose, (multipliers, drives))
        return remember(self, features, to_parts(modes), state, is_first, tape=None)

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Return ((1 − h²) ⊙ c) C Γ W at the stored h. Λ does not enter."""
        h = memory.hiddens
        by_state = as_rows((1.0 - h * h) * cotangents) @ self.output_weights.T
        return ((by_state * self._scales()[None]) @ self.input_weights.T).reshape(*h.shape[:2], -1)

    def _multipliers(self) -> Complex[Array, " K"]:
        """Return the diagonal of Λ."""
        r = jnp.exp(-jnp.exp(self.log_decay))
        return jax.lax.complex(r * jnp.cos(self.phase), r * jnp.sin(self.phase))

    def _scales(self) -> Float[Array, " C"]:
        """Return the diagonal of Γ, for real and imaginary parts.

        1 − r² is computed without cancellation, so that its root has a gradient at any r.
        """
        scale = jnp.sqrt(-jnp.expm1(-2.0 * jnp.exp(self.log_decay)))
        return jnp.concatenate([scale, scale])

    def _drives(self, features: Float[Array, "N F"]) -> Float[Array, "N C"]:
        return (features @ self.input_weights) * self._scales()[None]


def to_complex(parts: Float[Array, "*N C"]) -> Complex[Array, "*N K"]:
    """Return complex numbers from their real and imaginary parts."""
    real, imaginary = jnp.split(parts, 2, axis=-1)
    return jax.lax.complex(real, imaginary)


def to_parts(numbers: Complex[Array, "*N K"]) -> Float[Array, "*N C"]:
    """Invert :func:`to_complex`."""
    return jnp.concatenate([numbers.real, numbers.imag], axis=-1)


def compose(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compose two steps x ↦ a x + b, elementwise."""
    (a1, b1), (a2, b2) = first, second
    return a2 * a1, a2 * b1 + b2


@CORES.register("ssm")
@dataclasses.dataclass(frozen=True)
class SSMConfig(CoreConfig):
    """Linear diagonal state-space core, whose real readout plays the co-state."""

    shows_all = False

    initialisation: Initialisation = "orthogonal"
    """Initial input and output matrices."""
    modes: int | None = None
    """Complex modes; None for half as many as hidden units, rounded up."""
    fastest: float = 0.5
    """Smallest initial |Λ|: the share of the fastest mode that is kept in a control step."""
    slowest: float = 0.95
    """Largest initial |Λ|; |Λ|² is drawn uniformly between the squares of both."""
    largest_phase: float = math.pi / 10
    """Largest initial angle in radians by which a mode turns in a control step."""

    def __post_init__(self) -> None:
        require_finite(self)
        if self.modes is not None and self.modes < 1:
            raise ConfigError(
                f"modes is {self.modes}, but a state needs at least one. "
                "Use None for half as many as hidden units."
            )
        if not 0.0 < self.fastest <= self.slowest < 1.0:
            raise ConfigError(
                f"fastest is {self.fastest} and slowest is {self.slowest}, "
                "but they are shares of memory kept in a step: 0 < fastest ≤ slowest < 1."
            )
        if not 0.0 <= self.largest_phase <= math.pi:
            raise ConfigError(
                f"largest_phase is {self.largest_phase}, but it must lie between 0 and π, "
                "where a mode changes sign in every step."
            )

    def state_size(self, hidden_size: int) -> int:
        """Return the number of real and imaginary parts of all modes."""
        return 2 * (-(-hidden_size // 2) if self.modes is None else self.modes)

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> SSM:
        key_input, key_output, key_decay, key_phase = jax.random.split(key, 4)
        state_size = self.state_size(hidden_size)
        modes = (state_size // 2,)
        squares = jax.random.uniform(key_decay, modes, minval=self.fastest**2, maxval=self.slowest**2)
        return SSM(
            recurrent_matrix(key_input, self.initialisation, feature_size, state_size),
            recurrent_matrix(key_output, self.initialisation, state_size, hidden_size),
            bias=jnp.zeros(hidden_size),
            log_decay=jnp.log(-0.5 * jnp.log(squares)),
            phase=jax.random.uniform(key_phase, modes, maxval=self.largest_phase),
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        # Into the modes and out of them; the recurrence between is elementwise.
        both = 2.0 * 2.0 * hidden_size * self.state_size(hidden_size)
        return CoreFlops(both, both)
