"""Collect the numbers behind a report as plain data, small enough to store."""

import importlib.metadata
from typing import Any

import numpy as np

from costate.config.run_config import config_hash
from costate.experiments.alignment_section import aligned
from costate.experiments.collection import COSTATE, RETURN, Collection, Entry, window_of
from costate.experiments.statistics import Interval, mean_band, standard_deviation
from costate.experiments.tables import (
    Cell,
    Measure,
    cells,
    complete_scores,
    degraded,
    improvements,
    over_tasks,
)


def summarise(collection: Collection, measure: Measure) -> dict[str, Any]:
    """Return the statistics of the page, and for every run its end, its evaluations and a thinned curve."""
    return {
        "format": 1,
        "name": collection.name,
        "description": collection.description,
        "costate": importlib.metadata.version("costate"),
        "measure": measure.words,
        "intervals": "95 %, percentile bootstrap stretched for the number of runs",
        "cells": [
            {
                "task": cell.task,
                "variant": cell.variant,
                "scores": _rounded(cell.scores),
                "failed": cell.failed,
                "unfinished": cell.unfinished,
                "costate_loss": _number(cell.costate, 4),
            }
            | (_statistics(cell) if len(cell.scores) else {})
            for cell in cells(collection, measure)
        ],
        "over_tasks": _over_tasks(complete_scores(collection, measure)),
        "robustness": _robustness(collection),
        "curves": _curve_summaries(collection),
        "runs": [_run_summary(entry) for entry in collection.entries],
        "alignment": [
            {"task": each.task, "variant": each.variant, "found": each.document}
            for each in aligned(collection)
        ],
        "broken": [{"run": name, "reason": reason} for name, reason in collection.broken],
        "incomplete": [{"run": name, "reason": reason} for name, reason in collection.incomplete],
    }


def _statistics(cell: Cell) -> dict[str, Any]:
    return {
        "mean": _number(cell.mean),
        "deviation": _number(cell.deviation),
        "median": _number(cell.median),
        "interquartile_mean": _interval(cell.interquartile),
    }


def _interval(interval: Interval, digits: int = 2) -> dict[str, float | None]:
    """Convert an interval to plain data. Bounds are None if there are too few runs."""
    return {name: _number(getattr(interval, name), digits) for name in ("estimate", "low", "high")}


def _over_tasks(scores: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """Return the statistics over all tasks on which every variant has finished runs."""
    pairs = improvements(scores) if len(scores) > 1 else []
    return {
        "interquartile_mean": {
            variant: None if (found := over_tasks(tasks)) is None else _interval(found)
            for variant, tasks in scores.items()
        },
        "improvement": [
            {"better": better, "worse": worse} | _interval(interval, 4) for better, worse, interval in pairs
        ],
    }


def _robustness(collection: Collection) -> list[dict[str, Any]]:
    return [
        {
            "task": each.task,
            "variant": each.variant,
            "dropouts": list(collection.dropouts),
            "means": _rounded(each.means),
            "area": _number(float(each.areas.mean())),
            "area_deviation": _number(float(standard_deviation(each.areas))),
        }
        for each in (degraded(collection) if len(collection.dropouts) > 1 else [])
    ]


def _curve_summaries(collection: Collection) -> list[dict[str, Any]]:
    found = []
    for task in collection.tasks:
        for variant in collection.variants:
            for metric in (RETURN, COSTATE):
                curves = [
                    curve
                    for entry in collection.cell(task, variant)
                    if (curve := entry.curve(metric)) is not None
                ]
                if curves:
                    band = mean_band(curves, window_of(curves))
                    picks = np.unique(np.linspace(0, len(band.steps) - 1, 41).astype(int))
                    record = {
                        "task": task,
                        "variant": variant,
                        "metric": metric,
                        "steps": band.steps[picks].astype(int).tolist(),
                    }
                    spread = band.high - band.centre
                    found.append(
                        record
                        | {"mean": _rounded(band.centre[picks], 3), "deviation": _rounded(spread[picks], 3)}
                    )
    return found


def _run_summary(entry: Entry) -> dict[str, Any]:
    machine = entry.run.read_machine()
    return {
        "hash": config_hash(entry.config),
        "task": entry.config.task,
        "variant": entry.variant,
        "seed": entry.config.seed,
        "env_steps": entry.env_steps,
        "finished": entry.finished,
        "failure": entry.failure,
        "hours": round(entry.hours, 3),
        "training_return": _number(entry.final_training_return),
        "evaluations": [
            {
                "dropout": e.dropout,
                "episodes": len(e.returns),
                "mean": round(e.mean, 2),
                "median": round(e.median, 2),
                "quartiles": _rounded(np.array(e.quartiles)),
            }
            for e in entry.evaluations
        ],
        "versions": machine.get("versions", {}),
        "learner_devices": machine.get("learner_devices"),
    }


def _rounded(values: np.ndarray, digits: int = 2) -> list[float | None]:
    return [_number(float(value), digits) for value in values]


def _number(value: float, digits: int = 2) -> float | None:
    """Round a number for JSON, which has no NaN: that becomes None."""
    return round(value, digits) if np.isfinite(value) else None
