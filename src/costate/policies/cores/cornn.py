"""Coupled oscillatory recurrent network (Rusch & Mishra 2021): a memory of position and velocity.

    ÿ = tanh(W_y y + W_z ẏ + V ỹ + b) − γ y − ε ẏ

**Which part is the co-state.** The position y. Take a mechanical plant q̈ = −K q − D q̇ + u and a state cost
ℓ(q, q̇). Its co-state has one half for the positions and one for the velocities. By Eq. 3.1

    λ̇_q = −∂ℓ/∂q + Kᵀλ_v,    λ̇_v = −∂ℓ/∂q̇ − λ_q + Dᵀλ_v,
    hence    λ̈_v = ∂ℓ/∂q − d/dt ∂ℓ/∂q̇ − Kᵀλ_v + Dᵀλ̇_v:

λ_v is an oscillator with the plant's own stiffness, driven by the gradient of the state cost. Forces act on
velocities, so λ_v is also all that the control law reads, u* = −½R⁻¹λ_v. So y ↔ λ_v and z = ẏ ↔ λ̇_v. The
sign of the damping is reversed, as in the explicit co-state cell, because a memory runs forwards. The
velocity could not be the co-state: where nothing moves it is zero, whatever is observed, while a co-state
stays −F⁻¹B. Without inertia y is the CT-RNN of Eq. 3.5, whose h is the co-state in the paper.

**Which integrator.** The symplectic Euler rule, as in the reference (its explicit form), with Δt per control
step:

    z' = z + Δt (tanh(W_y y + W_z z + V ỹ + b) − γ y − ε z),    y' = y + Δt z'

**Why it is bounded.** Without the tanh this is a linear map of (y, z) with trace 2 − Δt ε − Δt² γ and
determinant 1 − Δt ε. Both eigenvalues are inside the unit circle exactly if γ > 0, ε > 0 and
2 Δt ε + Δt² γ < 4 (Jury's conditions), and the tanh adds at most Δt. A config outside these bounds is
refused.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate._base.types import Array, Float, Key
from costate.policies.cores.affine import AbstractCell, AbstractPairCore, Affine
from costate.policies.cores.base import CORES, CoreConfig, CoreFlops
from costate.policies.initialisation import Initialisation, recurrent_matrices, recurrent_matrix


@dataclasses.dataclass(frozen=True)
class OscillatorCell(AbstractCell):
    """z' = z + Δt (a − γ y − ε z),   y' = y + Δt z', of the state (y, z)."""

    time_step: float
    stiffness: float
    damping: float

    def activate(self, drive: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        return jnp.tanh(drive)

    def slope(self, activations: Float[Array, "*N P"]) -> Float[Array, "*N P"]:
        return 1.0 - activations * activations

    def combine(self, activations: Float[Array, "*N P"], state: Float[Array, "*N C"]) -> Float[Array, "*N C"]:
        y, z = jnp.split(state, 2, axis=-1)
        z = z + self.time_step * (activations - self.stiffness * y - self.damping * z)
        return jnp.concatenate([y + self.time_step * z, z], axis=-1)


class CoRNN(AbstractPairCore):
    """z' = z + Δt (tanh(W_y y + W_z z + V ỹ + b) − γ y − ε z),   h' = y' = y + Δt z'.

    The state is (y, z), and y plays the co-state.
    """

    input_weights: Float[Array, "F H"]
    recurrent_weights: Float[Array, "2 H H"]
    """W_y, then W_z."""
    bias: Float[Array, " H"]
    time_step: float = eqx.field(static=True)
    stiffness: float = eqx.field(static=True)
    damping: float = eqx.field(static=True)

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    @property
    def cell(self) -> OscillatorCell:
        return OscillatorCell(self.time_step, self.stiffness, self.damping)

    def affine(self) -> Affine:
        return Affine(self.input_weights, self.recurrent_weights.reshape(self.state_size, -1), self.bias)


@CORES.register("cornn")
@dataclasses.dataclass(frozen=True)
class CoRNNConfig(CoreConfig):
    """Coupled oscillators, whose positions play the co-state."""

    shows_all = False

    initialisation: Initialisation = "orthogonal"
    """Initial input and recurrent matrices."""
    time_step: float = 0.5
    """Time Δt of the oscillators in a control step."""
    stiffness: float = 1.0
    """Restoring force γ of a unit's displacement."""
    damping: float = 1.0
    """Friction ε of a unit's velocity."""

    def __post_init__(self) -> None:
        require_finite(self)
        for name in ("time_step", "stiffness", "damping"):
            if getattr(self, name) <= 0.0:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but it must be positive, or the oscillators are "
                    "unbounded."
                )
        speed = 2.0 * self.time_step * self.damping + self.time_step**2 * self.stiffness
        if speed >= 4.0:
            raise ConfigError(
                f"2 time_step damping + time_step² stiffness is {speed:g} (time_step {self.time_step:g}, "
                f"damping {self.damping:g}, stiffness {self.stiffness:g}), but from 4 on the oscillators "
                "grow without bound. Use a smaller time_step."
            )

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> CoRNN:
        key_input, *keys_recurrent = jax.random.split(key, 3)
        return CoRNN(
            recurrent_matrix(key_input, self.initialisation, feature_size, hidden_size),
            recurrent_matrices(jnp.stack(keys_recurrent), self.initialisation, hidden_size, hidden_size),
            bias=jnp.zeros(hidden_size),
            time_step=self.time_step,
            stiffness=self.stiffness,
            damping=self.damping,
        )

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(3.0 * square, square)
