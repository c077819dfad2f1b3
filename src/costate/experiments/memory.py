"""What memory is worth on a task: policies that differ in nothing but what they remember and see, with one budget, in one table.

How much of what blindness costs a memory gives back is the task's memory improvability (Tao et al. 2025, "Benchmarking Partial Observability in
Reinforcement Learning with a Suite of Memory-Improvable Domains").
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from costate._base.checks import folder_name_problem
from costate._base.errors import ConfigError
from costate.config.presets import preset
from costate.config.run_config import with_overrides
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import TASKS
from costate.experiments.collection import Collection
from costate.experiments.spec import SweepSpec, spec_of
from costate.experiments.statistics import Interval, share_of_distance
from costate.experiments.tables import Cell, cells, choose_measure
from costate.learners import LEARNERS

BLIND, SIGHTED = "memoryless", "oracle"
"""The variants between which the others are expected: one without memory, and one that sees everything."""


@dataclasses.dataclass(frozen=True)
class Worth:
    """What one variant reaches on one task."""

    cell: Cell
    share: Interval | None
    """Of the distance from the memoryless policy to the one that sees everything; None where that is not known, and for those two themselves."""


def memory_spec(
    tasks: Sequence[str],
    algorithm: str,
    seeds: int,
    steps: int | None,
    sensors: dict[str, Any],
    frames: int,
    episodes: int,
) -> SweepSpec:
    """The five variants as a sweep. All but the last see through ``sensors``; that one sees everything."""
    for task in tasks:
        _check_worth_remembering(task, with_overrides(preset("gru", task), {"sensors": sensors}).sensors)
    plain, aligned = LEARNERS[algorithm].plain_preset(), LEARNERS[algorithm].usual_preset()
    given = (
        {"sensors": {name: value for name, value in sensors.items() if value is not None}} if sensors else {}
    )
    blind = {"preset": plain, "policy": {"core": {"name": "memoryless"}}}
    stacked = {"preset": plain, "policy": {"core": {"name": "frame-stack", "frames": frames}}}
    table = {
        "description": f"What memory is worth: none, {frames} frames, a recurrent memory with and without the co-state loss, full sight.",
        "tasks": list(tasks),
        "seeds": seeds,
        **({} if steps is None else {"steps": steps}),
        "variants": {
            BLIND: blind | given,
            "frame stack": stacked | given,
            "recurrent": {"preset": plain} | given,
            "recurrent, co-state": {"preset": aligned} | given,
            # With the same memory, though it has no need of one: without, it would differ in how fast it learns, and not only in what it sees.
            SIGHTED: {"preset": plain, "sensors": {"dropout": 0.0}},
        },
        "evaluation": {"episodes": episodes, "dropouts": sorted({0.0, float(sensors.get("dropout", 0.5))})},
    }
    return spec_of(table, _name(tasks), json.dumps(table, indent=1))


def _name(tasks: Sequence[str]) -> str:
    """Name and folder of the sweep over some tasks; those of Gymnasium may have a namespace with a slash, and many make it too long."""
    name = f"memory-{'-'.join(tasks)}".replace("/", "-")
    if folder_name_problem(name) is None:
        return name
    return f"memory-{len(tasks)}-tasks-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _check_worth_remembering(task: str, sensors: SensorConfig) -> None:
    if sensors.dropout > 0.0 or sensors.other_faults:
        return
    why = (
        "so there is nothing that memory could be worth on"
        if TASKS[task].observes_state
        else "so that the oracle would see no more than all others on"
    )
    raise ConfigError(
        f"The sensors never fail, {why} {task}. Give a fault, for example --sensors dropout=0.5."
    )


def worth_of(collection: Collection) -> list[Worth]:
    """What every variant reaches on every task, beside the two between which it lies."""
    found = cells(collection, choose_measure(collection))
    by_name = {(cell.task, cell.variant): cell for cell in found}
    worths = []
    for cell in found:
        groups = [
            cell.scores,
            *(end.scores for name in (BLIND, SIGHTED) if (end := by_name.get((cell.task, name))) is not None),
        ]
        between = cell.variant not in (BLIND, SIGHTED) and len(groups) == 3 and all(map(len, groups))
        worths.append(Worth(cell, share_of_distance(*groups) if between else None))
    return worths


def table(worths: Sequence[Worth]) -> str:
    """One line for each task and variant."""
    lines = [f"{'task':18} {'policy':22} {'seeds':>5} {'mean':>8} {'deviation':>9}  of what blindness costs"]
    for worth in worths:
        cell = worth.cell
        if not len(cell.scores):
            lines.append(f"{cell.task:18} {cell.variant:22} {0:>5} unfinished")
            continue
        share = "" if worth.share is None else _percent(worth.share)
        spread = f"{cell.deviation:9.1f}" if len(cell.scores) > 1 else f"{'':9}"
        lines.append(
            f"{cell.task:18} {cell.variant:22} {len(cell.scores):>5} {cell.mean:8.1f} {spread}  {share}".rstrip()
        )
    return "\n".join(lines)


def notes(algorithm: str, tasks: Sequence[str]) -> list[str]:
    """What to know when reading the table."""
    partly = [task for task in tasks if not TASKS[task].observes_state]
    found = []
    learner = LEARNERS[algorithm]
    if learner.actor_reads_control:
        found.append(
            f"{BLIND}: still reads its own last control, as every actor of {learner.label} does, and through it a little of what was seen before. "
            f"What memory is worth may be a little more than the shares say."
        )
    if partly:
        found.append(
            f"{SIGHTED}: its sensors never fail, but on {', '.join(partly)} they do not show the whole state either, so that not even it sees "
            f"everything."
        )
    return found


def _percent(share: Interval) -> str:
    bounds = f" ({share.low:.0%} to {share.high:.0%})" if np.isfinite(share.low) else ""
    return f"{share.estimate:.0%} regained{bounds}" if np.isfinite(share.estimate) else "it cost nothing"


def to_json(worths: Sequence[Worth]) -> list[dict[str, Any]]:
    return [
        {
            "task": worth.cell.task,
            "variant": worth.cell.variant,
            "scores": worth.cell.scores.tolist(),
            "mean": worth.cell.mean if len(worth.cell.scores) else None,
            "share": None if worth.share is None else _known(worth.share.estimate),
            "share_interval": None
            if worth.share is None
            else [_known(worth.share.low), _known(worth.share.high)],
        }
        for worth in worths
    ]


def _known(value: float) -> float | None:
    """JSON has no word for what is not a number."""
    return value if np.isfinite(value) else None
