"""Control tasks in JAX: motion, costs, termination and noise, and training, resuming and evaluation."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cut_off import Breaker, numbers
from scipy.integrate import solve_ivp

from costate.config.run_config import RunConfig
from costate.control.costs import FreeControl, FuelCost
from costate.envs.factory import make_env
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import TASKS
from costate.envs.worlds.double_integrator import ReachRestWorld, least_time
from costate.envs.worlds.linear_quadratic import LinearQuadraticWorld, square_root
from costate.envs.worlds.torque_pendulum import TorquePendulumWorld
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders
from costate.runs.run_directory import open_run
from costate.trained.evaluation import SEED_OFFSET, Evaluation, evaluate, regret
from costate.training.loop import resume, train

KEY = jax.random.key(0)


def test_lqr_moves_as_its_equations_say_and_is_disturbed_as_much():
    """ẍ = −ẋ + u from (0.3, −0.5) with u = 0.8 for 0.1 s, with white noise of deviation ½.

    Mean and covariance after the step are compared.
    """
    world, count = LinearQuadraticWorld(TASKS["LQR"].problem(), 6.0), 20_000
    many = jax.vmap(lambda key: world.advance(jnp.array([0.3, -0.5]), jnp.array([0.8]), key)[0])(
        jax.random.split(KEY, count)
    )
    after = np.asarray(many, np.float64)
    end = solve_ivp(lambda _, x: [x[1], -x[1] + 0.8], (0.0, 0.1), [0.3, -0.5], rtol=1e-10).y[:, -1]
    growth = solve_ivp(
        lambda _, p: [2 * p[1], p[2] - p[1], 0.25 - 2 * p[2]],
        (0.0, 0.1),
        [0.0, 0.0, 0.0],
        rtol=1e-10,
        atol=1e-12,
    ).y[:, -1]
    covariance = np.array([[growth[0], growth[1]], [growth[1], growth[2]]])
    np.testing.assert_allclose(after.mean(axis=0), end, atol=4.0 * np.sqrt(covariance[1, 1] / count))
    # A sample variance has a relative error of √(2/n) = 1 %.
    np.testing.assert_allclose(np.cov(after.T), covariance, rtol=0.05)


def test_the_cost_of_a_regulator_is_quadratic_in_the_state_before_the_step():
    world = LinearQuadraticWorld(TASKS["LQG"].problem(), 6.0)
    _, reward, terminated = world.advance(jnp.array([0.3, -0.5]), jnp.array([0.8]), KEY)
    np.testing.assert_allclose(reward, -(0.3**2 + 0.1 * 0.5**2 + 0.1 * 0.8**2), rtol=1e-6)
    assert not terminated


def test_lqg_sees_its_position_through_noise_and_whether_it_sees():
    world = LinearQuadraticWorld(TASKS["LQG"].problem(), 6.0)
    seen = jax.vmap(lambda key: world.observe(jnp.array([0.3, -0.5]), key))(jax.random.split(KEY, 20_000))
    assert (seen[:, 1] == 1.0).all()
    np.testing.assert_allclose(seen[:, 0].mean(), 0.3, atol=4 * 0.1 / np.sqrt(20_000))
    np.testing.assert_allclose(seen[:, 0].std(), 0.1, rtol=0.03)


def test_a_square_root_of_a_singular_covariance():
    covariance = np.array([[4.0, 2.0], [2.0, 1.0]])
    np.testing.assert_allclose(square_root(covariance) @ square_root(covariance).T, covariance, atol=1e-12)


def test_the_pendulum_moves_as_its_equation_says():
    """Compare with θ̈ = 9.81 sin θ − 0.1 θ̇ + u, integrated by SciPy."""
    world, state = TorquePendulumWorld(), jnp.array([2.5, -1.3])
    after, reward, terminated = world.advance(state, jnp.array([3.0]), KEY)
    end = solve_ivp(
        lambda _, x: [x[1], 9.81 * np.sin(x[0]) - 0.1 * x[1] + 3.0],
        (0.0, 0.05),
        [2.5, -1.3],
        rtol=1e-10,
        atol=1e-12,
    ).y[:, -1]
    np.testing.assert_allclose(after, end, atol=2e-6)  # single precision
    np.testing.assert_allclose(reward, -(2.0 * (1.0 - np.cos(2.5)) + 0.1 * 1.3**2 + 0.01 * 3.0**2), rtol=1e-6)
    assert not terminated
    np.testing.assert_allclose(world.observe(state, KEY), [np.cos(2.5), np.sin(2.5), -1.3], rtol=1e-6)


def test_the_pendulum_is_too_weak_to_be_lifted_but_not_to_be_held():
    world = TorquePendulumWorld()
    states = [jnp.array([jnp.pi, 0.0])]
    push = jax.jit(lambda state: world.advance(state, jnp.array([world.action_limit]), KEY)[0])
    for _ in range(200):
        states.append(push(states[-1]))
    # At full torque from rest it swings to nearly 2 arcsin(5/9.81) from hanging. That is less than the 90°
    # beyond which it could be lifted further.
    assert np.abs(np.array(states)[:, 0] - np.pi).max() < np.pi / 2


@pytest.mark.parametrize(("control_cost", "expected"), [(FreeControl(), 1.0), (FuelCost(), 1.5)])
def test_a_double_integrator_pays_for_time_and_fuel(control_cost, expected):
    after, reward, terminated = ReachRestWorld(control_cost).advance(
        jnp.array([0.5, -0.2]), jnp.array([-0.5]), KEY
    )
    end = solve_ivp(lambda _, x: [x[1], -0.5], (0.0, 0.05), [0.5, -0.2], rtol=1e-10).y[:, -1]
    np.testing.assert_allclose(after, end, rtol=1e-6)
    np.testing.assert_allclose(reward, -expected, rtol=1e-6)
    assert not terminated


def bang_bang(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Return the time-optimal control, which depends on the side of the curve x = −½v|v|."""
    return -np.sign(position + 0.5 * velocity * np.abs(velocity))


def test_the_law_of_bang_bang_reaches_rest_in_the_least_time():
    """The environment holds controls for 0.05 s, and rest means within 0.1.

    The least time is therefore reached up to a few steps.
    """
    # A switch from speed v that comes a step late stops 2 · 0.05 v too far away. Two more switches correct
    # that, each up to a step late. From the box of initial states v is at most √1.5.
    missed = least_time(np.array([0.1 * np.sqrt(1.5)]), np.array([0.0]))
    edge = least_time(np.array([0.1]), np.array([0.1]))
    env = make_env("DoubleIntegratorTime", 64, [0], SensorConfig(0.0))
    step = jax.jit(env.step)
    state, now = env.reset(KEY)
    start = np.asarray(now.observation, np.float64)
    seconds, running = np.zeros(64), np.ones(64, bool)
    for key in jax.random.split(KEY, 120):
        position, velocity, _ = np.asarray(now.observation, np.float64).T
        state, now = step(state, bang_bang(position, velocity)[:, None].astype(np.float32), key)
        seconds -= 0.05 * running * np.asarray(now.reward)
        assert (np.asarray(now.discount)[running] == np.where(now.is_last, 0.0, 1.0)[running]).all()
        running &= ~np.asarray(now.is_last)
    assert not running.any()
    wanted = least_time(start[:, 0], start[:, 1])
    assert (seconds >= wanted - edge).all()
    assert (seconds <= wanted + missed + 3 * 0.05).all()
    assert np.median(np.abs(seconds - wanted)) <= 0.1


def test_the_least_time_is_that_of_two_pushes():
    """From rest at distance d: half the way each, so 2√d. From velocity v on the switching curve: v."""
    np.testing.assert_allclose(
        least_time(np.array([4.0, -4.0, -0.5, 0.5]), np.array([0.0, 0.0, 1.0, -1.0])), [4.0, 4.0, 1.0, 1.0]
    )


@pytest.mark.parametrize("name", ["LQG", "DoubleIntegratorTime"])
def test_seeds_have_episodes_of_their_own_and_the_same_alone_as_together(name):
    keys = jax.random.split(jax.random.key(5), 2)
    together = make_env(name, 3, (3, 7), SensorConfig(0.5)).reset_seeds(keys)[1]
    alone = [
        make_env(name, 3, (seed,), SensorConfig(0.5)).reset(key)[1]
        for seed, key in zip((3, 7), keys, strict=True)
    ]
    for index, one in enumerate(alone):
        jax.tree.map(
            lambda many, single, i=index: np.testing.assert_array_equal(many[i], single), together, one
        )


def test_environments_of_other_seeds_start_other_episodes_though_the_key_be_the_same():
    """Evaluation uses seeds that training never has, so that it does not repeat the episodes of training."""
    first, second = (TASKS["LQG"].build(3, [seed]).reset(KEY)[1].observation for seed in (3, 3 + SEED_OFFSET))
    assert not np.isin(first[:, 0], second[:, 0]).any()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return an uninterrupted run of six iterations, two per episode, on the task with all kinds of noise."""
    config = RunConfig(
        "LQG",
        steps=6 * 2 * 150,
        checkpoint_every=2,
        policy=PolicyConfig(hidden_size=4),
        rollout=RolloutConfig(environments=2, rollout_length=150),
        learner=PPOConfig(epochs=1, minibatches=1),
    )
    return train(config, tmp_path_factory.mktemp("control") / "whole").run


@pytest.mark.thorough
def test_a_run_that_was_cut_off_and_resumed_equals_one_that_was_not(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(whole.config, tmp_path / "cut", reporter=Breaker(after=5))
    assert len(numbers(open_run(tmp_path / "cut"))) == 5
    resumed = resume(tmp_path / "cut").run
    assert numbers(resumed) == numbers(whole)
    left, right = (folders(run.checkpoints)[-1] / "state.safetensors" for run in (whole, resumed))
    assert left.read_bytes() == right.read_bytes()


@pytest.mark.thorough
def test_an_evaluation_is_compared_with_the_known_optimum(whole):
    result, path = evaluate(whole, episodes=4, dropout=0.0)
    known = regret(result)
    assert known.optimum == TASKS["LQG"].optimum(0.0).mean_return
    summary = json.loads(path.read_text())["summary"]
    assert (summary["optimum"], summary["regret"]) == (known.optimum, known.share)


def test_regret_is_a_share_of_the_optimum_with_its_error():
    best = TASKS["LQR"].optimum(0.5).mean_return
    found = regret(Evaluation("LQR", 0.5, 0, 0, (1.1 * best, 1.3 * best)))
    # A mean of 1.2 times the optimum, whose standard error is 0.1 of it.
    np.testing.assert_allclose(found, (best, 0.2, 0.1), rtol=1e-9)
    assert np.isnan(regret(Evaluation("LQR", 0.5, 0, 0, (best,))).standard_error)
    assert regret(Evaluation("WalkerStand", 0.5, 0, 0, (500.0, 600.0))) is None
    assert regret(Evaluation("TorquePendulum", 0.5, 0, 0, (-100.0,))) is None
