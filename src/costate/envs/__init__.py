"""Environments: the contract, the tasks, the sensor faults, and the engines that run them."""

from costate.envs import suites as suites
from costate.envs.base import AbstractEnv as AbstractEnv
from costate.envs.base import TimeStep as TimeStep
from costate.envs.sensors import SensorConfig as SensorConfig
from costate.envs.tasks import PAPER_TASKS as PAPER_TASKS
from costate.envs.tasks import TASKS as TASKS
from costate.envs.tasks import Task as Task
