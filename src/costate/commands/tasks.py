"""``costate tasks``: the tasks with their sizes and training budgets."""

import dataclasses
from typing import Any

from costate.arguments import read_arguments
from costate.documents import as_json
from costate.envs.tasks import TASKS, Task


@dataclasses.dataclass(frozen=True)
class TasksArguments:
    """List the tasks with their sizes and training budgets."""

    json: bool = False
    """Print the list as one JSON document."""


ARGUMENTS = TasksArguments


def run(arguments: list[str]) -> int:
    """List the tasks with their sizes and training budgets."""
    parsed = read_arguments("tasks", TasksArguments, arguments)
    tasks = sorted(TASKS, key=lambda task: (not task.in_paper, task.engine, task.name))
    if parsed.json:
        print(as_json({"format": 1, "tasks": [_record(task) for task in tasks], "families": list(TASKS.families)}))
        return 0
    print(f"{'task':24} {'observed':>8} {'actions':>8} {'step (s)':>9} {'episode':>8} {'budget':>12}  {'engine':8} {'in paper'}")
    for task in tasks:
        mark = "yes" if task.in_paper else ""
        sizes = f"{task.observation_size:>8} {task.action_size:>8} {task.control_timestep:>9g} {task.episode_steps:>8}"
        print(f"{task.name:24} {sizes} {task.budget:>12,}  {task.engine:8} {mark}".rstrip())
    print()
    for family in TASKS.families.values():
        print(family.description)
    print("Tasks of your own: --tasks FILE, with a Python file that registers them (docs/own_world.md).")
    return 0


def _record(task: Task) -> dict[str, Any]:
    return {
        "name": task.name, "observation": [{"name": name, "size": size} for name, size in task.observation], "action_size": task.action_size,
        "control_timestep": task.control_timestep, "episode_steps": task.episode_steps, "budget": task.budget, "engine": task.engine,
        "in_paper": task.in_paper,
    }  # fmt: skip
