"""``costate report``: show a folder of runs as one page that works offline.

Every figure is also written as PNG and SVG, and the numbers as JSON.
"""

import base64
import contextlib
import dataclasses
import functools
import importlib.metadata
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costate._base.errors import CostateError
from costate._base.files import check_of_costate, explained_errors, output_folder, write_atomically
from costate._base.progress import Tell, nobody
from costate._base.rounding import rounded
from costate.config.run_config import config_hash, to_json
from costate.experiments import figures
from costate.experiments.alignment_section import aligned, alignment_figure, alignment_table
from costate.experiments.collection import COSTATE, RETURN, SPREAD, Collection, read_collection
from costate.experiments.markup import table, text
from costate.experiments.statistics import ENOUGH, FEWEST, standard_deviation
from costate.experiments.summary import summarise
from costate.experiments.tables import (
    Cell,
    Measure,
    cells,
    choose_measure,
    complete_scores,
    degraded,
    improvements,
    over_tasks,
)
from costate.runs.pictures import as_png
from costate.trained.random_controls import EPISODES, RandomReturn, random_return

FOLDER = "report"
PAGE, SUMMARY = "index.html", "summary.json"
# Stands in every page and every summary that costate writes.
MARKS = {PAGE: "costate report</title>", SUMMARY: '"costate":'}
# Blackout probability of the paper's test without retraining.
BEYOND = 0.75
# Measured by `benchmarks/interval_coverage.py`; docs/experiments.md has the table.
COVERAGE = (
    "Intervals of the interquartile mean from fewer than ten seeds contained the true value in 94 to 98 % of "
    "simulated experiments; for a single task on which some seeds succeed and the others fail, in 83 to 88 %."
)


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the page: a title, a note, and optionally a figure or HTML."""

    title: str
    note: str
    figure: Any = None
    name: str = ""
    body: str = ""

    @functools.cached_property
    def svg(self) -> str:
        return figures.to_svg(self.figure)


def write_report(folder: pathlib.Path, tell: Tell = nobody) -> tuple[pathlib.Path, Collection]:
    """Read the runs below ``folder`` and write the page; returns its path and what it was made of."""
    # Before anything is read or played.
    for name, mark in MARKS.items():
        check_of_costate(folder / FOLDER / name, mark)
    tell(None, "reading the runs")
    collection = read_collection(folder)
    measure = choose_measure(collection)
    tell(None, "running random controls")
    random_returns = random_control_returns(collection.tasks)
    tell(None, "computing intervals and figures")
    sections = make_sections(collection, measure, random_returns)
    target = output_folder(folder / FOLDER)
    before = _figures_of(target)
    for number, section in enumerate(sections):
        tell(number / len(sections), f"drawing {section.title}")
        if section.figure is not None:
            write_atomically(target / f"{section.name}.svg", section.svg.encode())
            write_atomically(target / f"{section.name}.png", as_png(section.figure))
    drawn = [section.name for section in sections if section.figure is not None]
    random_controls = {task: found._asdict() for task, found in random_returns.items()}
    summary = summarise(collection, measure) | {"random_controls": random_controls, "figures": drawn}
    write_atomically(target / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False).encode())
    write_atomically(target / PAGE, page(collection, measure, sections).encode())
    with explained_errors(target):
        for name in before - set(drawn):
            for ending in (".svg", ".png"):
                (target / f"{name}{ending}").unlink(missing_ok=True)
    return target / PAGE, collection


def _figures_of(target: pathlib.Path) -> set[str]:
    """Return the names of the figures of an earlier report in this folder; none if they cannot be read."""
    try:
        names = json.loads((target / SUMMARY).read_text())["figures"]
        return {name for name in names if isinstance(name, str) and pathlib.Path(name).name == name}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def random_control_returns(tasks: Sequence[str]) -> dict[str, RandomReturn]:
    """Return the return of random controls on each task.

    Tasks are left out if their engine is not installed or their controls are unbounded.
    """
    found: dict[str, RandomReturn] = {}
    for task in tasks:
        with contextlib.suppress(CostateError):
            found[task] = random_return(task)
    return found


def make_sections(
    collection: Collection, measure: Measure, random_returns: Mapping[str, RandomReturn]
) -> list[Section]:
    """Return the sections of the page in reading order. Figures without data are left out."""
    sections = [
        Section(
            "Results by task",
            f"Final score: {measure.words}.",
            body=_task_tables(cells(collection, measure), random_returns),
        )
    ]
    scores = complete_scores(collection, measure)
    if len(scores) > 1:
        title = "Over all tasks" if len(next(iter(scores.values()))) > 1 else "Against each other"
        sections.append(Section(title, _aggregate_note(scores), body=_aggregate_table(scores)))
    sections.append(
        Section(
            "Learning curves",
            "Mean ± 1 standard deviation over seeds. Moving average over 30 points (the paper's style), or "
            "over a quarter of a shorter curve.",
            figures.learning_curves(collection),
            "learning_curves",
        )
    )
    sections.append(
        Section(
            "Learning curves, robust",
            f"Interquartile mean over seeds with {_bounds_of_curves(collection)}, smoothed in the same way.",
            figures.interquartile_curves(collection),
            "learning_curves_iqm",
        )
    )
    if any(entry.curve(COSTATE) is not None for entry in collection.entries):
        note = "1 − cos(h, λ̂) in training. Baselines do not train with this loss but measure it."
        sections.append(
            Section("Alignment of the hidden state", note, figures.costate_curves(collection), "costate_loss")
        )
    if any(entry.curve(SPREAD) is not None for entry in collection.entries):
        note = (
            "√((1/m) Σ |λ̂_i − λ̄|²) over the m hypotheses of an ensemble, in training: "
            "the uncertainty about the co-state."
        )
        sections.append(
            Section(
                "Disagreement about the co-state", note, figures.spread_curves(collection), "costate_spread"
            )
        )
    if aligned(collection):
        note = (
            "Results of `costate align`: points are runs, bars their means. "
            "Probes are evaluated on episodes that they were not fitted to."
        )
        sections.append(
            Section(
                "Hidden state against true co-states",
                note,
                alignment_figure(collection),
                "alignment",
                alignment_table(collection),
            )
        )
    sections += _evaluation_sections(collection, measure)
    if scores and sum(len(task) for tasks in scores.values() for task in tasks) > len(scores):
        bands = _which_intervals(scores, "pointwise 95 % bootstrap bands")
        note = f"Share of runs whose final score is above τ, averaged over tasks; {bands}."
        sections.append(
            Section("Performance profile", note, figures.profiles(collection, scores), "profiles")
        )
    return sections


def _which_intervals(scores: dict[str, list[np.ndarray]], what: str) -> str:
    """Say which variants have intervals: those with enough runs on every task."""
    few = [min(map(len, tasks)) < FEWEST for tasks in scores.values()]
    if not any(few):
        return what
    reason = "fewer than four seeds on some task"
    return (
        f"no {what}: all variants have {reason}" if all(few) else f"{what}, except for variants with {reason}"
    )


def _coverage(counts: Sequence[int]) -> str:
    """Return the note on the coverage of intervals from few runs, if there are such intervals."""
    return f" {COVERAGE}" if any(FEWEST <= count < ENOUGH for count in counts) else ""


def _bounds_of_curves(collection: Collection) -> str:
    cells = itertools.product(collection.tasks, collection.variants)
    counts = [sum(entry.curve(RETURN) is not None for entry in collection.cell(*cell)) for cell in cells]
    few, many = any(0 < count < FEWEST for count in counts), any(count >= FEWEST for count in counts)
    intervals, ranges = "95 % bootstrap intervals", "the range of the runs, which are too few for intervals"
    return f"{intervals}, or {ranges}" if few and many else ranges if few else intervals


def _evaluation_sections(collection: Collection, measure: Measure) -> list[Section]:
    sections = []
    trained_at = measure.dropout
    if (
        trained_at in collection.dropouts
        and BEYOND in collection.dropouts
        and trained_at not in (None, BEYOND)
    ):
        for task in collection.tasks:
            note = (
                "Return and co-state loss in training; evaluation episodes at the blackout probability of "
                "training and beyond it, without retraining."
            )
            figure = figures.ablation(collection, task, trained_at, BEYOND)
            sections.append(Section(f"{task}: in and out of distribution", note, figure, f"ablation_{task}"))
    else:
        for dropout in collection.dropouts:
            note = "All evaluation episodes of all seeds; white line: median."
            title, name = f"Evaluation at {dropout:.4g} blackout", f"evaluation_{dropout:g}"
            sections.append(Section(title, note, figures.box_plots(collection, dropout), name))
    if len(collection.dropouts) > 1:
        note = (
            "The same checkpoints under other blackout probabilities, without retraining. Mean over seeds; "
            "the bands in the figure and the ± of the area are one standard deviation. The area under the "
            "curve is divided by the width of the axis."
        )
        sections.append(
            Section(
                "Robustness",
                note,
                figures.robustness_curves(collection),
                "robustness",
                _area_table(collection),
            )
        )
    return sections


def page(collection: Collection, measure: Measure, sections: Sequence[Section]) -> str:
    """Return the page as one HTML file without scripts or external resources."""
    finished = sum(entry.finished for entry in collection.entries)
    steps, hours = (
        sum(entry.env_steps for entry in collection.entries),
        sum(entry.hours for entry in collection.entries),
    )
    spent = f"{hours:,.1f} hours" if hours >= 1.0 else f"{60.0 * hours:.1f} minutes"
    facts = (
        f"{len(collection.entries)} runs, {finished} finished · {steps / 1e6:,.1f} million steps · "
        f"{spent} of training"
    )
    contents = "".join(
        f'<li><a href="#s{i}">{text(section.title)}</a></li>' for i, section in enumerate(sections)
    )
    body = "".join(_section(i, section) for i, section in enumerate(sections))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{text(collection.name)} · {MARKS[PAGE]}'
        f"<style>{STYLE}</style></head><body><main>"
        f"<header><h1>{text(collection.name)}</h1><p>{text(collection.description)}</p>"
        f"<p class=facts>{facts}</p></header>"
        f"{_broken(collection)}{_unfinished(collection)}"
        f"<nav><ul>{contents}<li><a href=#runs>Every run</a></li></ul></nav>{body}"
        f"<section id=runs><h2>Every run</h2>{_runs(collection, measure)}</section>"
        f"<footer>costate {importlib.metadata.version('costate')}</footer></main></body></html>"
    )


STYLE = """
:root{color-scheme:light;--ink:#1d2733;--soft:#5b6775;--line:#dfe4ea;--bad:#b3261e;--accent:#4477aa}
*{box-sizing:border-box}
body{margin:0;background:#f5f7f9;color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 20px 60px}
header h1{margin:0 0 4px;font-size:28px}header p{margin:2px 0}
.facts,.note,footer{color:var(--soft)}
section,nav,.warn{background:#fff;border:1px solid var(--line);border-radius:10px}
section,nav,.warn{padding:16px 20px;margin:16px 0}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:0;padding:0}
a{color:var(--accent)}h2{font-size:19px;margin:0 0 4px}
h3{font-size:15px;margin:18px 0 4px}.note{margin:0 0 10px}
img{max-width:100%;height:auto;display:block;margin:0 auto}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:4px 12px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}td:first-child,th:first-child,.left{text-align:left}
.warn{border-color:var(--bad)}.warn h2{color:var(--bad)}pre{font-size:12px;overflow-x:auto}
details summary{cursor:pointer}code{font-size:12.5px}
"""


def _section(index: int, section: Section) -> str:
    picture = ""
    if section.figure is not None:
        data = base64.b64encode(section.svg.encode()).decode()
        picture = f'<img alt="{text(section.title)}" src="data:image/svg+xml;base64,{data}">'
    head = f"<h2>{text(section.title)}</h2><p class=note>{text(section.note)}</p>"
    return f"<section id=s{index}>{head}{picture}{section.body}</section>"


def _task_tables(found: Sequence[Cell], random_returns: Mapping[str, RandomReturn]) -> str:
    rows = []
    for number, cell in enumerate(found):
        head = [cell.task, cell.variant]
        if len(cell.scores) == 0:
            numbers = ["–"] * 4
        else:
            # Mean and deviation have the same decimals.
            mean, deviation = rounded(cell.mean, cell.deviation, least=1)
            lowest, highest = rounded(cell.scores.min(), cell.scores.max())
            numbers = [
                f"{mean} ± {deviation}" if np.isfinite(cell.deviation) else mean,
                *rounded(cell.median, least=1),
                str(cell.interquartile),
                f"{lowest} … {highest}",
            ]
        seeds = f"{len(cell.scores)}" + (f" (+{cell.unfinished} unfinished)" if cell.unfinished else "")
        alignment = f"{cell.costate:.2f}" if np.isfinite(cell.costate) else "–"
        rows.append([*head, *numbers, seeds, str(cell.failed), alignment])
        last_of_task = number + 1 == len(found) or found[number + 1].task != cell.task
        if last_of_task and cell.task in random_returns:
            rows.append(
                [cell.task, "random controls", *rounded(random_returns[cell.task].mean, least=1), *["–"] * 6]
            )
    columns = [
        "task",
        "variant",
        "mean ± sd",
        "median",
        "interquartile mean [95 %]",
        "range",
        "seeds",
        "failed seeds",
        "co-state loss",
    ]
    note = (
        "A failed seed ended with an error, or below a tenth of the best run on its task; if returns are "
        "negative, below ten times the best. With fewer than four seeds the interquartile mean is the mean, "
        "and there is no interval: there are too few runs to predict others."
    ) + _coverage([len(cell.scores) for cell in found])
    if random_returns:
        note += (
            f" Random controls are uniform within their bounds, over {EPISODES} episodes; "
            "they ignore the sensors."
        )
    return f"{table(columns, rows, left=2)}<p class=note>{note}</p>"


def _aggregate_note(scores: dict[str, list[np.ndarray]]) -> str:
    tasks = len(next(iter(scores.values())))
    intervals = _which_intervals(scores, "95 % stratified bootstrap intervals")
    coverage = _coverage([min(map(len, runs)) for runs in scores.values()])
    which = f"task{'s' if tasks > 1 else ''} on which every variant has finished runs"
    return f"Over the {tasks} {which}; {intervals}.{coverage}"


def _aggregate_table(scores: dict[str, list[np.ndarray]]) -> str:
    rows = [
        [variant, str(over_tasks(tasks) or "–"), ", ".join(str(len(task)) for task in tasks)]
        for variant, tasks in scores.items()
    ]
    pairs = []
    for better, worse, interval in improvements(scores):
        bounds = f" [{interval.low:.2f}, {interval.high:.2f}]" if np.isfinite(interval.low) else " (open)"
        pairs.append([f"{better} better than {worse}", f"{interval.estimate:.2f}{bounds}"])
    aggregate = table(["variant", "interquartile mean of returns", "runs by task"], rows)
    note = (
        "<p class=note>Returns are not normalised; those of dm_control's tasks lie between 0 and 1000. A "
        "probability of 0.5 is a coin toss, and an interval that contains 0.5 leaves the question open. "
        "Without an interval, with fewer than four seeds on some task, the question is open for any "
        "estimate.</p>"
    )
    return (
        f"{aggregate}<h3>Probability of improvement</h3>{table(['comparison', 'probability'], pairs)}{note}"
    )


def _area_table(collection: Collection) -> str:
    rows = []
    for each in degraded(collection):
        area, deviation = rounded(float(each.areas.mean()), float(standard_deviation(each.areas)), least=1)
        spread = f" ± {deviation}" if len(each.areas) > 1 else ""
        rows.append([each.task, each.variant, *rounded(*each.means, least=1), f"{area}{spread}"])
    columns = ["task", "variant", *(f"{dropout:.4g}" for dropout in collection.dropouts), "area under curve"]
    return table(columns, rows, left=2) if rows else ""


def _runs(collection: Collection, measure: Measure) -> str:
    rows = []
    for entry in collection.entries:
        score = measure.score(entry) if entry.finished else float("nan")
        machine = entry.run.read_machine()
        document = {
            "config": to_json(entry.config),
            "machine": {name: value for name, value in machine.items() if name != "cpu_features"},
        }
        listing = f"<pre>{text(json.dumps(document, indent=1))}</pre>"
        detail = f"<details><summary><code>{config_hash(entry.config)}</code></summary>{listing}</details>"
        share = entry.env_steps / entry.config.final_steps
        numbers = [
            f"{entry.env_steps:,}",
            f"{share:.0%}",
            rounded(score, least=1)[0] if np.isfinite(score) else "–",
            f"{entry.hours:.2f}",
        ]
        rows.append([detail, text(entry.config.task), text(entry.variant), str(entry.config.seed), *numbers])
    columns = ["config and versions", "task", "variant", "seed", "steps", "of budget", "final score", "hours"]
    return table(columns, rows, left=3, escaped=True)


def _broken(collection: Collection) -> str:
    boxes = ((collection.broken, "not reported"), (collection.incomplete, "incomplete"))
    return "".join(_warning_box(found, what) for found, what in boxes if found)


def _warning_box(found: Sequence[tuple[str, str]], what: str) -> str:
    items = "".join(f"<li><code>{text(name)}</code>: {text(reason)}</li>" for name, reason in found)
    return f"<div class=warn><h2>{len(found)} {what}</h2><ul>{items}</ul></div>"


def _unfinished(collection: Collection) -> str:
    failed = [entry for entry in collection.entries if entry.failure is not None and not entry.finished]
    items = "".join(f"<li>{text(entry.label)}: {text(entry.failure or '')}</li>" for entry in failed)
    errors = f"<div class=warn><h2>{len(failed)} failed</h2><ul>{items}</ul></div>" if failed else ""
    count = sum(not entry.finished for entry in collection.entries) - len(failed)
    which = f"{count} runs have" if count > 1 else "One run has"
    note = f"{which} not used up the budget: included in the curves, left out of everything else."
    return errors + (f"<div class=warn><h2>Unfinished</h2><p>{note}</p></div>" if count else "")
