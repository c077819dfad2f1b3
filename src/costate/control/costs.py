"""What control costs, and the control law that follows: the minimiser of the Hamiltonian for each kind of cost (Appendix C).

Of the Hamiltonian only c(u) + uᵀs depends on the control, where s = gᵀλ is its slope; the paper's switching function is σ = −s. (Its figure puts
a ½ before σ that its text does not; the ½ belongs to the quadratic law alone.)
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Float


class AbstractControlCost(eqx.Module):
    """c(u), with the control that minimises c(u) + uᵀs within the actuators' limits."""

    @abc.abstractmethod
    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        """c(u)."""

    @abc.abstractmethod
    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        """argmin over |u_i| ≤ limit_i of c(u) + uᵀs; limits may be infinite where the cost itself bounds the control."""

    @abc.abstractmethod
    def kinks(self, limit: Float[Array, " U"]) -> Float[Array, "K U"]:
        """The slopes at which the minimiser of each component jumps or bends; between two of them it is linear in the slope."""


class AbstractSwitchingCost(AbstractControlCost):
    """A cost whose minimiser jumps, so that solvers come to it through smooth ones."""

    @abc.abstractmethod
    def smoothed(self, amount: Float[Array, ""], limit: Float[Array, " U"]) -> AbstractControlCost:
        """c(u) + amount Σ(u_i / limit_i)², whose minimiser is continuous and tends to that of c as the amount vanishes."""


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

    def kinks(self, limit: Float[Array, " U"]) -> Float[Array, "K U"]:
        return jnp.outer(jnp.asarray([-2.0, 2.0]), jnp.diag(self.weight) * limit)


class FreeControl(AbstractSwitchingCost):
    """c(u) = 0, the cost of time or of the state alone: bang-bang, u* = −sign(s) u_max."""

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return jnp.zeros((), control.dtype)

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        return jnp.where(slope == 0.0, 0.0, -jnp.sign(slope) * limit)

    def kinks(self, limit: Float[Array, " U"]) -> Float[Array, "K U"]:
        return jnp.zeros((1, limit.shape[0]), limit.dtype)

    def smoothed(self, amount: Float[Array, ""], limit: Float[Array, " U"]) -> AbstractControlCost:
        return QuadraticCost(jnp.diag(amount / limit**2))


class FuelCost(AbstractSwitchingCost):
    """c(u) = w Σ|u_i|: bang-off-bang, u* = −sign(s) u_max where |s| > w and 0 in the dead zone, where fuel is worth more than what it does."""

    weight: float = 1.0

    def __check_init__(self) -> None:
        if not self.weight > 0.0:
            raise ConfigError(
                f"The weight of fuel is {self.weight}, but it must be positive. Without a cost of control use FreeControl."
            )

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return self.weight * jnp.abs(control).sum()

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        return jnp.where(jnp.abs(slope) > self.weight, -jnp.sign(slope) * limit, 0.0)

    def kinks(self, limit: Float[Array, " U"]) -> Float[Array, "K U"]:
        return jnp.outer(self.weight * jnp.asarray([-1.0, 1.0]), jnp.ones_like(limit))

    def smoothed(self, amount: Float[Array, ""], limit: Float[Array, " U"]) -> AbstractControlCost:
        return ElasticCost(jnp.asarray(self.weight), amount / limit**2)


class ElasticCost(AbstractControlCost):
    """c(u) = w Σ|u_i| + Σ ρ_i u_i², between fuel and energy: a dead zone with continuous edges, u* = −sign(s) max(|s| − w, 0) / 2ρ."""

    weight: Float[Array, ""]
    quadratic: Float[Array, " U"]

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return self.weight * jnp.abs(control).sum() + self.quadratic @ control**2

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        excess = jnp.maximum(jnp.abs(slope) - self.weight, 0.0)
        return jnp.clip(-jnp.sign(slope) * excess / (2.0 * self.quadratic), -limit, limit)

    def kinks(self, limit: Float[Array, " U"]) -> Float[Array, "K U"]:
        dead, saturated = jnp.full_like(limit, self.weight), self.weight + 2.0 * self.quadratic * limit
        return jnp.stack([-saturated, -dead, dead, saturated])


def require_positive_definite(name: str, matrix: np.ndarray, strictly: bool = True) -> None:
    """Raise, with the eigenvalue that is to blame, unless a matrix is square, symmetric and positive (semi-)definite."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"{name} has shape {matrix.shape}, but it must be a square matrix.")
    if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-9):
        raise ConfigError(
            f"{name} is not symmetric; the largest difference between it and its transpose is {np.abs(matrix - matrix.T).max():.3g}."
        )
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    scale = max(float(np.abs(matrix).max()), 1.0)
    if lowest < -1e-9 * scale or (strictly and lowest <= 1e-12 * scale):
        wanted, allowed = (
            ("positive definite", "above zero") if strictly else ("positive semi-definite", "zero or above")
        )
        raise ConfigError(
            f"{name} is not {wanted}: its smallest eigenvalue is {lowest:.6g}, but all of them must be {allowed}."
        )
