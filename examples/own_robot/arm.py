"""Your own robot as a task: an MJCF file, its observations and its reward.

costate train OwnArm --tasks examples/own_robot/arm.py --algorithm sac --steps 200_000
costate evaluate runs/OwnArm/nc-sac-gru/seed-0 --tasks examples/own_robot/arm.py
"""

import pathlib

import numpy as np

from costate.envs import AbstractMujocoWorld, register_mujoco


class Arm(AbstractMujocoWorld):
    """Bring the tip of the arm to a target that is different in every episode."""

    path = pathlib.Path(__file__).with_name("arm.xml")
    control_timestep = 0.02
    episode_steps = 200

    def initial(self, model, data, random):
        data.qpos[:] = random.uniform([-np.pi, -2.0], [np.pi, 2.0])
        distance, angle = random.uniform(0.1, 0.45), random.uniform(-np.pi, np.pi)
        data.mocap_pos[0, :2] = distance * np.cos(angle), distance * np.sin(angle)

    def observe(self, model, data):
        joints = np.concatenate([np.cos(data.qpos), np.sin(data.qpos)])
        return {
            "joints": joints,
            "velocity": data.qvel,
            "to_target": self._to_target(data),
            "target": data.mocap_pos[0, :2],
        }

    def reward(self, model, data):
        return np.exp(-20.0 * np.square(self._to_target(data)).sum()) - 0.01 * np.square(data.ctrl).sum()

    def _to_target(self, data):
        return data.mocap_pos[0, :2] - data.site("tip").xpos[:2]


register_mujoco("OwnArm", Arm())
