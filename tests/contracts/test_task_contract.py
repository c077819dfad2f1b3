"""The contract that every registered task must fulfil, in the engine that runs it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from everyday import SUITE, everyday

from costate.envs.base import AbstractEnv
from costate.envs.engines.envpool import EnvPoolEnv, environment_seeds
from costate.envs.tasks import PAPER_TASKS, TASKS

B = 2


def build(name: str, threads: int) -> AbstractEnv:
    return (
        EnvPoolEnv(SUITE[name], B, seeds=[3], threads=threads) if name in SUITE else TASKS[name].build(B, [3])
    )


@functools.cache
def walking(env: AbstractEnv):
    """Return a compiled program that takes random actions, for all walks of an environment."""

    def advance(state, key):
        low, high = jnp.maximum(env.action_low, -1.0), jnp.minimum(env.action_high, 1.0)
        action = jax.random.uniform(key, (B, env.action_size), minval=low[None], maxval=high[None])
        state, timestep = env.step(state, action, key)
        return state, timestep

    return jax.jit(lambda state, keys: jax.lax.scan(advance, state, keys)[1])


def walk(env: AbstractEnv, steps: int, seed: int = 0):
    """A rollout of an environment: what it showed."""
    state, first = env.reset(jax.random.key(seed))
    return first, walking(env)(state, jax.random.split(jax.random.key(seed), steps))


@pytest.mark.parametrize("name", everyday(TASKS.names()))
def test_every_task_resets_and_steps_with_finite_values_and_can_be_brought_back(name):
    task = TASKS[name]
    env = build(name, threads=1)
    assert (env.batch_size, env.observation_size, env.action_size) == (
        B,
        task.observation_size,
        task.action_size,
    )
    assert env.episode_steps == task.episode_steps
    first, steps = walk(env, 12)
    assert first.observation.shape == (B, task.observation_size)
    assert first.is_first.all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((first, steps)))
    # Weak types would have programs compiled again for their own results.
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((first, steps)) if isinstance(leaf, jax.Array))
    assert not steps.is_first.any()
    assert env.action_low.shape == env.action_high.shape == (task.action_size,)
    again, steps = walk(env, 12, seed=1)
    assert not np.array_equal(first.observation, again.observation) or np.ptp(first.observation) == 0.0
    env.close()

    # A new one in which one episode has been started continues exactly as the old one, physics included.
    other = build(name, threads=2)
    other.skip_resets(np.array([1, 1]))
    resumed_first, resumed = walk(other, 12, seed=1)
    other.close()
    jax.tree.map(np.testing.assert_array_equal, (again, steps), (resumed_first, resumed))


def test_the_papers_eight_are_there_with_their_budgets():
    assert {task.name: task.budget for task in TASKS if task.in_paper} == {
        name: 100_000_000 if name == "WalkerRun" else 60_000_000 for name in PAPER_TASKS
    }
    assert len(PAPER_TASKS) == 8


def test_every_dm_control_task_of_envpool_has_a_record():
    from envpool.mujoco.dmc.registration import dmc_mujoco_envs

    assert {(task.domain, task.goal) for task in SUITE.values()} == {
        (domain, goal) for domain, goal, _ in dmc_mujoco_envs
    }


def test_an_episode_ends_by_its_time_limit_and_the_next_step_starts_a_new_one():
    env = EnvPoolEnv(SUITE["CartpoleSwingup"], B, seeds=[0], threads=1)
    _, steps = walk(env, 1003)
    np.testing.assert_array_equal(np.flatnonzero(steps.is_last[:, 0]), [999])
    np.testing.assert_array_equal(np.flatnonzero(steps.is_first[:, 0]), [1000])
    assert float(steps.discount[999, 0]) == 1.0
    assert float(steps.reward[1000, 0]) == 0.0
    env.close()


def test_environments_that_restarted_at_different_times_are_brought_back_one_by_one():
    task = SUITE["CartpoleSwingup"]
    env = EnvPoolEnv(task, B, seeds=[3], threads=1)
    env._pool.reset()
    env._pool.reset(np.array([1], np.int32))
    first, _ = walk(env, 2)
    other = EnvPoolEnv(task, B, seeds=[3], threads=1)
    other.skip_resets(np.array([1, 2]))
    second, _ = walk(other, 2)
    np.testing.assert_array_equal(first.observation, second.observation)


def test_runs_with_neighbouring_seeds_share_no_environment():
    assert not set(environment_seeds(0, 32)) & set(environment_seeds(1, 32))
    # A larger batch of the same run begins with the same environments.
    assert environment_seeds(5, 64)[:32] == environment_seeds(5, 32)


def test_the_rest_of_the_library_stays_in_single_precision():
    env = EnvPoolEnv(SUITE["CartpoleSwingup"], B, seeds=[0], threads=1)
    _, steps = walk(env, 2)
    assert steps.observation.dtype == steps.reward.dtype == jnp.float32
    assert jnp.zeros(1).dtype == jnp.float32
