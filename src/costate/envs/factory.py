"""Build the environments of a run: the engine that simulates the task, behind its sensors."""

from collections.abc import Sequence

from costate.envs.base import AbstractEnv
from costate.envs.sensors import SensorConfig, SensorEnv, check_sensors
from costate.envs.tasks import TASKS


def make_env(task: str, batch_size: int, seeds: Sequence[int], sensors: SensorConfig) -> AbstractEnv:
    """Make ``batch_size`` environments of ``task`` for each seed."""
    record = TASKS[task]
    check_sensors(sensors, record.observation, record.episode_steps)  # before an engine is started
    return SensorEnv(record.build(batch_size, seeds), sensors, record.observation)
