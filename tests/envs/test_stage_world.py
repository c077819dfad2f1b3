"""Test co-states of worlds in JAX against returns from perturbed states and the Riccati equation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate._base.types import Array
from costate.control.linearisation import closed_loop_costates
from costate.envs.suites.control import lqr
from costate.envs.tasks import TASKS, Task
from costate.policies.controllers import PolicyController
from costate.policies.policy import PolicyConfig, build_policy
from costate.policies.running_stats import RunningStats
from costate.trained.recording import one_step, record_episode
from costate.trained.true_costates import true_costates

DISCOUNT = 0.9


def some_controller(task: str) -> PolicyController:
    record = TASKS[task]
    policy = build_policy(
        PolicyConfig(hidden_size=5), jax.random.key(0), record.observation_size, record.action_size
    )
    moved = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), policy
    )
    size = record.observation_size
    return PolicyController(
        policy=moved,
        stats=RunningStats(jnp.zeros(size), jnp.ones(size), jnp.array(9.0)),
        observation_clip=10.0,
    )


def cost_to_come(task: str, episode, start: int, nudge: np.ndarray, reacts: bool) -> float:
    """Return −Σ γᵏ r from a perturbed state on, with the episode's own noise, step by step."""
    again = TASKS[task].stage(3)
    with jax.enable_x64(True):
        again._states = [jnp.asarray(row) for row in episode.stage.states()[: start + 1]]
        again._states[-1] = again._states[-1] + nudge
        again._observation = again._show(again._states[-1], start)
        memory = jax.tree.map(lambda leaf: jnp.asarray(leaf[start]), episode.memories)
        total = 0.0
        for t in range(start, len(episode.rewards)):
            shown = one_step(jnp.asarray(again.observe()), jnp.asarray(episode.seen[t]), jnp.asarray(t == 0))
            control, memory = episode.controller.decide(again.robot, shown, memory)
            total -= (
                DISCOUNT ** (t - start)
                * again.step(np.asarray(control[0]) if reacts else episode.controls[t]).reward
            )
    return total


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["LQG", "TorquePendulum"])
def test_costates_are_the_gradients_of_the_cost_to_come(task):
    episode = record_episode(task, some_controller(task), seed=3, dropout=0.5, steps=6)
    assert 0 < episode.seen.sum() < 6, "both kinds of steps are on the way"
    found = true_costates(episode, DISCOUNT)
    for start in (0, 3):
        for kind, reacts in ((found.open_loop, False), (found.closed_loop, True)):
            for i in range(2):
                nudge = 1e-6 * np.eye(2)[i]
                ahead, behind = (
                    cost_to_come(task, episode, start, sign * nudge, reacts) for sign in (1.0, -1.0)
                )
                assert kind[start, i] == pytest.approx((ahead - behind) / 2e-6, rel=1e-6, abs=1e-8)


def test_under_the_best_gain_the_closed_loop_costate_is_riccatis():
    """u = −Kx with the Riccati gains gives λ_t = 2 P_t x_t, whatever the disturbance."""
    problem, steps = lqr(), 8
    a, b, q, r = problem.dynamics, problem.influence, problem.state_cost, problem.control_cost
    values, gains = [np.zeros((2, 2))], []
    for _ in range(steps):
        gain = np.linalg.solve(r + b.T @ values[0] @ b, b.T @ values[0] @ a)
        gains.insert(0, gain)
        values.insert(0, q + gain.T @ r @ gain + (a - b @ gain).T @ values[0] @ (a - b @ gain))
    stage = TASKS["LQR"].stage(0)
    controls = []
    for gain in gains:
        controls.append(-gain @ stage.states()[-1])
        stage.step(controls[-1])
    states = stage.states()[:-1]
    linearised = stage.linearise(np.stack(controls))
    assert linearised.other is linearised.best, "derivatives are exact"
    linearisation = linearised.best

    def react(gain: Array, observation: Array, memory: Array) -> tuple[Array, Array]:
        return -gain @ observation[:2], memory

    observations = np.column_stack([states, np.ones(steps)])
    # The disturbances act on the gradient only through future states, which Riccati does not include.
    expected = np.zeros(2)
    found = closed_loop_costates(
        linearisation, react, np.stack(gains), observations, np.zeros((steps, 1)), 1.0
    )
    for t in reversed(range(steps)):
        closed = a - b @ gains[t]
        expected = 2.0 * (q + gains[t].T @ r @ gains[t]) @ states[t] + closed.T @ expected
        # The world's matrices are float32.
        np.testing.assert_allclose(found[t], expected, rtol=1e-5, atol=1e-6)
    quiet = states[0].copy()
    undisturbed = 2.0 * values[0] @ quiet
    drift = expected - undisturbed
    # What remains is the disturbances' share: the difference vanishes with them.
    pushes = stage.states()[1:] - states @ a.T - np.stack(controls) @ b.T
    share = sum(
        (2.0 * _through(a, b, gains, t + 1).T @ values[t + 1] @ pushes[t] for t in range(steps)), np.zeros(2)
    )
    np.testing.assert_allclose(drift, share, rtol=1e-4, atol=1e-5)


def _through(a: np.ndarray, b: np.ndarray, gains: list[np.ndarray], count: int) -> np.ndarray:
    product = np.eye(2)
    for gain in gains[:count]:
        product = (a - b @ gain) @ product
    return product


def test_an_engine_without_exact_states_is_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Elsewhere(Task):
        engine = "elsewhere"

        def build(self, batch_size, seeds):
            raise NotImplementedError

    with pytest.raises(
        ConfigError, match="Elsewhere has no exact states to differentiate: the engine elsewhere"
    ):
        Elsewhere(name="Elsewhere", observation=(("x", 1),), action_size=1, control_timestep=0.1).stage(0)
