"""Test MuJoCo Playground: the contract, dm_control in the same states, several seeds and devices."""

import dataclasses
import functools
import pathlib
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

pytest.importorskip(
    "mujoco_playground",
    reason="MuJoCo Playground is not installed; pip install 'costate[playground]' or make test-playground",
    exc_type=ImportError,
)
sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))

import parity_playground as parity
from repeating import assert_same_again
from repeating import short as short_run

from costate._base.errors import ConfigError
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.envs.engines.playground import (
    VARIABLE,
    PlaygroundEnv,
    implementation,
    load_simulator,
    rearrangement,
)
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.suites.playground import NAMES
from costate.envs.tasks import PAPER_TASKS, TASKS
from costate.learners import learner_for
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sharding import SEEDS, DeviceGrid
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders
from costate.runs.run_directory import open_run
from costate.training.iteration import OneProgram, TwoPrograms, compile_iteration
from costate.training.loop import resume, train
from costate.training.programs import (
    choose_rollout_sharding,
    compile_programs,
    fresh_states,
    lower_collect,
    lower_explore,
    start_episodes,
)

STEPS = 5
"""Length of an episode here. Playground itself has no time limit."""
ROWS = 12


def short(name, batch, seeds):
    task = dataclasses.replace(TASKS[f"playground:{name}"], episode_steps=STEPS)
    return PlaygroundEnv(task, load_simulator(name), task.shown, batch, seeds)


# The contract.


@pytest.fixture(scope="module")
def cartpoles():
    """Return two environments and a compiled program that steps them."""
    env = short("CartpoleSwingup", 2, [3])

    def rows(state, actions):
        keys = jax.random.split(jax.random.key(1), ROWS)
        return jax.lax.scan(lambda state, now: env.step(state, *now), state, (actions, keys))[1]

    return env, jax.jit(rows)


ACTIONS = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (ROWS, 2, 1)), jnp.float32)


def test_episodes_end_by_their_time_limit_and_the_next_step_starts_new_ones(cartpoles):
    env, roll = cartpoles
    assert (env.batch_size, env.observation_size, env.action_size, env.episode_steps) == (2, 5, 1, STEPS)
    np.testing.assert_array_equal([env.action_low, env.action_high], [[-1], [1]])
    state, first = env.reset(jax.random.key(0))
    assert first.is_first.all()
    assert not first.is_last.any()
    steps = roll(state, ACTIONS)
    assert steps.observation.dtype == steps.reward.dtype == jnp.float32
    for i in range(2):
        np.testing.assert_array_equal(np.flatnonzero(steps.is_last[:, i]), [4, 10])
        np.testing.assert_array_equal(np.flatnonzero(steps.is_first[:, i]), [5, 11])
    # A time limit is not a termination.
    np.testing.assert_array_equal(steps.discount, np.ones((ROWS, 2)))
    np.testing.assert_array_equal(steps.reward[5], [0, 0])
    assert (np.asarray(steps.reward)[[0, 1, 2, 3, 4, 6]] > 0.0).all()
    # All starts differ, and are within a hundredth or so of hanging at rest in the middle.
    starts = np.concatenate([first.observation, steps.observation[5], steps.observation[11]])
    np.testing.assert_allclose(starts, np.tile([0, -1, 0, 0, 0], (6, 1)), atol=0.05)
    assert len(np.unique(starts[:, 0])) == 6


def test_the_action_after_a_last_step_is_ignored(cartpoles):
    env, roll = cartpoles
    state, _ = env.reset(jax.random.key(0))
    other = roll(state, ACTIONS.at[STEPS].multiply(-1.0))
    jax.tree.map(np.testing.assert_array_equal, roll(state, ACTIONS), other)
    moved = roll(state, ACTIONS.at[STEPS + 1].multiply(-1.0))
    assert not np.array_equal(moved.observation[STEPS + 1], other.observation[STEPS + 1])


def test_physics_that_has_left_the_numbers_ends_its_episode_for_good_and_no_other(cartpoles):
    env, roll = cartpoles
    state, first = env.reset(jax.random.key(0))
    sound = roll(state, ACTIONS)
    data = state.simulation.data
    broken = state.simulation.replace(data=data.replace(qvel=data.qvel.at[1, 0].set(jnp.nan)))
    steps = roll(dataclasses.replace(state, simulation=broken), ACTIONS)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(steps))
    np.testing.assert_array_equal(steps.observation[0, 1], first.observation[1])
    assert (bool(steps.is_last[0, 1]), float(steps.discount[0, 1]), float(steps.reward[0, 1])) == (
        True,
        0.0,
        0.0,
    )
    np.testing.assert_array_equal(np.flatnonzero(steps.is_first[:, 1]), [1, 7])
    for left, right in zip(jax.tree.leaves(steps), jax.tree.leaves(sound), strict=True):
        # The other one draws nothing until its own episode is over.
        np.testing.assert_array_equal(left[:, 0], right[:, 0])


def test_a_resumed_environment_needs_nothing_but_its_keys(cartpoles):
    env, roll = cartpoles
    roll(env.reset(jax.random.key(0))[0], ACTIONS)
    again, first = env.reset(jax.random.key(7))
    new = short("CartpoleSwingup", 2, [3])
    new.skip_resets(np.array([4, 4]))
    resumed, resumed_first = new.reset(jax.random.key(7))
    jax.tree.map(np.testing.assert_array_equal, first, resumed_first)
    jax.tree.map(np.testing.assert_array_equal, roll(again, ACTIONS), roll(resumed, ACTIONS))
    # Environments with another seed, such as those of an evaluation, start other episodes with the same key.
    _, elsewhere = short("CartpoleSwingup", 2, [4]).reset(jax.random.key(7))
    assert not np.array_equal(first.observation, elsewhere.observation)


def test_a_cartpole_is_shown_where_its_pole_was_before_the_step(cartpoles):
    """MJX computes body positions before it steps, and Playground reads those.

    Here a control step is a single physics step.
    """
    env, roll = cartpoles
    state, first = env.reset(jax.random.key(0))
    steps = roll(state, ACTIONS)
    np.testing.assert_array_equal(steps.observation[0, :, 1:3], first.observation[:, 1:3])
    assert (steps.observation[0, :, 0] != first.observation[:, 0]).all()


def test_no_callback_is_in_the_program(cartpoles):
    env, roll = cartpoles
    state, _ = env.reset(jax.random.key(0))
    assert "callback" not in roll.lower(state, ACTIONS).as_text()


# Comparison with dm_control, in states of dm_control. MuJoCo itself computes body positions and sensors from
# Playground's model, so that only Playground's model, observations and rewards are compared.
# benchmarks/parity_playground.py also compares a step in MJX.

# Observations and rewards are float32 in Playground, of numbers up to about 10.
ROUNDING = 2e-6
STATES = 16


def in_the_same_states(name):
    environment, found = load_simulator(name).environment, parity.moments(name, STATES, seed=0)
    ours = parity.by_state(name, environment, found)
    return (
        ours,
        np.stack([moment.observation for moment in found]),
        np.stack([moment.reward for moment in found]),
    )


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_observations_and_rewards_are_dm_controls_in_the_same_state(name):
    ours, observation, reward = in_the_same_states(name)
    different = parity.by_group(name, ours.observation - observation)
    # Playground's walker observes the tilt of the torso instead of its height.
    tilt = different.pop("upright") if name.startswith("Walker") else None
    assert tilt is None or tilt > 0.1
    assert max(different.values()) < ROUNDING
    np.testing.assert_allclose(ours.reward, reward, atol=ROUNDING)
    # There are rewards, and they vary.
    assert np.ptp(reward) > 1e-3


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_controls_and_their_time_step_are_dm_controls(name):
    task, environment = TASKS[name], load_simulator(name).environment
    original = parity.load_dm_control(name, task.domain, task.goal, 0)
    spec = original.action_spec()
    np.testing.assert_array_equal(
        environment.mj_model.actuator_ctrlrange, np.stack([spec.minimum, spec.maximum], axis=1)
    )
    assert environment.dt == pytest.approx(original.control_timestep())


def test_what_a_walker_shows_as_its_height_it_shows_twice():
    ours, observation, _ = in_the_same_states("WalkerStand")
    # The cosine of the tilt of a planar torso is both the first of its orientations and its uprightness.
    np.testing.assert_allclose(ours.observation[:, 14], observation[:, 0], atol=ROUNDING)


def test_models_differ_where_the_documentation_says():
    fish, walker, cartpole, finger = (
        load_simulator(name).environment
        for name in ("FishSwim", "WalkerStand", "CartpoleSwingup", "FingerTurnHard")
    )
    euler, implicit_fast, pyramidal = 0, 3, 0
    assert (
        cartpole.mj_model.opt.integrator,
        cartpole.mj_model.opt.iterations,
        cartpole.mj_model.opt.ls_iterations,
    ) == (euler, 1, 4)
    assert (walker.mj_model.opt.iterations, walker.mj_model.opt.ls_iterations, walker.n_substeps) == (
        2,
        5,
        10,
    )
    assert (finger.mj_model.opt.integrator, finger.mj_model.opt.cone, finger.mj_model.opt.timestep) == (
        implicit_fast,
        pyramidal,
        0.005,
    )
    assert fish.mj_model.opt.timestep == 0.002
    # A sphere of radius 0.03 stands for the box of 0.004 × 0.12 × 0.06 that gives dm_control's fish its mass.
    assert fish.mj_model.geom("torso_massive").size[0] == 0.03
    task = TASKS["FishSwim"]
    original = parity.load_dm_control("FishSwim", task.domain, task.goal, 0).physics.model.ptr
    torso = parity.masses(fish.mj_model)["torso"], parity.masses(original)["torso"]
    assert torso[0] - torso[1] == pytest.approx(
        1000 * (4 / 3 * np.pi * 0.03**3 - 0.004 * 0.12 * 0.06), rel=1e-6
    )


def test_all_names_are_playgrounds_with_its_time_steps():
    from mujoco_playground import dm_control_suite

    assert set(NAMES) == set(dm_control_suite.ALL_ENVS)
    for name in NAMES:
        config = dm_control_suite.get_default_config(name)
        task = TASKS[f"playground:{name}"]
        assert (config.ctrl_dt, config.episode_length, config.action_repeat) == (
            task.control_timestep,
            task.episode_steps,
            1,
        )


# Tracing every task takes a minute.
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_task_has_the_sizes_of_its_record(name):
    task, simulator = TASKS[f"playground:{name}"], load_simulator(name)
    shown = jax.eval_shape(simulator.start, jax.random.split(jax.random.key(0), 1)).obs
    assert (shown.shape, simulator.environment.action_size) == ((1, task.observation_size), task.action_size)


def test_groups_in_another_order_are_put_into_ours():
    order = rearrangement((("b", 1), ("a", 2), ("c", 3)), (("a", 2), ("b", 1), ("c", 3)))
    np.testing.assert_array_equal(np.array([10, 20, 21, 30, 31, 32])[order], [20, 21, 10, 30, 31, 32])


def test_warp_is_for_graphics_cards_and_the_environment_overrules(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert implementation() == "jax"
    monkeypatch.setattr("costate.envs.engines.playground.jax.default_backend", lambda: "gpu")
    assert implementation() == "warp"
    monkeypatch.setenv(VARIABLE, "jax")
    assert implementation() == "jax"
    monkeypatch.setenv(VARIABLE, "c++")
    with pytest.raises(ConfigError, match=r"COSTATE_MJX_IMPL is 'c\+\+'.*jax or warp"):
        implementation()


# Training. A pendulum touches nothing, so that MJX compiles in seconds.


def pendulum_config():
    return RunConfig(
        "playground:PendulumSwingup",
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=2, rollout_length=ROWS),
        learner=PPOConfig(minibatches=1, epochs=1),
    )


def collected(seeds, grid):
    """Roll out new runs with two environments each on the devices of a grid.

    Return the devices and the trajectory.
    """
    config = pendulum_config()
    env = SensorEnv(short("PendulumSwingup", 2, seeds), SensorConfig(0.5), config.task_record.observation)
    states = fresh_states(config, seeds)
    start = start_episodes(config, env, states)
    placement = NamedSharding(grid.mesh(), PartitionSpec(SEEDS))
    rollout_sharding = choose_rollout_sharding(env, grid, placement)
    explore = lower_explore(config, env, states, rollout_sharding).compile()
    collect = lower_collect(config, env, states, start, explore.out_info, rollout_sharding).compile()
    acting, keys, start = jax.device_put(
        (learner_for(config).acting(states), states.key, start), rollout_sharding
    )
    _, experience = collect(acting, start, explore(keys))
    return rollout_sharding, experience


def test_seeds_together_on_two_devices_see_what_each_sees_alone_on_one():
    rollout_sharding, together = collected((5, 6), DeviceGrid(seeds=1, streams=2))
    assert rollout_sharding.num_devices == 2
    trajectory, _ = together.rows
    # Two episodes end in it, so that starts and blackouts are drawn inside the program too.
    assert trajectory.ends.sum() == 2 * 2 * 2
    assert 0 < (np.asarray(trajectory.observation) == 0.0).all(axis=-1).sum() < 2 * 2 * ROWS
    for n, seed in enumerate((5, 6)):
        rollout_sharding, alone = collected((seed,), DeviceGrid(1, 1))
        assert rollout_sharding.num_devices == 1
        # A pendulum doubles a rounding error of 1e-7 only a few times in a dozen steps.
        jax.tree.map(
            lambda ours, whole, n=n: np.testing.assert_allclose(whole[n], ours[0], atol=1e-5, rtol=1e-5),
            alone,
            together,
        )


def test_a_whole_iteration_on_two_devices_is_one_program_and_learns_what_two_programs_learn():
    """Two seeds of two environments each.

    A rounding error stays small over a dozen steps of a pendulum and one update.
    """
    seeds, grid = (5, 6), DeviceGrid(seeds=1, streams=2)
    config = pendulum_config()
    env = SensorEnv(short("PendulumSwingup", 2, seeds), SensorConfig(0.5), config.task_record.observation)
    states = fresh_states(config, seeds)
    start = start_episodes(config, env, states)
    one = compile_iteration(config, env, states, start, grid)
    assert isinstance(one, OneProgram)
    two = TwoPrograms(compile_programs(config, env, states, start, grid))
    ours, theirs = (
        each.run(each.place(states), start, lambda rollout_state, experience: None) for each in (one, two)
    )
    assert jax.tree.leaves(ours.states.policy)[0].sharding.num_devices == 2
    compare = functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5)
    jax.tree.map(
        compare,
        (ours.experience, ours.states.policy, ours.metrics),
        (theirs.experience, theirs.states.policy, theirs.metrics),
    )
    before, after = (np.asarray(each.policy.core.recurrent_weights) for each in (states, ours.states))
    assert (before != after).mean() > 0.9


def test_environments_that_cannot_be_dealt_evenly_stay_on_one_device():
    env = short("PendulumSwingup", 3, [0])
    placement = NamedSharding(DeviceGrid(1, 2).mesh(), PartitionSpec(SEEDS))
    assert choose_rollout_sharding(env, DeviceGrid(1, 2), placement).num_devices == 1


def tiny(task, out, steps, *options):
    arguments = (
        f"train {task} --steps {steps} --environments 2 --rollout-length 8 --hidden-size 8 "
        f"--epochs 1 --minibatches 1 --out {out}"
    )
    return main([*arguments.split(), *options])


def test_a_run_is_trained_from_the_command_line_on_two_devices(tmp_path, capsys):
    assert tiny("playground:PendulumSwingup", tmp_path / "run", 16, "--devices", "2") == 0
    run = open_run(tmp_path / "run")
    assert run.config.task == "playground:PendulumSwingup"
    [row] = run.read_metrics()
    assert row["env_steps"] == 16
    assert all(np.isfinite(value) for name, value in row.items() if name.startswith("losses/"))


def test_training_gives_the_same_again_and_another_seed_something_else(tmp_path):
    """Resuming is exact bit for bit, as with every other engine in test_determinism.py."""
    assert_same_again(short_run("playground:CartpoleSwingup"), tmp_path)


@pytest.mark.slow
def test_a_resumed_run_is_the_same_run(tmp_path):
    config = RunConfig(
        "playground:CartpoleSwingup",
        steps=2 * 2000,
        checkpoint_every=1,
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=2, rollout_length=1000),
        learner=PPOConfig(epochs=1, minibatches=2),
    )
    whole = train(config, tmp_path / "whole").run
    cut = tmp_path / "cut"
    shutil.copytree(whole.path, cut)
    shutil.rmtree(folders(cut / "checkpoints")[-1])
    resumed = resume(cut).run

    def numbers(run):
        return [
            {k: v for k, v in row.items() if not k.startswith("time/") and k != "training/sps"}
            for row in run.read_metrics()
        ]

    assert numbers(resumed) == numbers(whole)
