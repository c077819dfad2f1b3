"""Test the optimal expected cost of a regulator that misses measurements.

The references are brute force and the best controller in the real environment.
"""

import itertools

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import solve_discrete_are

from costate._base.errors import ConfigError
from costate.control.discretisation import accumulated_noise, held_control
from costate.control.regulator import Regulator, best_expected_cost, best_gains, estimates, stationary_value
from costate.envs.factory import make_env
from costate.envs.sensors import SensorConfig
from costate.envs.suites.control import RegulatorTask, lqg, lqr
from costate.envs.tasks import TASKS

REGULATORS = [task.name for task in TASKS if isinstance(task, RegulatorTask)]
EPISODES = 1500


def scalar(measurement_noise: float, steps: int = 5, **changes) -> Regulator:
    """Return the problem x' = 1.2x + 0.7u + w with the cost x² + ½u²."""
    numbers = {
        "dynamics": 1.2,
        "influence": 0.7,
        "sensors": 1.0,
        "state_cost": 1.0,
        "control_cost": 0.5,
        "process_noise": 0.3,
    }
    numbers |= {"measurement_noise": measurement_noise, "initial_covariance": 2.0}
    return Regulator(
        **{name: np.array([[number]]) for name, number in (numbers | changes).items()}, steps=steps
    )


def by_enumeration(problem: Regulator, dropout: float) -> float:
    """Return the best controller's mean cost over all 2^T sequences of arrivals.

    It is computed from the second moments of x̂ and of x − x̂.
    """
    a, b, q, r = (
        float(m[0, 0])
        for m in (problem.dynamics, problem.influence, problem.state_cost, problem.control_cost)
    )
    w, v = float(problem.process_noise[0, 0]), float(problem.measurement_noise[0, 0])
    future, gains = 0.0, []
    for _ in range(problem.steps):
        gain = a * b * future / (r + b**2 * future)
        future = q + r * gain**2 + future * (a - b * gain) ** 2
        gains.append(gain)
    mean = 0.0
    for arrivals in itertools.product((False, True), repeat=problem.steps):
        estimate, error, cost = (
            0.0,
            float(problem.initial_covariance[0, 0]),
            0.0,
        )  # E x̂² and E(x − x̂)² before the measurement
        for gain, arrived in zip(gains[::-1], arrivals, strict=True):
            corrected = error * v / (error + v) if arrived else error
            estimate, error = (
                estimate + error - corrected,
                corrected,
            )  # the part that the measurement explains moves from one to the other
            cost += q * (estimate + error) + r * gain**2 * estimate
            estimate, error = (a - b * gain) ** 2 * estimate, a**2 * error + w
        mean += cost * np.prod([1.0 - dropout if arrived else dropout for arrived in arrivals])
    return mean


@pytest.mark.parametrize("dropout", [0.0, 0.3, 0.5, 1.0])
def test_exact_measurements_cost_what_enumerating_all_arrivals_gives(dropout):
    problem = scalar(measurement_noise=0.0)
    cost = best_expected_cost(problem, dropout)
    np.testing.assert_allclose(cost.mean, by_enumeration(problem, dropout), rtol=1e-12)
    assert cost.standard_error == 0.0


@pytest.mark.parametrize("dropout", [0.0, 0.4, 1.0])
def test_noisy_measurements_cost_the_same_up_to_the_stated_error(dropout):
    problem = scalar(measurement_noise=0.4)
    cost = best_expected_cost(problem, dropout, sequences=20_000)
    # Without randomness there is no error beyond rounding.
    assert (cost.standard_error < 1e-12) == (dropout in (0.0, 1.0))
    assert abs(cost.mean - by_enumeration(problem, dropout)) < 4.0 * cost.standard_error + 1e-9


def test_gains_of_a_long_horizon_are_those_of_the_algebraic_riccati_equation():
    problem = TASKS["LQR"].problem()
    gains, values = best_gains(problem)
    steady = solve_discrete_are(problem.dynamics, problem.influence, problem.state_cost, problem.control_cost)
    np.testing.assert_allclose(values[0], steady, rtol=1e-9)
    gain = np.linalg.solve(
        problem.control_cost + problem.influence.T @ steady @ problem.influence,
        problem.influence.T @ steady @ problem.dynamics,
    )
    np.testing.assert_allclose(gains[0], gain, rtol=1e-9)


def test_discretisation_is_what_integrating_the_system_gives():
    a, b = np.array([[0.3, 1.0], [-2.0, -0.4]]), np.array([[0.0, 1.0], [1.0, -0.5]])
    dynamics, influence = held_control(a, b, 0.7)
    state, control = np.array([0.6, -1.1]), np.array([0.8, 0.3])
    end = solve_ivp(lambda _, x: a @ x + b @ control, (0.0, 0.7), state, rtol=1e-11, atol=1e-12).y[:, -1]
    np.testing.assert_allclose(dynamics @ state + influence @ control, end, rtol=1e-8)

    # Ṗ = AP + PAᵀ + Σ from 0 is the covariance of the state.
    intensity = np.array([[0.5, 0.1], [0.1, 0.2]])
    growth = solve_ivp(
        lambda _, p: (a @ p.reshape(2, 2) + p.reshape(2, 2) @ a.T + intensity).ravel(),
        (0.0, 0.7),
        np.zeros(4),
        rtol=1e-11,
        atol=1e-13,
    )
    np.testing.assert_allclose(accumulated_noise(a, intensity, 0.7), growth.y[:, -1].reshape(2, 2), rtol=1e-8)
    # White noise on the acceleration of a double integrator, in closed form.
    integrator, step = np.array([[0.0, 1.0], [0.0, 0.0]]), 0.1
    expected = 0.25 * np.array([[step**3 / 3, step**2 / 2], [step**2 / 2, step]])
    np.testing.assert_allclose(
        accumulated_noise(integrator, np.diag([0.0, 0.25]), step), expected, rtol=1e-12
    )


def play_best_controller(task: RegulatorTask, dropout: float) -> np.ndarray:
    """Return the Kalman filter's returns with Riccati gains in the task's own environment with blackouts."""
    problem, env = task.problem(), make_env(task.name, EPISODES, [7], SensorConfig(dropout))
    a, b, c = problem.dynamics, problem.influence, problem.sensors
    estimate, covariance = (
        np.zeros((EPISODES, len(a))),
        np.broadcast_to(problem.initial_covariance, (EPISODES, *a.shape)),
    )
    returns, step = np.zeros(EPISODES), jax.jit(env.step)
    state, now = env.reset(jax.random.key(1))
    for gain, key in zip(
        best_gains(problem).gains, jax.random.split(jax.random.key(2), problem.steps), strict=True
    ):
        observation = np.asarray(now.observation, np.float64)
        arrived, measurement = observation[:, -1] == 1.0, observation[:, :-1]
        # An exact measurement determines the state. The filter's formula would then divide zero by zero.
        exact = np.broadcast_to(np.linalg.inv(c), covariance.shape) if problem.sees_everything else None
        weight = (
            covariance @ c.T / (c @ covariance @ c.T + problem.measurement_noise) if exact is None else exact
        )
        weight = weight * arrived[:, None, None]
        estimate = estimate + np.einsum("nxy,ny->nx", weight, measurement - estimate @ c.T)
        covariance = covariance - weight @ c @ covariance
        control = np.clip(-estimate @ gain.T, env.action_low, env.action_high)
        state, now = step(state, control.astype(np.float32), key)
        returns += now.reward
        estimate, covariance = estimate @ a.T + control @ b.T, a @ covariance @ a.T + problem.process_noise
    assert now.is_last.all()
    assert (now.discount == 1.0).all()
    return returns


@pytest.mark.quick("LQG")
@pytest.mark.parametrize("name", REGULATORS)
def test_the_best_controller_earns_the_known_optimum_in_the_environment_itself(name):
    task = TASKS[name]
    returns, optimum = play_best_controller(task, 0.5), task.optimum(0.5)
    error = np.hypot(returns.std(ddof=1) / np.sqrt(EPISODES), optimum.standard_error)
    assert abs(returns.mean() - optimum.mean_return) < 4.0 * error
    # Small enough for a meaningful comparison. Episodes of the undisturbed task differ only in their start.
    assert error < (0.05 if name == "DoubleIntegratorEnergy" else 0.015) * abs(optimum.mean_return)


def test_memory_is_worth_a_third_on_lqr_at_half_blackout():
    """Memoryless feedback costs a third more than the best controller.

    Its best gain is found on a grid.
    """
    problem = TASKS["LQR"].problem()
    a, b = problem.dynamics, problem.influence

    def cost(gain: np.ndarray) -> float:
        moment, total = problem.initial_covariance, 0.0
        for _ in range(problem.steps):
            total += np.sum(problem.state_cost * moment) + 0.5 * np.sum(
                (gain.T @ problem.control_cost @ gain) * moment
            )
            closed = a - b @ gain
            moment = 0.5 * (closed @ moment @ closed.T + a @ moment @ a.T) + problem.process_noise
        return float(total)

    best = min(cost(np.array([[k, d]])) for k in np.linspace(0.5, 6.0, 12) for d in np.linspace(0.5, 6.0, 12))
    assert best > 1.33 * best_expected_cost(problem, 0.5).mean


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"control_cost": -1.0}, "R is not positive definite: its smallest eigenvalue is -1"),
        ({"state_cost": -2.0}, "Q is not positive semi-definite: its smallest eigenvalue is -2"),
        ({"process_noise": -0.1}, "W is not positive semi-definite"),
        ({"measurement_noise": -0.1}, "V is not positive definite"),
    ],
)
def test_impossible_regulators_are_refused_with_the_matrix_and_its_eigenvalue(changes, message):
    with pytest.raises(ConfigError, match=message):
        scalar(**({"measurement_noise": 0.0} | changes))


def test_a_regulator_without_steps_is_refused():
    with pytest.raises(ConfigError, match="steps is 0"):
        scalar(0.0, steps=0)


def test_the_discounted_value_is_that_of_a_long_episode():
    """Riccati's recursion with discounting, run for long, against the equation's own solution."""
    problem, discount = lqr(), 0.95
    a, b, value = problem.dynamics, problem.influence, np.zeros((2, 2))
    for _ in range(2000):
        gain = discount * np.linalg.solve(problem.control_cost + discount * b.T @ value @ b, b.T @ value @ a)
        value = (
            problem.state_cost
            + gain.T @ problem.control_cost @ gain
            + discount * (a - b @ gain).T @ value @ (a - b @ gain)
        )
    np.testing.assert_allclose(stationary_value(problem, discount), value, rtol=1e-9)


def test_the_estimate_is_the_conditional_mean():
    """Compare with the joint Gaussian of states and measurements, conditioned on the arrived measurements.

    It is written as one large matrix.
    """
    problem, steps, rng = lqg(), 5, np.random.default_rng(0)
    arrived, controls = np.array([True, False, True, True, False]), rng.normal(size=(steps, 1))
    measurements = rng.normal(size=(steps, 1))
    a, b, c = problem.dynamics, problem.influence, problem.sensors
    # x_t is a sum over the start, the disturbances and the controls.
    mean = [np.zeros(2)]
    for t in range(steps - 1):
        mean.append(a @ mean[-1] + b @ controls[t])
    power = lambda n: np.linalg.matrix_power(a, n)  # noqa: E731
    covariance = lambda s, t: (  # noqa: E731
        power(s) @ problem.initial_covariance @ power(t).T
        + sum(power(s - 1 - k) @ problem.process_noise @ power(t - 1 - k).T for k in range(min(s, t)))
    )
    found = estimates(problem, measurements, arrived, controls)
    for t in range(steps):
        seen = [k for k in range(t + 1) if arrived[k]]
        joint = np.block(
            [[c @ covariance(i, j) @ c.T + (i == j) * problem.measurement_noise for j in seen] for i in seen]
        )
        cross = np.hstack([covariance(t, j) @ c.T for j in seen])
        surprise = np.concatenate([measurements[k] - c @ mean[k] for k in seen])
        np.testing.assert_allclose(found[t], mean[t] + cross @ np.linalg.solve(joint, surprise), rtol=1e-9)
