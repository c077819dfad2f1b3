"""A linear regulator whose measurements sometimes drop out, and the expected cost of its best controller.

    x_{t+1} = A x_t + B u_t + w_t,    y_t = C x_t + v_t,    J = E Σ_{t<T} x_tᵀQx_t + u_tᵀRu_t

with x_0 ~ N(0, Σ_0), w ~ N(0, W), v ~ N(0, V), all independent. At every t, including the first, y_t arrives
with probability 1 − p, and the controller knows whether it did before it chooses u_t. The best control is u_t
= −K_t x̂_t. The gains are those of the regulator that observes the whole state. The estimate x̂_t is that of
a Kalman filter that skips missing measurements (Sinopoli et al. 2004). Schenato et al. (2007) show that the
two separate. With the Riccati recursion

    S_T = 0,    K_t = (R + BᵀS_{t+1}B)⁻¹ BᵀS_{t+1}A,    S_t = Q + Aᵀ S_{t+1} (A − B K_t)

and the covariance P_{t|t} of x_t − x̂_t, which depends on the arrivals alone,

    J* = tr S_0 Σ_0 + Σ_t tr S_{t+1} W + Σ_t tr K_tᵀ(R + BᵀS_{t+1}B)K_t E[P_{t|t}].
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Bool, Float
from costate.control.costs import require_positive_definite
from costate.control.riccati import LinearQuadratic, discrete_gain, discrete_stationary, discrete_weights

SEQUENCES = 4_000
"""Number of sampled arrival sequences over which covariances are averaged if there is no closed form."""


@dataclasses.dataclass(frozen=True, eq=False)
class Regulator:
    """A linear-quadratic problem in discrete time, in float64."""

    dynamics: Float[np.ndarray, "X X"]
    """A."""
    influence: Float[np.ndarray, "X U"]
    """B."""
    sensors: Float[np.ndarray, "Y X"]
    """C."""
    state_cost: Float[np.ndarray, "X X"]
    """Q."""
    control_cost: Float[np.ndarray, "U U"]
    """R."""
    process_noise: Float[np.ndarray, "X X"]
    """W."""
    measurement_noise: Float[np.ndarray, "Y Y"]
    """V: positive definite, or zero if C is invertible."""
    initial_covariance: Float[np.ndarray, "X X"]
    """Σ_0."""
    steps: int
    """T."""

    def __post_init__(self) -> None:
        require_positive_definite("R", self.control_cost)
        for name, matrix in (
            ("Q", self.state_cost),
            ("W", self.process_noise),
            ("Σ_0", self.initial_covariance),
        ):
            require_positive_definite(name, matrix, strictly=False)
        if not self.sees_everything:
            require_positive_definite("V", self.measurement_noise)
        if self.steps < 1:
            raise ConfigError(f"steps is {self.steps}, but an episode has at least 1.")

    @property
    def sees_everything(self) -> bool:
        """True if a measurement that arrives determines the whole state."""
        rows, columns = self.sensors.shape
        return (
            rows == columns
            and bool(np.linalg.matrix_rank(self.sensors) == columns)
            and not self.measurement_noise.any()
        )


class ExpectedCost(NamedTuple):
    """An expected cost with its standard error over sampled arrivals, which is 0 for an exact result."""

    mean: float
    standard_error: float


class Gains(NamedTuple):
    """Results of the Riccati recursion, by time."""

    gains: Float[np.ndarray, "T U X"]
    """K_t."""
    values: Float[np.ndarray, "T+1 X X"]
    """S_t."""


def best_gains(problem: Regulator) -> Gains:
    """Return K_t for t < T and S_t for t ≤ T."""
    sighted = fully_observed(problem)
    values = discrete_weights(sighted, problem.steps)
    return Gains(np.stack([discrete_gain(sighted, following) for following in values[1:]]), values)


def fully_observed(problem: Regulator, discount: float = 1.0) -> LinearQuadratic:
    """Return the same problem without noise and with the state observed.

    A discount γ, which weights the cost t steps ahead by γᵗ, multiplies A and B by √γ.
    """
    root = np.sqrt(discount)
    return LinearQuadratic(
        root * problem.dynamics, root * problem.influence, problem.state_cost, problem.control_cost
    )


def best_expected_cost(
    problem: Regulator, dropout: float, sequences: int = SEQUENCES, seed: int = 0
) -> ExpectedCost:
    """Return J* if a measurement is missing with probability ``dropout``."""
    gains, values = best_gains(problem)
    certain = np.sum(values[0] * problem.initial_covariance) + np.sum(values[1:] * problem.process_noise)
    inertia = problem.control_cost + problem.influence.T @ values[1:] @ problem.influence
    weights = gains.transpose(0, 2, 1) @ inertia @ gains
    uncertain = (
        _exact(problem, dropout, weights)
        if problem.sees_everything
        else _sampled(problem, dropout, weights, sequences, seed)
    )
    return ExpectedCost(float(certain) + uncertain.mean, uncertain.standard_error)


def stationary_value(problem: Regulator, discount: float) -> Float[np.ndarray, "X X"]:
    """Return P of the optimal value xᵀPx over an infinite horizon with costs discounted by γᵗ."""
    return discrete_stationary(fully_observed(problem, discount))


def estimates(
    problem: Regulator,
    measurements: Float[np.ndarray, "T Y"],
    arrived: Bool[np.ndarray, " T"],
    controls: Float[np.ndarray, "T U"],
) -> Float[np.ndarray, "T X"]:
    """Return the estimates x̂_t of the Kalman filter that skips missing measurements.

    x̂_t is the best estimate of x_t before u_t is chosen.
    """
    predicted, covariance, found = np.zeros(problem.dynamics.shape[0]), problem.initial_covariance, []
    for measurement, came, control in zip(measurements, arrived, controls, strict=True):
        if came:
            seen = problem.sensors @ covariance
            innovation = seen @ problem.sensors.T + problem.measurement_noise
            predicted = predicted + np.linalg.solve(innovation, seen).T @ (
                measurement - problem.sensors @ predicted
            )
            covariance = _correct(problem, covariance)
        found.append(predicted)
        predicted = problem.dynamics @ predicted + problem.influence @ control
        covariance = _predict(problem, covariance)
    return np.stack(found)


def _exact(problem: Regulator, dropout: float, weights: Float[np.ndarray, "T X X"]) -> ExpectedCost:
    """Return Σ_t tr M_t E[P_{t|t}] for exact measurements.

    Then E[P_{t|t}] = p (A E[P_{t−1|t−1}] Aᵀ + W), starting from E[P_{0|0}] = p Σ_0.
    """
    predicted, total = problem.initial_covariance, 0.0
    for weight in weights:
        covariance = dropout * predicted
        total += float(np.sum(weight * covariance))
        predicted = _predict(problem, covariance)
    return ExpectedCost(total, 0.0)


def _sampled(
    problem: Regulator, dropout: float, weights: Float[np.ndarray, "T X X"], sequences: int, seed: int
) -> ExpectedCost:
    """Return the same as a mean over sampled arrival sequences, each with its exact covariances."""
    generator = np.random.default_rng(seed)
    predicted = np.broadcast_to(problem.initial_covariance, (sequences, *problem.initial_covariance.shape))
    totals = np.zeros(sequences)
    for weight in weights:
        arrived = generator.random(sequences) >= dropout
        covariance = np.where(arrived[:, None, None], _correct(problem, predicted), predicted)
        totals += np.sum(weight * covariance, axis=(1, 2))
        predicted = _predict(problem, covariance)
    return ExpectedCost(float(totals.mean()), float(totals.std(ddof=1) / np.sqrt(sequences)))


def _predict(problem: Regulator, covariance: Float[np.ndarray, "*S X X"]) -> Float[np.ndarray, "*S X X"]:
    """Return P_{t+1|t} = A P_{t|t} Aᵀ + W."""
    predicted: np.ndarray = problem.dynamics @ covariance @ problem.dynamics.T + problem.process_noise
    return predicted


def _correct(problem: Regulator, predicted: Float[np.ndarray, "*S X X"]) -> Float[np.ndarray, "*S X X"]:
    """Return P_{t|t} = P − P Cᵀ(C P Cᵀ + V)⁻¹ C P with P = P_{t|t−1}."""
    seen = problem.sensors @ predicted
    innovation = seen @ problem.sensors.T + problem.measurement_noise
    corrected: np.ndarray = predicted - np.swapaxes(seen, -1, -2) @ np.linalg.solve(innovation, seen)
    return corrected
