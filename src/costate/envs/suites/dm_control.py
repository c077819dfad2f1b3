"""The DeepMind Control Suite, run by EnvPool.

Names follow MuJoCo Playground's CamelCase. The fields and their order are those of dm_control. EnvPool gives
all tasks of a robot the union of their fields, and leaves those of other tasks uninitialised, so a record
must name the ones to read.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp

from costate._base.types import Array, Float
from costate.envs.base import AbstractEnv, Layout
from costate.envs.stage import AbstractStage
from costate.envs.suite_record import AbstractSuiteTask
from costate.envs.tasks import PAPER_STEPS, PAPER_TASKS, TASKS
from costate.envs.visible import AbstractVisibleRobot

PAPER_STEPS_WALKER_RUN = 100_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteTask(AbstractSuiteTask):
    """A task trained in EnvPool and differentiated in dm_control itself."""

    engine: ClassVar[str] = "envpool"

    def build(self, batch_size: int, seeds: Sequence[int]) -> AbstractEnv:
        # Imported here, because loading the engine takes a second, which `costate --help` should not take.
        from costate.envs.engines.envpool import EnvPoolEnv

        return EnvPoolEnv(self, batch_size, seeds)

    def stage(self, seed: int) -> AbstractStage:
        # Imported here, because it needs dm_control, which training does not.
        from costate.envs.engines.dm_control import DmControlStage

        return DmControlStage(self.name, self.domain, self.goal, seed)

    def visible(self) -> AbstractVisibleRobot:
        from costate.envs.engines.dm_control import DmControlRobot

        return DmControlRobot(self.name, self.domain, self.goal)


# dm_control's own name, if Playground's differs.
_PLAYGROUND_NAMES = {"BallInCupCatch": "BallInCup", "PointMassEasy": "PointMass"}


def _camel(words: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in words.split("_"))


def ball_in_cup_reward(observation: Float[Array, "B O"]) -> Float[Array, " B"]:
    """Return 1 if the ball is wholly inside the target, else 0.

    The target is a square of half-width 0.05 centred 0.35 above the cup's origin. EnvPool uses the radius of
    another geom (0.008) instead of the ball's (0.025), and rewards balls that stick out.
    """
    cup_x, cup_z, ball_x, ball_z = observation[:, :4].T
    room = 0.05 - 0.025
    inside = (jnp.abs(cup_x - ball_x) < room) & (jnp.abs(cup_z + 0.35 - ball_z) < room)
    return inside.astype(observation.dtype)


_REWARDS = {"BallInCup": ball_in_cup_reward}


def _robot(domain: str, goals: str, layout: Layout, action_size: int, control_timestep: float) -> None:
    """Register the tasks of one robot that share an observation layout."""
    for goal in goals.split():
        full = _camel(domain) + _camel(goal)
        name = _PLAYGROUND_NAMES.get(full, full)
        TASKS.add(
            name,
            SuiteTask(
                name=name,
                domain=domain,
                goal=goal,
                envpool_id=f"{full}-v1",
                observation=layout,
                action_size=action_size,
                control_timestep=control_timestep,
                budget=PAPER_STEPS_WALKER_RUN if name == "WalkerRun" else PAPER_STEPS,
                in_paper=name in PAPER_TASKS,
                reward=_REWARDS.get(name),
            ),
        )


def _joints(position: int, velocity: int) -> Layout:
    return (("position", position), ("velocity", velocity))


_DOG: Layout = (
    ("joint_angles", 73),
    # dm_control's own spelling.
    ("joint_velocites", 73),
    ("torso_pelvis_height", 2),
    ("z_projection", 9),
    ("torso_com_velocity", 3),
    ("inertial_sensors", 9),
    ("foot_forces", 12),
    ("touch_sensors", 4),
    ("actuator_state", 38),
)
_QUADRUPED: Layout = (
    ("egocentric_state", 44),
    ("torso_velocity", 3),
    ("torso_upright", 1),
    ("imu", 6),
    ("force_torque", 24),
)
_ARM: Layout = (("arm_pos", 16), ("arm_vel", 8), ("touch", 5), ("hand_pos", 4))


def _humanoid(joints: int, velocity: int) -> Layout:
    upper = (
        ("joint_angles", joints),
        ("head_height", 1),
        ("extremities", 12),
        ("torso_vertical", 3),
        ("com_velocity", 3),
    )
    return (*upper, ("velocity", velocity))


def _boxes(count: int) -> Layout:
    return (*_ARM, ("box_pos", 4 * count), ("box_vel", 3 * count), ("target_pos", 2))


_robot("acrobot", "swingup swingup_sparse", (("orientations", 4), ("velocity", 2)), 1, 0.01)
_robot("ball_in_cup", "catch", _joints(4, 4), 2, 0.02)
_robot("cartpole", "balance balance_sparse swingup swingup_sparse", _joints(3, 2), 1, 0.01)
_robot("cartpole", "two_poles", _joints(5, 3), 1, 0.01)
_robot("cartpole", "three_poles", _joints(7, 4), 1, 0.01)
_robot("cheetah", "run", _joints(8, 9), 6, 0.01)
_robot("dog", "stand walk trot run", _DOG, 38, 0.015)
_robot("dog", "fetch", (*_DOG, ("ball_state", 6), ("target_position", 3)), 38, 0.015)
_robot("finger", "spin", (*_joints(4, 3), ("touch", 2)), 2, 0.02)
_robot(
    "finger",
    "turn_easy turn_hard",
    (*_joints(4, 3), ("touch", 2), ("target_position", 2), ("dist_to_target", 1)),
    2,
    0.02,
)
_robot("fish", "upright", (("joint_angles", 7), ("upright", 1), ("velocity", 13)), 5, 0.04)
_robot("fish", "swim", (("joint_angles", 7), ("upright", 1), ("target", 3), ("velocity", 13)), 5, 0.04)
_robot("hopper", "stand hop", (*_joints(6, 7), ("touch", 2)), 4, 0.02)
_robot("humanoid", "stand walk run", _humanoid(21, 27), 21, 0.025)
_robot("humanoid", "run_pure_state", _joints(28, 27), 21, 0.025)
_robot("humanoid_CMU", "stand walk run", _humanoid(56, 62), 56, 0.02)
_robot("lqr", "lqr_2_1", _joints(2, 2), 1, 0.03)
_robot("lqr", "lqr_6_2", _joints(6, 6), 2, 0.03)
_robot(
    "manipulator",
    "bring_ball bring_peg insert_ball insert_peg",
    (*_ARM, ("object_pos", 4), ("object_vel", 3), ("target_pos", 4)),
    5,
    0.01,
)
_robot("pendulum", "swingup", (("orientation", 2), ("velocity", 1)), 1, 0.02)
_robot("point_mass", "easy hard", _joints(2, 2), 2, 0.02)
_robot("quadruped", "walk run", _QUADRUPED, 12, 0.02)
_robot("quadruped", "escape", (*_QUADRUPED, ("origin", 3), ("rangefinder", 20)), 12, 0.02)
_robot("quadruped", "fetch", (*_QUADRUPED, ("ball_state", 9), ("target_position", 3)), 12, 0.02)
_robot("reacher", "easy hard", (("position", 2), ("to_target", 2), ("velocity", 2)), 2, 0.02)
_robot("stacker", "stack_2", _boxes(2), 5, 0.01)
_robot("stacker", "stack_4", _boxes(4), 5, 0.01)
_robot("swimmer", "swimmer6", (("joints", 5), ("to_target", 2), ("body_velocities", 18)), 5, 0.03)
_robot("swimmer", "swimmer15", (("joints", 14), ("to_target", 2), ("body_velocities", 45)), 14, 0.03)
_robot("walker", "stand walk run", (("orientations", 14), ("height", 1), ("velocity", 9)), 6, 0.025)
