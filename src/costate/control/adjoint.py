"""The discrete adjoint equation: how a co-state runs backwards along a trajectory that is already known."""

import jax

from costate._types import Array, Float


def costate_recursion(
    jacobians: Float[Array, "T X X"], cost_gradients: Float[Array, "T X"], final: Float[Array, " X"], discount: float
) -> Float[Array, "T X"]:
    """Co-states λ_0 … λ_{T−1} of a cost Σ γᵗ ℓ_t along x_{t+1} = F_t(x_t).

        λ_t = ∂ℓ_t/∂x_t + γ A_tᵀ λ_{t+1},    A_t = ∂x_{t+1}/∂x_t,    λ_T = final

    λ_t is the gradient of the cost that is still to come, counted from t; a critic predicts reward, so its gradient is −λ_t.
    """

    def back(costate: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        jacobian, gradient = row
        costate = gradient + discount * (jacobian.T @ costate)
        return costate, costate

    return jax.lax.scan(back, final, (jacobians, cost_gradients), reverse=True)[1]
