"""Measure how much memory improves the return on a task.

Policies that differ only in their memory and sensors are trained with one budget and compared in one table.
The share of the loss through blindness that a memory regains is the task's memory improvability (Tao et al.
2025, "Benchmarking Partial Observability in Reinforcement Learning with a Suite of Memory-Improvable
Domains").
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
"""The two reference variants: one without memory, and one that sees everything."""


@dataclasses.dataclass(frozen=True)
class VariantResult:
    """Result of one variant on one task."""

    cell: Cell
    share: Interval | None
    """Share of the distance from the memoryless policy to the one that sees everything.

    None if unknown, and for these two.
    """


def memory_spec(
    tasks: Sequence[str],
    algorithm: str,
    seeds: int,
    steps: int | None,
    sensors: dict[str, Any],
    frames: int,
    episodes: int,
) -> SweepSpec:
    """Return the five variants as a sweep. All but the one that sees everything get these ``sensors``."""
    for task in tasks:
        _check_memory_can_help(task, with_overrides(preset("gru", task), {"sensors": sensors}).sensors)
    plain, aligned = LEARNERS[algorithm].plain_preset(), LEARNERS[algorithm].usual_preset()
    given = (
        {"sensors": {name: value for name, value in sensors.items() if value is not None}} if sensors else {}
    )
    blind = {"preset": plain, "policy": {"core": {"name": "memoryless"}}}
    stacked = {"preset": plain, "policy": {"core": {"name": "frame-stack", "frames": frames}}}
    table = {
        "description": f"The effect of memory: none, {frames} frames, a recurrent core with and without the "
        "co-state loss, full sight.",
        "tasks": list(tasks),
        "seeds": seeds,
        **({} if steps is None else {"steps": steps}),
        "variants": {
            BLIND: blind | given,
            "frame stack": stacked | given,
            "recurrent": {"preset": plain} | given,
            # A learner may have no co-state loss.
            **({"recurrent, co-state": {"preset": aligned} | given} if aligned != plain else {}),
            # It has a recurrent core too, though it needs none. Otherwise it would differ not only in what it
            # sees, but also in how fast it learns.
            SIGHTED: {"preset": plain, "sensors": {"dropout": 0.0}},
        },
        "evaluation": {"episodes": episodes, "dropouts": sorted({0.0, float(sensors.get("dropout", 0.5))})},
    }
    return spec_of(table, _name(tasks), json.dumps(table, indent=1))


def _name(tasks: Sequence[str]) -> str:
    """Return the name of the sweep over some tasks, which is also its folder.

    A slash in a Gymnasium id is replaced, and a name that is too long is shortened to a hash.
    """
    name = f"memory-{'-'.join(tasks)}".replace("/", "-")
    if folder_name_problem(name) is None:
        return name
    return f"memory-{len(tasks)}-tasks-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _check_memory_can_help(task: str, sensors: SensorConfig) -> None:
    if sensors.dropout > 0.0 or sensors.other_faults:
        return
    why = (
        "so memory cannot help on"
        if TASKS[task].observes_state
        else "so the policy with full sight would see no more than the others on"
    )
    raise ConfigError(
        f"No sensor fault is set, {why} {task}. Give a fault, for example --sensors dropout=0.5."
    )


def results_of(collection: Collection) -> list[VariantResult]:
    """Return the result of every variant on every task, relative to the two reference variants."""
    found = cells(collection, choose_measure(collection))
    by_name = {(cell.task, cell.variant): cell for cell in found}
    results = []
    for cell in found:
        groups = [
            cell.scores,
            *(end.scores for name in (BLIND, SIGHTED) if (end := by_name.get((cell.task, name))) is not None),
        ]
        between = cell.variant not in (BLIND, SIGHTED) and len(groups) == 3 and all(map(len, groups))
        results.append(VariantResult(cell, share_of_distance(*groups) if between else None))
    return results


def table(results: Sequence[VariantResult]) -> str:
    """Format one line per task and variant."""
    lines = [
        f"{'task':18} {'policy':22} {'seeds':>5} {'mean':>8} {'deviation':>9}  share of loss by blindness"
    ]
    for result in results:
        cell = result.cell
        if not len(cell.scores):
            lines.append(f"{cell.task:18} {cell.variant:22} {0:>5} unfinished")
            continue
        share = "" if result.share is None else _percent(result.share)
        spread = f"{cell.deviation:9.1f}" if len(cell.scores) > 1 else f"{'':9}"
        line = f"{cell.task:18} {cell.variant:22} {len(cell.scores):>5} {cell.mean:8.1f} {spread}  {share}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def notes(algorithm: str, tasks: Sequence[str]) -> list[str]:
    """Return caveats about the table."""
    partly = [task for task in tasks if not TASKS[task].observes_state]
    found = []
    learner = LEARNERS[algorithm]
    if learner.actor_reads_control:
        found.append(
            f"{BLIND}: still reads its own last control, like every actor of {learner.label}, and through "
            "it a little of earlier observations. So memory may help a little more than the shares say."
        )
    if partly:
        found.append(
            f"{SIGHTED}: its sensors never fail, but on {', '.join(partly)} they do not show the whole "
            "state, so even this policy does not see everything."
        )
    return found


def _percent(share: Interval) -> str:
    bounds = f" ({share.low:.0%} to {share.high:.0%})" if np.isfinite(share.low) else ""
    return f"{share.estimate:.0%} regained{bounds}" if np.isfinite(share.estimate) else "no loss"


def to_json(results: Sequence[VariantResult]) -> list[dict[str, Any]]:
    return [
        {
            "task": result.cell.task,
            "variant": result.cell.variant,
            "scores": result.cell.scores.tolist(),
            "mean": result.cell.mean if len(result.cell.scores) else None,
            "share": None if result.share is None else _finite_or_none(result.share.estimate),
            "share_interval": None
            if result.share is None
            else [_finite_or_none(result.share.low), _finite_or_none(result.share.high)],
        }
        for result in results
    ]


def _finite_or_none(value: float) -> float | None:
    """Replace NaN and infinity, which JSON lacks, by None."""
    return value if np.isfinite(value) else None
