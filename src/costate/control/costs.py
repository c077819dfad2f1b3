"""What control costs, and the control law that follows: the minimiser of the Hamiltonian for each kind of cost (Appendix C).

Of the Hamiltonian only c(u) + uᵀs depends on the control, where s = gᵀλ is its slope; the paper's switching function is σ = −s. (Its figure puts
a ½ before σ that its text does not; the ½ belongs to the quadratic law alone.)
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from costate._errors import ConfigError
from costate._types import Array, Float


class AbstractControlCost(eqx.Module):
    """c(u), with the control that minimises c(u) + uᵀs within the actuators' limits."""

    @abc.abstractmethod
    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        """c(u)."""

    @abc.abstractmethod
    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        """argmin over |u_i| ≤ limit_i of c(u) + uᵀs; limits may be infinite where the cost itself bounds the control."""


class QuadraticCost(AbstractControlCost):
    """c(u) = uᵀRu with R ≻ 0: u* = −½ R⁻¹ s, smooth in the co-state."""

    weight: Float[Array, "U U"]

    def __check_init__(self) -> None:
        require_positive_definite("R", np.asarray(self.weight))

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return control @ self.weight @ control

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        # Clipping is the minimiser only where components do not interact; `ControlProblem` refuses limits with any other R.
        return jnp.clip(-0.5 * jnp.linalg.solve(self.weight, slope), -limit, limit)


class FreeControl(AbstractControlCost):
    """c(u) = 0, the cost of time or of the state alone: bang-bang, u* = −sign(s) u_max."""

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return jnp.zeros((), control.dtype)

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        return jnp.where(slope == 0.0, 0.0, -jnp.sign(slope) * limit)


class FuelCost(AbstractControlCost):
    """c(u) = w Σ|u_i|: bang-off-bang, u* = −sign(s) u_max where |s| > w and 0 in the dead zone, where fuel is worth more than what it does."""

    weight: float = 1.0

    def __check_init__(self) -> None:
        if not self.weight > 0.0:
            raise ConfigError(f"The weight of fuel is {self.weight}, but it must be positive. Without a cost of control use FreeControl.")

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return self.weight * jnp.abs(control).sum()

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        return jnp.where(jnp.abs(slope) > self.weight, -jnp.sign(slope) * limit, 0.0)


def require_positive_definite(name: str, matrix: np.ndarray, strictly: bool = True) -> None:
    """Raise, with the eigenvalue that is to blame, unless a matrix is square, symmetric and positive (semi-)definite."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"{name} has shape {matrix.shape}, but it must be a square matrix.")
    if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-9):
        raise ConfigError(f"{name} is not symmetric; the largest difference between it and its transpose is {np.abs(matrix - matrix.T).max():.3g}.")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    scale = max(float(np.abs(matrix).max()), 1.0)
    if lowest < -1e-9 * scale or (strictly and lowest <= 1e-12 * scale):
        wanted = "positive definite" if strictly else "positive semi-definite"
        raise ConfigError(f"{name} is not {wanted}: its smallest eigenvalue is {lowest:.6g}. All of them must be larger.")
