"""Exact discretisation of linear systems: a held control, and the noise that accumulates over one step."""

import numpy as np

from costate._base.types import Float


def held_control(
    a: Float[np.ndarray, "X X"], b: Float[np.ndarray, "X U"], timestep: float
) -> tuple[Float[np.ndarray, "X X"], Float[np.ndarray, "X U"]]:
    """Return A_d and B_d of x_{t+1} = A_d x_t + B_d u_t for ẋ = Ax + Bu with u constant over a step.

    exp([[A, B], [0, 0]] Δ) = [[A_d, B_d], [0, I]]
    """
    # Imported here because loading it takes a tenth of a second, which listing the tasks should not pay.
    from scipy.linalg import expm

    size, width = b.shape
    together = expm(np.block([[a, b], [np.zeros((width, size + width))]]) * timestep)
    return together[:size, :size], together[:size, size:]


def accumulated_noise(
    a: Float[np.ndarray, "X X"], intensity: Float[np.ndarray, "X X"], timestep: float
) -> Float[np.ndarray, "X X"]:
    """Return the covariance over one step of white noise of intensity Σ (Van Loan 1978).

    W = ∫₀^Δ exp(As) Σ exp(Aᵀs) ds

    exp([[−A, Σ], [0, Aᵀ]] Δ) = [[·, G], [0, F]] with W = FᵀG
    """
    from scipy.linalg import expm

    size = a.shape[0]
    together = expm(np.block([[-a, intensity], [np.zeros((size, size)), a.T]]) * timestep)
    once = together[size:, size:].T @ together[:size, size:]
    covariance: np.ndarray = 0.5 * (once + once.T)
    return covariance
