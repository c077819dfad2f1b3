"""The tasks that `make test` covers: the paper's and all in JAX.

`make test-all` covers one of every robot, and `make test-slow` the others.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from costate.envs.suites.dm_control import SuiteTask
from costate.envs.tasks import PAPER_TASKS, TASKS

SUITE = {task.name: task for task in TASKS if isinstance(task, SuiteTask)}
"""The tasks of dm_control."""
_FIRST_OF_ROBOT = {task.domain: task.name for task in reversed(SUITE.values())}.values()


def everyday(names: Iterable[str]) -> list[Any]:
    """Return parameters for a test over tasks, with marks on those that `make test` skips."""
    return [pytest.param(name, marks=_marks(name)) for name in names]


def _marks(name: str) -> list[Any]:
    if name not in SUITE or name in PAPER_TASKS:
        return []
    return [pytest.mark.thorough if name in _FIRST_OF_ROBOT else pytest.mark.slow]
