"""``costate tasks``: list all tasks with their sizes and training budgets, or show one in detail."""

import dataclasses
import math
import textwrap
from typing import Annotated, Any

import tyro

from costate.cli.arguments import read_arguments
from costate.cli.documents import as_json
from costate.envs.sensors import VELOCITY, shows_velocity
from costate.envs.tasks import TASKS, Task
from costate.experiments.known_returns import KnownReturns, known_returns
from costate.learners import LEARNERS

WIDTH, COLUMN = 100, 14
# The paper's blackout probability in training, at which best possible returns are shown.
DROPOUT = 0.5


@dataclasses.dataclass(frozen=True)
class TasksArguments:
    """List the tasks with their sizes and training budgets.

    With a task: show its sensors, its engine, and the best known returns.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = ""
    """A task to show in detail."""
    json: bool = False
    """Print the list, or the task, as one JSON document."""


ARGUMENTS = TasksArguments


def run(arguments: list[str]) -> int:
    """List the tasks with their sizes and training budgets."""
    parsed = read_arguments("tasks", TasksArguments, arguments)
    if parsed.task:
        task, known = TASKS[parsed.task], known_returns(parsed.task)
        print(
            as_json({"format": 1, "task": _record(task) | _details(task, known)})
            if parsed.json
            else sheet(task, known)
        )
        return 0
    tasks = sorted(TASKS, key=lambda task: (not task.in_paper, task.engine, task.name))
    if parsed.json:
        print(
            as_json(
                {"format": 1, "tasks": [_record(task) for task in tasks], "families": list(TASKS.families)}
            )
        )
        return 0
    print(
        f"{'task':24} {'observed':>8} {'actions':>8} {'step (s)':>9} {'episode':>8} {'budget':>12}  "
        f"{'engine':8} {'in paper'}"
    )
    for task in tasks:
        mark = "yes" if task.in_paper else ""
        step = _seconds(task.control_timestep)
        sizes = f"{task.observation_size:>8} {task.action_size:>8} {step:>9} {task.episode_steps:>8}"
        print(f"{task.name:24} {sizes} {task.budget:>12,}  {task.engine:8} {mark}".rstrip())
    print()
    for family in TASKS.families.values():
        print(family.description)
    print("Tasks of your own: --tasks FILE, with a Python file that registers them (docs/own_world.md).")
    print("`costate tasks TASK` shows one, with its sensors and the best known returns.")
    return 0


def sheet(task: Task, known: KnownReturns) -> str:
    """Format the details of one task."""
    groups = ", ".join(f"{name} {size}" for name, size in task.observation)
    rows = [("observed", f"{task.observation_size} numbers: {groups}")]
    velocities = [name for name, _ in task.observation if shows_velocity(name)]
    if velocities and len(velocities) < len(task.observation):
        rows.append(
            (
                "",
                f"--hide {VELOCITY} leaves out {', '.join(velocities)}; --hide also accepts names of groups",
            )
        )
    length = (
        f", {task.episode_steps * task.control_timestep:g} s" if math.isfinite(task.control_timestep) else ""
    )
    rows += [
        ("controls", str(task.action_size)),
        (
            "control step",
            f"{_seconds(task.control_timestep)} s" if math.isfinite(task.control_timestep) else "unknown",
        ),
        ("episode", f"{task.episode_steps} steps{length}"),
        (
            "budget",
            f"{task.budget:,} steps{' in the paper' if task.in_paper else ''}{_other_budgets(task)}",
        ),
        ("engine", task.engine),
    ]
    if task.aliases:
        rows.append(("also known as", ", ".join(task.aliases)))
    optimum = task.optimum(DROPOUT)
    if optimum is not None:
        rows.append(("best possible", f"{optimum.mean_return:.4g} at {DROPOUT:.0%} blackout"))
    rows += _best_returns(known)
    rows.append(("train", f"costate train {task.name}"))
    return "\n".join([task.name, *(line for name, text in rows for line in _row(name, text))])


def _other_budgets(task: Task) -> str:
    """Return the budgets of learners whose budget differs from the task's."""
    budgets = {name: LEARNERS[name]().budget(task) for name in LEARNERS.names()}
    return "".join(
        f", {budget:,} with --algorithm {name}" for name, budget in budgets.items() if budget != task.budget
    )


def _best_returns(known: KnownReturns) -> list[tuple[str, str]]:
    best = known.best_sighted
    if known.half_blind is None and best is None:
        return [("best return", "none on record")]
    rows = []
    if known.half_blind is not None:
        found = known.half_blind
        how = f"`{found.command}`{_after(found.steps)} ({found.source})"
        rows.append(
            ("half blind", f"{found.mean_return:.4g}, the best measured at {DROPOUT:.0%} blackout: {how}")
        )
    if best is not None:
        rows.append(
            (
                "full sight",
                f"{best.mean_return:.4g}, the best published: {best.method}{_after(best.steps)} "
                f"({best.source})",
            )
        )
    return rows


def _after(steps: int | None) -> str:
    return "" if steps is None else f", {steps:,} steps"


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {name:{COLUMN}}",
        subsequent_indent=" " * (COLUMN + 2),
        break_on_hyphens=False,
    )


def _seconds(step: float) -> str:
    """Format a control step in seconds; a dash if the engine does not say how long it is."""
    return f"{step:g}" if math.isfinite(step) else "–"


def _record(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "observation": [{"name": name, "size": size} for name, size in task.observation],
        "action_size": task.action_size,
        "control_timestep": task.control_timestep,
        "episode_steps": task.episode_steps,
        "budget": task.budget,
        "engine": task.engine,
        "in_paper": task.in_paper,
    }


def _details(task: Task, known: KnownReturns) -> dict[str, Any]:
    """Return the entries of a single task that the list does not show."""
    optimum = task.optimum(DROPOUT)
    return {
        "aliases": task.aliases,
        "optimum_half_blind": None if optimum is None else optimum.mean_return,
        "half_blind": None if known.half_blind is None else dataclasses.asdict(known.half_blind),
        "sighted": [dataclasses.asdict(each) for each in known.sighted],
    }
