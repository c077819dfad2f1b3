"""Control costs, and the minimiser of the Hamiltonian for each of them (Appendix C).

The Hamiltonian depends on the control only through c(u) + uᵀs, where s = gᵀλ is its slope. The paper's
switching function is σ = −s. (The paper's figure puts a ½ before σ that its text does not. The ½ belongs to
the quadratic cost alone.)
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Float


class AbstractControlCost(eqx.Module):
    """A cost c(u), and the control that minimises c(u) + uᵀs within the actuators' limits."""

    @abc.abstractmethod
    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        """Return c(u)."""

    @abc.abstractmethod
    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        """Return the u with |u_i| ≤ limit_i that minimises c(u) + uᵀs.

        Limits may be infinite if the cost itself bounds the control.
        """

    @abc.abstractmethod
    def kinks(self, limit: Float[Array, " U"]) -> Float[Array, "K U"]:
        """Return the slopes at which the minimiser of each component jumps or bends.

        Between two of them the minimiser is linear in the slope.
        """


class AbstractSwitchingCost(AbstractControlCost):
    """A cost whose minimiser jumps. Solvers approach it through smooth approximations."""

    @abc.abstractmethod
    def smoothed(self, amount: Float[Array, ""], limit: Float[Array, " U"]) -> AbstractControlCost:
        """Return c(u) + amount Σ(u_i / limit_i)², whose minimiser is continuous.

        As the amount goes to 0, this minimiser tends to that of c.
        """


class QuadraticCost(AbstractControlCost):
    """c(u) = uᵀRu with R ≻ 0: u* = −½ R⁻¹ s, smooth in the co-state."""

    weight: Float[Array, "U U"]

    def __check_init__(self) -> None:
        require_positive_definite("R", np.asarray(self.weight))

    def value(self, control: Float[Array, " U"]) -> Float[Array, ""]:
        return control @ self.weight @ control

    def minimiser(self, slope: Float[Array, " U"], limit: Float[Array, " U"]) -> Float[Array, " U"]:
        # Clipping gives the minimiser only if components do not interact. `ControlProblem` therefore rejects
        # limits together with a non-diagonal R.
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
    """c(u) = w Σ|u_i|: bang-off-bang control.

    u* = −sign(s) u_max where |s| > w. Elsewhere u* = 0, because fuel costs more than it gains.
    """

    weight: float = 1.0

    def __check_init__(self) -> None:
        if not self.weight > 0.0:
            raise ConfigError(
                f"The fuel weight is {self.weight}, but it must be positive. For free control use "
                f"FreeControl."
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
    """c(u) = w Σ|u_i| + Σ ρ_i u_i², between fuel and energy.

    The minimiser u* = −sign(s) max(|s| − w, 0) / 2ρ has a dead zone with continuous edges.
    """

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
    """Raise unless a matrix is square, symmetric and positive (semi-)definite.

    The message names the offending eigenvalue.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"{name} has shape {matrix.shape}, but it must be a square matrix.")
    if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-9):
        raise ConfigError(
            f"{name} is not symmetric: it differs from its transpose by up to "
            f"{np.abs(matrix - matrix.T).max():.3g}."
        )
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    scale = max(float(np.abs(matrix).max()), 1.0)
    if lowest < -1e-9 * scale or (strictly and lowest <= 1e-12 * scale):
        wanted, allowed = (
            ("positive definite", "above zero") if strictly else ("positive semi-definite", "zero or above")
        )
        raise ConfigError(
            f"{name} is not {wanted}: its smallest eigenvalue is {lowest:.6g}, "
            f"but all eigenvalues must be {allowed}."
        )
