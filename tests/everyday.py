"""Which tasks are tested every day: the paper's, and one of every robot. `make test-slow` tests the others too."""

from collections.abc import Iterable
from typing import Any

import pytest

from costate.envs.tasks import PAPER_TASKS, TASKS

_FIRST_OF_ROBOT = {task.domain: task.name for task in reversed(list(TASKS))}.values()


def everyday(names: Iterable[str]) -> list[Any]:
    """Parameters for a test over tasks, those that can wait marked as slow."""
    return [name if name in PAPER_TASKS or name in _FIRST_OF_ROBOT else pytest.param(name, marks=pytest.mark.slow) for name in names]
