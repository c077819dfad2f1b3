"""Report section that compares the ``costate align`` results of several runs."""

import base64
import math
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from costate.experiments.collection import Collection
from costate.experiments.figures import PANEL, colour
from costate.experiments.markup import table, text
from costate.runs.pictures import plain
from costate.trained.alignment.comparison import CRITIC, MEMORY, OBSERVATION, SHUFFLED, STATE, UNTRAINED
from costate.trained.alignment.result import FOLDER, read_alignment

KIND = "closed loop"
PICTURES = ("over_time.png", "phase.png")


class Found(NamedTuple):
    """The alignment result of one run."""

    task: str
    variant: str
    document: dict[str, Any]
    path: Any


def aligned(collection: Collection) -> list[Found]:
    """Return the results of all runs that have one, in the order of the report."""
    results = [(entry, read_alignment(entry.run.path)) for entry in collection.entries]
    return [
        Found(entry.config.task, entry.variant, document, entry.run.path)
        for entry, document in results
        if document is not None
    ]


def measures_of(document: dict[str, Any]) -> dict[str, float]:
    """Return the numbers that the report shows, by label."""
    r2 = {name: each["probe_r2"] for name, each in document["likeness"][KIND].items()}
    numbers = {
        "cos(h, critic's λ̂)": document["critic_cosine"][MEMORY],
        "… h at other times": document["critic_cosine"][SHUFFLED],
        "… untrained": document["critic_cosine"][UNTRAINED],
        "cos(implied, −λ)": document["implied_cosine"][KIND][MEMORY],
        "… implied at other times": document["implied_cosine"][KIND][SHUFFLED],
        "R² of λ from memory": r2[MEMORY],
        "… untrained memory": r2[UNTRAINED],
        "… observation": r2[OBSERVATION],
        "… true state": r2[STATE],
        "R² of λ̂ from memory": document["likeness"][CRITIC][MEMORY]["probe_r2"],
        "Hamiltonian gap": document["hamiltonian_gap"][KIND]["policy"],
    }
    best = document["likeness"].get("best, at the estimate")
    return numbers | ({"R² of best λ(x̂) from memory": best[MEMORY]["probe_r2"]} if best else {})


def alignment_figure(collection: Collection) -> Figure:
    """Draw one panel per task: every measure, with its mean over runs as a bar and single runs as points."""
    found = aligned(collection)
    tasks = [task for task in collection.tasks if any(each.task == task for each in found)]
    figure = Figure(figsize=(PANEL[0] * 3.2, (PANEL[1] + 0.9) * len(tasks)), layout="constrained")
    for axes, task in zip(np.atleast_1d(figure.subplots(len(tasks), 1)), tasks, strict=True):
        variants = [
            variant
            for variant in collection.variants
            if any((each.task, each.variant) == (task, variant) for each in found)
        ]
        for place, variant in enumerate(variants):
            rows = [
                measures_of(each.document) for each in found if (each.task, each.variant) == (task, variant)
            ]
            names = list(rows[0])
            at = np.arange(len(names)) + 0.8 * (place + 0.5) / len(variants) - 0.4
            values = np.clip([[row[name] for name in names] for row in rows], -0.5, 1.0)
            axes.bar(
                at,
                values.mean(axis=0),
                0.75 / len(variants),
                color=colour(collection, variant),
                alpha=0.6,
                label=variant,
            )
            axes.scatter(
                np.broadcast_to(at, values.shape), values, s=9, color=colour(collection, variant), zorder=3
            )
        axes.set_xticks(np.arange(len(names)), names, rotation=25, ha="right", fontsize=8)
        axes.set(title=task, ylim=(-0.52, 1.02))
        axes.axhline(0.0, color="#666666", linewidth=0.6)
        plain(axes, grid="y")
        axes.legend(frameon=False, fontsize=8)
    return figure


def alignment_table(collection: Collection) -> str:
    """Return a table of means ± standard deviations over runs, and pictures of one run of each variant."""
    found = aligned(collection)
    kinds = dict.fromkeys((each.task, each.variant) for each in found)
    columns = list(dict.fromkeys(name for each in found for name in measures_of(each.document)))
    rows, pictures = [], []
    for task, variant in kinds:
        members = [each for each in found if (each.task, each.variant) == (task, variant)]
        documents = [measures_of(each.document) for each in members]
        rows.append(
            [
                task,
                variant,
                str(len(members)),
                *(_spread([document.get(name, math.nan) for document in documents]) for name in columns),
            ]
        )
        pictures += [_picture(members[0], name) for name in PICTURES]
    return table(["task", "variant", "runs", *columns], rows, left=2) + "".join(pictures)


def _spread(values: list[float]) -> str:
    if any(math.isnan(value) for value in values):
        return "–"
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def _picture(found: Found, name: str) -> str:
    file = found.path / FOLDER / name
    if not file.is_file():
        return ""
    data = base64.b64encode(file.read_bytes()).decode()
    heading, alt = text(f"{found.task}, {found.variant}"), text(f"{found.task} {name}")
    return f'<h3>{heading}</h3><img alt="{alt}" src="data:image/png;base64,{data}">'
