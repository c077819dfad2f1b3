"""Builds the environments of a run: the engine that simulates the task, seen through the sensors."""

from collections.abc import Sequence

from costate.envs.base import AbstractEnv
from costate.envs.sensors import BlackoutConfig, BlackoutEnv
from costate.envs.tasks import TASKS


def make_env(task: str, batch_size: int, seeds: Sequence[int], sensors: BlackoutConfig) -> AbstractEnv:
    """``batch_size`` environments of ``task`` for each seed."""
    return BlackoutEnv(TASKS[task].build(batch_size, seeds), sensors)
