"""Probe worlds with known values and controls, each of which isolates one part of the learner."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimised import optimised_jit

from costate.envs.worlds.analytic import AbstractWorld, AnalyticEnv
from costate.envs.worlds.probes import (
    ConstantReward,
    DelayedReward,
    EndlessReward,
    FuelledAction,
    ObservedReward,
    RememberedCue,
    TargetAction,
)
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.update import TrainState, initial_state, update
from costate.learners.rollout import RolloutConfig, begin, collect, iteration_keys
from costate.policies.policy import PolicyConfig, build_policy, unroll_policy
from costate.policies.readouts import READOUTS
from costate.policies.running_stats import normalise

DISCOUNT = 0.9
# The same for all worlds, so that they share one compiled update.
ITERATIONS = 150
ROLLOUT = RolloutConfig(environments=16, rollout_length=64)


def learn(world: AbstractWorld, readout: str = "quadratic", **settings) -> TrainState:
    """Train without reward scaling, so that values are in the world's own units."""
    config = PPOConfig(discount=DISCOUNT, reward_scaling="none", learning_rate=5e-3, **settings)
    env = AnalyticEnv(world, 16)
    state = start(config, readout, env.observation_size, env.action_size)
    rollout_state = jax.jit(functools.partial(begin, env))(state.policy, jax.random.key(2))

    @jax.jit
    def collect_program(state: TrainState, rollout_state):
        return collect(
            env,
            ROLLOUT,
            DISCOUNT,
            state.policy,
            state.observation_stats,
            rollout_state,
            iteration_keys(state.key).rollout,
        )

    update_program = compiled_update(config)
    for _ in range(ITERATIONS):
        rollout_state, trajectory, final_value = collect_program(state, rollout_state)
        state, _ = update_program(state, trajectory, final_value)
    return state


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def start(config: PPOConfig, readout: str, observation_size: int, action_size: int) -> TrainState:
    policy = build_policy(
        PolicyConfig(hidden_size=16, readout=READOUTS[readout]()),
        jax.random.key(0),
        observation_size,
        action_size,
    )
    return initial_state(config, policy, jax.random.key(1), observation_size)


@functools.cache
def compiled_update(config: PPOConfig):
    return optimised_jit(functools.partial(update, config, ROLLOUT, ITERATIONS))


def respond(state: TrainState, observations: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Values and controls along one episode that shows ``observations``."""
    value, control = values_and_controls(state, np.asarray(observations, np.float32)[:, None, None])
    return np.asarray(value)[:, 0], np.asarray(control)[:, 0, 0]


@jax.jit
def values_and_controls(state: TrainState, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    sequence = normalise(state.observation_stats, observations, 10.0)
    is_first = jnp.zeros((len(observations), 1), bool).at[0].set(True)
    unrolled = unroll_policy(state.policy, sequence, jnp.zeros((1, 16)), is_first)
    return unrolled.value, unrolled.control.mode()


def test_a_constant_reward_is_its_value():
    value, _ = respond(learn(ConstantReward()), [0.0])
    np.testing.assert_allclose(value, [1.0], atol=0.1)


def test_a_reward_that_is_observed_is_its_value():
    state = learn(ObservedReward())
    np.testing.assert_allclose([respond(state, [y])[0][0] for y in (1.0, -1.0)], [1.0, -1.0], atol=0.15)


def test_a_delayed_reward_is_discounted():
    value, _ = respond(learn(DelayedReward()), [0.0, 1.0])
    np.testing.assert_allclose(value, [DISCOUNT, 1.0], atol=0.1)


def test_a_time_limit_is_not_an_end():
    value, _ = respond(learn(EndlessReward()), [0.0, 0.0, 0.0])
    # 1 / (1 − γ) = 10; taking the limit for an end would give at most 1 + γ + … + γ⁴ = 4.1.
    np.testing.assert_allclose(value, [10.0] * 3, atol=1.0)


def test_the_best_control_is_found():
    state = learn(TargetAction())
    np.testing.assert_allclose([respond(state, [y])[1][0] for y in (1.0, -1.0)], [0.5, -0.5], atol=0.15)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("readout", "expected"), [("bang-off-bang", [1.0, 0.0, -1.0]), ("bang-bang", [1.0, -1.0])]
)
def test_the_best_switching_control_is_found(readout, expected):
    """Effort is worth its fuel only where the observation says so; without an off level its sign is known."""
    state = learn(FuelledAction(), readout)
    np.testing.assert_array_equal([respond(state, [y])[1][0] for y in expected], expected)


@pytest.mark.quick("0.05")
@pytest.mark.parametrize("costate_coef", [0.0, 0.05])
def test_a_cue_is_remembered(costate_coef):
    state = learn(RememberedCue(), costate_coef=costate_coef)
    # The control that counts comes three blank observations after the cue.
    np.testing.assert_allclose(
        [respond(state, [y, 0, 0, 0])[1][-1] for y in (1.0, -1.0)], [0.5, -0.5], atol=0.2
    )
