"""``costate tasks``: the tasks with their sizes and training budgets."""

import dataclasses

import tyro

from costate.envs.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class TasksArguments:
    """List the tasks with their sizes and training budgets."""


def run(arguments: list[str]) -> int:
    """List the tasks with their sizes and training budgets."""
    tyro.cli(TasksArguments, prog="costate tasks", args=arguments)
    print(f"{'task':24} {'observed':>8} {'actions':>8} {'step (s)':>9} {'episode':>8} {'budget':>12}  {'engine':8} {'in paper'}")
    for task in sorted(TASKS, key=lambda task: (not task.in_paper, task.engine, task.name)):
        mark = "yes" if task.in_paper else ""
        sizes = f"{task.observation_size:>8} {task.action_size:>8} {task.control_timestep:>9g} {task.episode_steps:>8}"
        print(f"{task.name:24} {sizes} {task.budget:>12,}  {task.engine:8} {mark}".rstrip())
    print()
    for family in TASKS.families.values():
        print(family.description)
    print("Tasks of your own: --tasks FILE, with a Python file that registers them (docs/own_world.md).")
    return 0
