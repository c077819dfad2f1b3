"""The learner on several devices: the same numbers as on one, and clear words where it cannot be split."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from costate._base.errors import ConfigError
from costate.config.presets import preset
from costate.learners import learner_for
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.learner import PPOExperience
from costate.learners.replay import ReplayConfig, ReplayRows
from costate.learners.rollout import RolloutConfig, Trajectory
from costate.learners.sac.config import SACConfig
from costate.learners.sac.learner import SACExperience
from costate.learners.sac.rollout import Episodes
from costate.learners.sharding import DeviceGrid, choose_grid
from costate.training.programs import fresh_states, learner_grid, lower_update, threads_of_a_device


@pytest.mark.parametrize(
    ("devices", "available", "seeds", "streams", "expected"),
    [
        (None, 1, 1, 8, DeviceGrid(1, 1)),
        (None, 2, 1, 8, DeviceGrid(1, 2)),
        # Whole seeds first: they need no communication.
        (None, 2, 4, 8, DeviceGrid(2, 1)),
        (None, 8, 2, 8, DeviceGrid(2, 4)),
        # Three devices cannot share eight streams, two can.
        (None, 3, 1, 8, DeviceGrid(1, 2)),
        # Three seeds cannot be dealt to two devices, but each seed's streams can.
        (None, 2, 3, 8, DeviceGrid(1, 2)),
        (None, 8, 1, 1, DeviceGrid(1, 1)),
        (4, 8, 1, 8, DeviceGrid(1, 4)),
        (1, 8, 4, 8, DeviceGrid(1, 1)),
    ],
)
def test_grids(devices, available, seeds, streams, expected):
    assert choose_grid(devices, available, seeds, streams) == expected


def test_more_devices_than_exist_is_refused_with_the_numbers_that_work():
    with pytest.raises(
        ConfigError, match=r"devices is 8, but JAX sees 4 \(cpu\)\. Numbers that work: 1, 2, 4\."
    ):
        choose_grid(8, 4, 1, 8)


@pytest.mark.parametrize("devices", [0, -1, 3])
def test_a_minibatch_that_cannot_be_split_is_refused_with_the_numbers_that_work(devices):
    with pytest.raises(
        ConfigError,
        match=rf"devices is {devices}, but 8 streams of a minibatch cannot .* Numbers that work: "
        r"1, 2, 4, 8\.",
    ):
        choose_grid(devices, 8, 1, 8)


SMALL = dataclasses.replace(
    preset("nc-gru", "CartpoleSwingup"),
    steps=3 * 8 * 50,
    policy=dataclasses.replace(preset("nc-gru", "CartpoleSwingup").policy, hidden_size=12),
    rollout=RolloutConfig(environments=8, rollout_length=50),
    learner=PPOConfig(epochs=2, minibatches=2),
)


def experience(config, seeds):
    """A random rollout with starts, ends and rows that do not count; its values are the update's."""
    steps, streams = config.rollout.rollout_length, config.rollout.environments
    random = np.random.default_rng(0)
    shape = (len(seeds), steps, streams)
    ends = random.random(shape) < 0.05

    def normal(*sizes):
        return jnp.asarray(random.normal(size=sizes), jnp.float32)

    trajectory = Trajectory(
        observation=normal(*shape, 5),
        is_first=jnp.asarray(np.roll(ends, 2, axis=1)),
        valid=jnp.asarray(~np.roll(ends, 1, axis=1)),
        core_state=normal(len(seeds), 1, streams, config.policy.hidden_size),
        action=normal(*shape, 1),
        log_prob=normal(*shape) - 1.0,
        value=normal(*shape),
        reward=normal(*shape),
        discount=jnp.ones(shape),
        ends=jnp.asarray(ends),
        episode_return=normal(*shape),
        episode_length=jnp.full(shape, 20),
        discounted_return=normal(*shape),
    )
    return PPOExperience(trajectory, normal(len(seeds), streams))


def updated(config, seeds, devices):
    """Return state and metrics after one update on this many devices."""
    grid = learner_grid(config, len(seeds), devices)
    placement = NamedSharding(grid.mesh(), PartitionSpec("seeds"))
    inputs = (fresh_states(config, seeds), experience(config, seeds))
    program = lower_update(config, grid, placement, *inputs).compile()
    state, metrics = program(*jax.device_put(inputs, placement))
    return grid, jax.device_get((state.policy, state.optimiser, metrics))


def assert_close(left, right):
    # float32 sums in another order, through four Adam steps of 2.5e-4, which turn the sign of a vanishing
    # gradient into a whole step.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), left, right)


@pytest.mark.parametrize(
    "name", ["nc-gru", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nc-ctrnn", "authors-code"))]
)
def test_two_devices_learn_what_one_learns(name):
    variant = preset(name, "CartpoleSwingup")
    config = dataclasses.replace(
        SMALL,
        policy=dataclasses.replace(variant.policy, hidden_size=12),
        learner=dataclasses.replace(variant.learner, epochs=2),
    )
    config = dataclasses.replace(config, learner=dataclasses.replace(config.learner, minibatches=2))
    alone, shared = updated(config, (0,), 1), updated(config, (0,), 2)
    assert (alone[0], shared[0]) == (DeviceGrid(1, 1), DeviceGrid(1, 2))
    assert_close(alone[1], shared[1])


@pytest.mark.thorough
def test_seeds_on_devices_of_their_own_learn_what_each_learns_alone():
    together = updated(SMALL, (0, 1), 2)
    assert together[0] == DeviceGrid(2, 1)
    in_turn = updated(SMALL, (0, 1), 1)
    assert in_turn[0] == DeviceGrid(1, 1)
    assert_close(together[1], in_turn[1])


@pytest.mark.thorough
def test_eight_virtual_devices_learn_what_one_learns():
    """Run two seeds in groups of four devices in a new process, since JAX fixes its devices at startup."""
    code = """
import sys; sys.path[:0] = ["tests", "tests/learners"]
from test_sharding import SMALL, DeviceGrid, assert_close, updated
alone, shared = updated(SMALL, (0, 1), 1), updated(SMALL, (0, 1), 8)
assert shared[0] == DeviceGrid(2, 4), shared[0]
assert_close(alone[1], shared[1])
print("equal")
"""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert result.stdout.strip() == "equal", result.stderr[-2000:]


OFF_POLICY = dataclasses.replace(
    preset("nc-sac-gru", "CartpoleSwingup"),
    policy=dataclasses.replace(preset("nc-sac-gru", "CartpoleSwingup").policy, hidden_size=12),
    rollout=RolloutConfig(environments=4, rollout_length=20),
    learner=SACConfig(
        warmup_steps=0, head_width=8, replay=ReplayConfig(capacity=160, window=6, burn_in=2, batch=4)
    ),
)


def off_policy_program(devices):
    """Return soft actor-critic compiled for this many devices, and its arguments."""
    random, shape = np.random.default_rng(0), (1, 20, 4)
    grid = learner_grid(OFF_POLICY, 1, devices)
    placement = NamedSharding(grid.mesh(), PartitionSpec("seeds"))

    def normal(*sizes):
        return jnp.asarray(random.normal(size=sizes), jnp.float32)

    first = jnp.asarray(random.random(shape) < 0.1)
    rows = ReplayRows(
        normal(*shape, 5),
        normal(*shape, 1),
        normal(*shape),
        jnp.ones(shape),
        first,
        jnp.zeros(shape, bool),
        ~first,
        complete=normal(*shape, 5),
    )
    episodes = Episodes(jnp.zeros(shape, bool), normal(*shape), jnp.ones(shape, int))
    inputs = (fresh_states(OFF_POLICY, (0,)), SACExperience(rows, episodes))
    return (
        grid,
        lower_update(OFF_POLICY, grid, placement, *inputs).compile(),
        jax.device_put(inputs, placement),
    )


def updated_off_policy(devices):
    """Return state and metrics after two SAC updates on this many devices, the second of which learns."""
    grid, program, (states, experience_) = off_policy_program(devices)
    for _ in range(2):
        states, metrics = program(states, experience_)
    return grid, jax.device_get((states.learner, metrics))


@pytest.mark.thorough
def test_two_devices_learn_off_policy_what_one_learns():
    alone, shared = updated_off_policy(1), updated_off_policy(2)
    assert (alone[0], shared[0]) == (DeviceGrid(1, 1), DeviceGrid(1, 2))
    assert alone[1][1]["training/updates"] == 5.0
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5), alone[1], shared[1])


def test_devices_wait_for_each_other_once_in_an_update():
    """Waiting for each of dozens of metrics took as long as an update of a few short windows."""
    _, program, _ = off_policy_program(2)
    assert program.as_text().count(" all-reduce(") == 1


def test_a_sum_over_devices_keeps_kinds_and_shapes():
    grid = choose_grid(2, 2, 1, 2)
    random = np.random.default_rng(0)
    tree = {
        "matrix": random.normal(size=(2, 3, 4)),
        "scalar": random.normal(size=(2,)),
        "count": random.integers(0, 9, size=(2, 5)),
    }
    tree = {
        name: jnp.asarray(array, jnp.int32 if name == "count" else jnp.float32)
        for name, array in tree.items()
    }
    mine = PartitionSpec("streams")
    total = jax.shard_map(
        lambda parts: grid.shards.total(jax.tree.map(lambda part: part[0], parts)),
        mesh=grid.mesh(),
        in_specs=mine,
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    for name, array in jax.jit(total)(tree).items():
        assert array.dtype == tree[name].dtype
        # Two terms have one sum, whatever their order.
        np.testing.assert_array_equal(array, np.asarray(tree[name][0]) + np.asarray(tree[name][1]))


def test_every_core_is_used_unless_told_otherwise():
    assert learner_grid(preset("nc-sac-gru", "CartpoleSwingup"), 1, None) == DeviceGrid(1, 2)
    assert learner_grid(OFF_POLICY, 1, 1) == DeviceGrid(1, 1)
    assert learner_grid(OFF_POLICY, 2, None) == DeviceGrid(2, 1)
    assert learner_grid(SMALL, 1, None) == DeviceGrid(1, 2)


def test_windows_that_are_too_few_for_two_devices_are_split_only_if_asked_for():
    """With four windows a device would have two of them, and the whole replay."""
    assert learner_grid(OFF_POLICY, 1, None) == DeviceGrid(1, 1)
    assert learner_grid(OFF_POLICY, 1, 2) == DeviceGrid(1, 2)


def test_only_small_products_on_a_core_of_their_own_are_kept_from_spreading(monkeypatch):
    alone, shared = DeviceGrid(1, 1), DeviceGrid(1, 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert threads_of_a_device(learner_for(OFF_POLICY), shared) == {"xla_cpu_multi_thread_eigen": False}
    assert threads_of_a_device(learner_for(OFF_POLICY), alone) is None
    assert threads_of_a_device(learner_for(SMALL), shared) is None
    # Two devices on eight cores: the other six would be idle.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert threads_of_a_device(learner_for(OFF_POLICY), shared) is None
