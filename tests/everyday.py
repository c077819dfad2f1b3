"""Which tasks are tested every day: the paper's, one of every robot, and all that need no simulator. `make test-slow` tests the others too."""

from collections.abc import Iterable
from typing import Any

import pytest

from costate.envs.suites.dm_control import SuiteTask
from costate.envs.tasks import PAPER_TASKS, TASKS

SUITE = {task.name: task for task in TASKS if isinstance(task, SuiteTask)}
"""The tasks of dm_control."""
_FIRST_OF_ROBOT = {task.domain: task.name for task in reversed(SUITE.values())}.values()


def everyday(names: Iterable[str]) -> list[Any]:
    """Parameters for a test over tasks, those that can wait marked as slow."""
    return [name if _is_everyday(name) else pytest.param(name, marks=pytest.mark.slow) for name in names]


def _is_everyday(name: str) -> bool:
    return name not in SUITE or name in PAPER_TASKS or name in _FIRST_OF_ROBOT
