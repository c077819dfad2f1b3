"""Test users' own robots from MJCF files, users' task files, and Gym's robots in EnvPool."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError, SimulationError
from costate._base.task_files import VARIABLE, load_task_files, without_task_files
from costate.cli import main
from costate.envs.engines.host import HostEnv, episode_seed
from costate.envs.engines.mujoco import MujocoSimulator, describe
from costate.envs.tasks import TASKS
from costate.envs.worlds.mujoco_world import AbstractMujocoWorld

ARM = pathlib.Path(__file__).parents[2] / "examples" / "own_robot" / "arm.py"
MASS = """<mujoco><option timestep="{timestep}"/>
<worldbody><body><joint name="slide" type="slide" axis="1 0 0"/>
<geom size="0.1" mass="{mass}" contype="0" conaffinity="0"/></body></worldbody>
<actuator>{motor}</actuator></mujoco>"""
MOTOR = '<motor name="pull" joint="slide" ctrllimited="true" ctrlrange="-2 2"/>'


class Mass(AbstractMujocoWorld):
    """A mass on a line that is pulled. The episode terminates when it is far away."""

    control_timestep = 0.1
    episode_steps = 5

    def __init__(self, folder, mass=2.0, timestep=0.05, motor=MOTOR):
        self.path = folder / "mass.xml"
        self.path.write_text(MASS.format(mass=mass, timestep=timestep, motor=motor))

    def initial(self, model, data, random):
        data.qpos[:] = random.uniform(-1.0, 1.0)

    def observe(self, model, data):
        return {"position": data.qpos, "velocity": data.qvel, "place": data.geom_xpos[0, :1]}

    def reward(self, model, data):
        return -float(data.ctrl[0])

    def terminated(self, model, data):
        return abs(data.qpos[0]) > 100.0


def rolled(env, actions):
    state, first = env.reset(jax.random.key(0))
    program = jax.jit(
        lambda state, actions: jax.lax.scan(lambda s, a: env.step(s, a, jax.random.key(0)), state, actions)
    )
    _, steps = jax.block_until_ready(program(state, jnp.asarray(actions, jnp.float32)))
    env.check()
    return first, steps


def test_a_mass_moves_as_newton_says_and_starts_anew_after_its_time_limit(tmp_path):
    env = HostEnv(MujocoSimulator("Mass", Mass(tmp_path), 2), "Mass", 2, [3], 5)
    first, steps = rolled(env, np.ones((8, 2, 1)))
    np.testing.assert_array_equal(np.flatnonzero(steps.is_last[:, 0]), [4])
    np.testing.assert_array_equal(np.flatnonzero(steps.is_first[:, 0]), [5])
    np.testing.assert_array_equal(steps.discount, np.ones((8, 2)))
    np.testing.assert_array_equal(steps.reward[:, 0], [-1, -1, -1, -1, -1, 0, -1, -1])
    # A force of 1 on a mass of 2, for two physics steps of 0.05 s: v = 0.05 k, and by semi-implicit Euler x
    # grows by 0.05 (v₁ + v₂).
    velocity = 0.025 * np.arange(1, 11)
    np.testing.assert_allclose(steps.observation[:5, 0, 1], velocity[1::2], rtol=1e-5)
    travelled = np.asarray(steps.observation[:5, 0, 0] - first.observation[0, 0])
    np.testing.assert_allclose(travelled, np.cumsum(0.05 * velocity)[1::2], rtol=1e-4, atol=1e-6)
    # The body's position is that of the same moment, not of the step before.
    np.testing.assert_array_equal(steps.observation[..., 2], steps.observation[..., 0])
    # Starts are drawn from the seed of the episode.
    expected = np.random.default_rng(episode_seed(3, 0, 0)).uniform(-1.0, 1.0, 2)
    np.testing.assert_allclose([first.observation[0, 0], steps.observation[5, 0, 0]], expected, rtol=1e-6)
    env.close()


def test_a_robot_is_brought_back_bit_for_bit(tmp_path):
    def build():
        return HostEnv(MujocoSimulator("Mass", Mass(tmp_path), 2), "Mass", 2, [3], 5)

    env, other = build(), build()
    (before, _), (later, _) = rolled(env, np.ones((8, 2, 1))), rolled(env, np.ones((8, 2, 1)))
    # The episodes are not repeated.
    assert not np.array_equal(before.observation, later.observation)
    env = build()
    rolled(env, np.ones((8, 2, 1)))
    other.skip_resets(np.array([2, 2]))
    jax.tree.map(
        np.testing.assert_array_equal, rolled(env, np.ones((8, 2, 1))), rolled(other, np.ones((8, 2, 1)))
    )


def test_physics_that_breaks_down_stops_the_run_instead_of_starting_anew_in_silence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo leaves a log of its own

    class Kicked(Mass):
        def initial(self, model, data, random):
            data.qvel[:] = 2e10

    class Lost(Mass):
        def observe(self, model, data):
            return {"position": data.qpos if data.time < 0.15 else np.full(1, np.nan)}

    env = HostEnv(MujocoSimulator("Kicked", Kicked(tmp_path), 1), "Kicked", 1, [3], 5)
    with pytest.raises(
        SimulationError, match=r"physics of environment 0 diverged at step \d of its episode \(mjWARN_BAD"
    ):
        rolled(env, np.ones((5, 1, 1)))
    env = HostEnv(MujocoSimulator("Lost", Lost(tmp_path), 1), "Lost", 1, [3], 5)
    with pytest.raises(
        SimulationError, match=r"returned NaN or Inf: position nan \(in environment 0 of seed 3, at step 2"
    ):
        rolled(env, np.ones((5, 1, 1)))


def test_worlds_that_cannot_be_trained_on_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no actuators"):
        describe("Mass", Mass(tmp_path, motor=""))
    with pytest.raises(ConfigError, match=r"actuator pull of .* has no bounds"):
        describe("Mass", Mass(tmp_path, motor='<motor name="pull" joint="slide"/>'))
    with pytest.raises(ConfigError, match=r"multiple of the model's time step, 0.03 s"):
        describe("Mass", Mass(tmp_path, timestep=0.03))
    with pytest.raises(ConfigError, match=r"MuJoCo cannot load"):
        describe("Mass", Mass(tmp_path, mass="heavy"))


def test_the_example_is_a_task_with_named_sensors(monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "")
    before, modules = set(TASKS.names()), set(sys.modules)
    try:
        assert main(["tasks", "--tasks", str(ARM)]) == 0
        listed = capsys.readouterr().out
        assert "OwnArm" in listed
        assert "gym:ID" in listed
        task = TASKS["OwnArm"]
        assert task.observation == (("joints", 4), ("velocity", 2), ("to_target", 2), ("target", 2))
        env = task.build(2, [0])
        first, steps = rolled(env, np.zeros((3, 2, 2)))
        env.close()
        # The tip of two links of 0.25 m, by hand from the angles; nothing moves, because nothing pulls.
        cosines, sines = np.asarray(first.observation[:, :2]), np.asarray(first.observation[:, 2:4])
        shoulder, elbow = np.arctan2(sines, cosines).T
        tip = 0.25 * np.stack(
            [np.cos(shoulder) + np.cos(shoulder + elbow), np.sin(shoulder) + np.sin(shoulder + elbow)], axis=1
        )
        np.testing.assert_allclose(first.observation[:, 6:8], first.observation[:, 8:] - tip, atol=1e-6)
        expected = np.exp(-20.0 * np.square(np.asarray(first.observation[:, 6:8])).sum(axis=1))
        np.testing.assert_allclose(steps.reward[0], expected, rtol=1e-5)
    finally:
        for name in set(TASKS.names()) - before:
            TASKS._items.pop(name)
        # Another test may have imported the example before.
        for module in [name for name in set(sys.modules) - modules if name.startswith("costate_tasks_")]:
            del sys.modules[module]


def test_files_that_cannot_be_loaded_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    assert without_task_files(["train", "A", "--steps", "5"]) == ["train", "A", "--steps", "5"]
    assert without_task_files([f"--tasks={tmp_path / 'none.py'}", "A"]) == ["A"]
    with pytest.raises(ConfigError, match=r"is not a readable Python file"):
        load_task_files()
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\nraise KeyError('spring')\n")
    monkeypatch.setenv(VARIABLE, str(broken))
    with pytest.raises(ConfigError, match=r"broken.py, line 2 raised KeyError: 'spring'"):
        load_task_files()
    with pytest.raises(ConfigError, match=r"--tasks needs a file"):
        without_task_files(["train", "--tasks"])


@pytest.mark.parametrize(
    "robot", ["InvertedPendulum-v4", pytest.param("HalfCheetah-v4", marks=pytest.mark.slow)]
)
def test_robots_of_gym_in_envpool_keep_the_contract_and_can_be_brought_back(robot):
    task = TASKS[f"envpool:{robot}"]
    env = task.build(2, [3])
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (1003, 2, task.action_size))
    rolled(env, actions[:5])
    first, steps = rolled(env, actions)
    ends, starts = np.asarray(steps.is_last), np.asarray(steps.is_first)
    np.testing.assert_array_equal(starts[1:], ends[:-1])
    assert ends.any()
    # A fall terminates. Only a whole episode of 1000 steps is truncated.
    if robot.startswith("Half"):
        np.testing.assert_array_equal(np.flatnonzero(ends[:, 0]), [999])
        np.testing.assert_array_equal(steps.discount, np.ones((1003, 2)))
    else:
        np.testing.assert_array_equal(steps.discount, 1.0 - ends)
    assert not np.asarray(steps.reward)[starts].any()
    other = task.build(2, [3])
    other.skip_resets(np.array([1, 1]))
    jax.tree.map(np.testing.assert_array_equal, (first, steps), rolled(other, actions))


def test_an_unknown_robot_is_answered_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"EnvPool has no environment 'HalfCheetah-v9'.*Did you mean HalfCheetah"
    ):
        TASKS["envpool:HalfCheetah-v9"]


def test_an_unknown_task_may_be_one_of_a_file_that_was_not_named():
    with pytest.raises(ConfigError, match="for a task of your own, pass its Python file with --tasks FILE"):
        TASKS["NobodysArm"]
