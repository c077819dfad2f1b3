"""Environments: the contract, the tasks, the sensor faults, and the engines that run them."""

from costate._base.discovery import load_entry_points
from costate.envs import suites as suites
from costate.envs.base import AbstractEnv as AbstractEnv
from costate.envs.base import TimeStep as TimeStep
from costate.envs.sensors import SensorConfig as SensorConfig
from costate.envs.suites.gymnasium_ids import register_gymnasium as register_gymnasium
from costate.envs.suites.gymnasium_ids import register_gymnasium_vector as register_gymnasium_vector
from costate.envs.suites.own_robots import register_mujoco as register_mujoco
from costate.envs.tasks import PAPER_TASKS as PAPER_TASKS
from costate.envs.tasks import TASKS as TASKS
from costate.envs.tasks import Task as Task
from costate.envs.worlds.mujoco_world import AbstractMujocoWorld as AbstractMujocoWorld

# Last, because third-party tasks may use anything above.
load_entry_points("costate.tasks")
