"""A linear system with quadratic cost, disturbances and measurement noise, whose best controller is known."""

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool, Float, Key
from costate.control.regulator import Regulator
from costate.envs.worlds.analytic import AbstractWorld


class LinearQuadraticWorld(AbstractWorld):
    """x' = Ax + Bu + w with the reward −(xᵀQx + uᵀRu), measured as y = Cx + v.

    A signal that is always 1 is appended to the measurement. A blackout turns it to 0, so that a policy knows
    as much as the Kalman filter does: whether a measurement arrived. Nothing bounds the state.
    """

    def __init__(self, problem: Regulator, action_limit: float, state_names: tuple[str, ...] = ()) -> None:
        measured, states = problem.sensors.shape
        self.observation_size = measured + 1
        self.action_size = problem.influence.shape[1]
        self.episode_steps = problem.steps
        self.action_limit = action_limit
        self.state_names = state_names
        self._state_size, self._measured = states, measured
        self._dynamics, self._influence, self._sensors = (
            _single(m) for m in (problem.dynamics, problem.influence, problem.sensors)
        )
        self._state_cost, self._control_cost = _single(problem.state_cost), _single(problem.control_cost)
        self._initial_root = _single(square_root(problem.initial_covariance))
        self._process_root = _single(square_root(problem.process_noise))
        self._measurement_root = _single(square_root(problem.measurement_noise))

    def initial(self, key: Key[Array, ""]) -> Float[Array, " X"]:
        return jnp.asarray(self._initial_root @ jax.random.normal(key, (self._state_size,)))

    def observe(self, state: Float[Array, " X"], key: Key[Array, ""]) -> Float[Array, " O"]:
        measurement = self._sensors @ state + self._measurement_root @ jax.random.normal(
            key, (self._measured,)
        )
        return jnp.append(measurement, 1.0)

    def advance(
        self, state: Float[Array, " X"], action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " X"], Float[Array, ""], Bool[Array, ""]]:
        cost = state @ self._state_cost @ state + action @ self._control_cost @ action
        disturbance = self._process_root @ jax.random.normal(key, (self._state_size,))
        return self._dynamics @ state + self._influence @ action + disturbance, -cost, jnp.zeros((), bool)


def square_root(covariance: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """Return the symmetric L with LLᵀ = covariance, which may be singular."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    root: np.ndarray = vectors * np.sqrt(np.maximum(eigenvalues, 0.0)) @ vectors.T
    return root


def _single(matrix: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
    return matrix.astype(np.float32)
