"""Draw the figures of a report, each in one function, from data that has been read already."""

import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from costate.experiments.collection import COSTATE, RETURN, SPREAD, Collection, window_of
from costate.experiments.statistics import (
    FEWEST,
    Band,
    Curve,
    interquartile_band,
    mean_band,
    performance_profile,
    profile_band,
    range_band,
)
from costate.experiments.tables import means_at
from costate.runs.pictures import from_zero, plain

# Distinguishable with any kind of colour vision (Paul Tol's "bright" scheme).
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#222222")
PANEL = (3.6, 2.7)
# Width of the legend's text in letters per inch, and the letters that an entry's line and gaps take.
LETTERS_PER_INCH, LETTERS_PER_LINE = 13.0, 8
COLUMNS = 4


def colour(collection: Collection, variant: str) -> str:
    return COLOURS[collection.variants.index(variant) % len(COLOURS)]


def learning_curves(collection: Collection) -> Figure:
    """Draw the paper's Figure 2: mean ± one standard deviation over seeds, each smoothed over 30 points."""
    return _by_task(
        collection, lambda axes, task: _curves(axes, collection, task, RETURN, _paper_band), "episode return"
    )


def interquartile_curves(collection: Collection) -> Figure:
    """Draw learning curves as interquartile means with bootstrap intervals.

    A single lucky or failed seed does not move them. With too few runs for intervals, the range of the runs
    is drawn.
    """
    return _by_task(
        collection, lambda axes, task: _curves(axes, collection, task, RETURN, _robust_band), "episode return"
    )


def costate_curves(collection: Collection) -> Figure:
    """Draw the co-state loss, the distance of hidden states from the co-state target, during training."""
    return _by_task(
        collection, lambda axes, task: _curves(axes, collection, task, COSTATE, _paper_band), "1 − cos(h, λ̂)"
    )


def spread_curves(collection: Collection) -> Figure:
    """Draw the spread over an ensemble's hypotheses during training."""
    measured = dataclasses.replace(
        collection, entries=tuple(entry for entry in collection.entries if entry.curve(SPREAD) is not None)
    )
    # Only runs with an ensemble, in the colours that they have in all figures.
    return _by_task(
        measured,
        lambda axes, task: _curves(axes, collection, task, SPREAD, _paper_band),
        "spread of λ̂ over hypotheses",
        collection,
    )


def ablation(collection: Collection, task: str, in_distribution: float, beyond: float) -> Figure:
    """Draw the four panels of the paper's Figure 3 for one task."""
    figure = Figure(figsize=(15.0, 3.4), layout="constrained")
    panels = figure.subplots(1, 4, width_ratios=(1.2, 1.2, 1.0, 1.0))
    _curves(panels[0], collection, task, RETURN, _paper_band)
    panels[0].set(title="return in training", ylabel="episode return")
    _curves(panels[1], collection, task, COSTATE, _paper_band)
    panels[1].set(title="co-state loss", ylabel="1 − cos(h, λ̂)")
    for axes, dropout, title in (
        (panels[2], in_distribution, "in distribution"),
        (panels[3], beyond, "out of distribution"),
    ):
        boxes(axes, collection, task, dropout)
        axes.set(title=f"{title}: {dropout:.0%} blackout", ylabel="episode return")
    lows, tops = zip(*(axes.get_ylim() for axes in panels[2:]), strict=True)
    for axes in panels[2:]:
        axes.set_ylim(min(lows), max(tops))
    _legend(figure, collection, [task], collection)
    figure.suptitle(task)
    return figure


def box_plots(collection: Collection, dropout: float) -> Figure:
    """Draw the returns of all evaluation episodes of all seeds, one panel per task."""
    return _by_task(collection, lambda axes, task: boxes(axes, collection, task, dropout), "episode return")


def robustness_curves(collection: Collection) -> Figure:
    """Draw mean return over blackout probability. The band is one standard deviation over seeds."""

    def draw(axes: Any, task: str) -> None:
        for variant in collection.variants:
            grid = np.array(collection.dropouts)
            curves = [
                Curve(grid, means_at(entry, collection.dropouts))
                for entry in collection.evaluated(task, variant)
            ]
            if curves:
                _draw_band(axes, mean_band(curves), colour(collection, variant), marker="o")
        axes.set_xlabel("blackout probability")
        from_zero(axes)

    return _by_task(collection, draw, "episode return")


def profiles(collection: Collection, scores: dict[str, list[np.ndarray]]) -> Figure:
    """Draw the share of runs above each return, over all tasks, with bootstrap bands. Higher is better."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    every = np.concatenate([task for tasks in scores.values() for task in tasks])
    lowest, highest = min(0.0, float(every.min())), float(every.max())
    margin = 0.02 * (highest - lowest) or 1.0
    thresholds = np.linspace(lowest - margin if lowest < 0.0 else 0.0, highest + margin, 201)
    for variant, tasks in scores.items():
        low, high = profile_band(tasks, thresholds)
        axes.plot(
            thresholds,
            performance_profile(tasks, thresholds),
            color=colour(collection, variant),
            label=variant,
        )
        axes.fill_between(thresholds, low, high, color=colour(collection, variant), alpha=0.15, linewidth=0.0)
    axes.set(xlabel="return τ", ylabel="share of runs above τ", ylim=(0.0, 1.02))
    _tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def boxes(axes: Any, collection: Collection, task: str, dropout: float) -> None:
    """Draw one box per variant: quartiles, median in white, whiskers of 1.5 interquartile ranges."""
    shown = []
    for variant in collection.variants:
        found = [
            evaluation
            for entry in collection.finished(task, variant)
            if (evaluation := entry.evaluation(dropout)) is not None
        ]
        if found:
            shown.append((variant, np.concatenate([evaluation.returns for evaluation in found])))
    if not shown:
        axes.text(
            0.5, 0.5, "not evaluated", ha="center", va="center", transform=axes.transAxes, color="#888888"
        )
        axes.set(xticks=[], yticks=[])
        return
    drawn = axes.boxplot(
        [returns for _, returns in shown],
        widths=0.6,
        patch_artist=True,
        medianprops={"color": "white", "linewidth": 1.6},
        flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": "#999999"},
    )
    for patch, (variant, _) in zip(drawn["boxes"], shown, strict=True):
        patch.set(facecolor=colour(collection, variant), edgecolor=colour(collection, variant))
    axes.set_xticks([])
    from_zero(axes)
    _tidy(axes)


def to_svg(figure: Figure) -> str:
    """Convert a figure to SVG. Text stays text, so that a page with many figures is small and searchable."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "costate"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _by_task(
    collection: Collection, draw: Callable[[Any, str], None], label: str, whole: Collection | None = None
) -> Figure:
    """Draw a grid with one panel per task and a common legend.

    If the collection is part of a ``whole``, variants have the colours of the whole.
    """
    count = len(collection.tasks)
    columns = min(COLUMNS, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(PANEL[0] * columns, 5.0), PANEL[1] * rows + 0.5), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axes, task in zip(panels, collection.tasks, strict=False):
        draw(axes, task)
        axes.set_title(task, fontsize=10)
        _tidy(axes)
    for axes in panels[count:]:
        axes.set_visible(False)
    for axes in panels[:count:columns]:
        axes.set_ylabel(label)
    _legend(figure, collection, collection.tasks, whole or collection)
    return figure


def _legend(figure: Figure, collection: Collection, tasks: Sequence[str], whole: Collection) -> None:
    from matplotlib.lines import Line2D

    shown = [
        variant for variant in collection.variants if any(collection.cell(task, variant) for task in tasks)
    ]
    seeds = {variant: max(len(collection.cell(task, variant)) for task in tasks) for variant in shown}
    lines = [Line2D([], [], color=colour(whole, variant), linewidth=3) for variant in shown]
    labels = [f"{variant} ({seeds[variant]} seed{'s' if seeds[variant] > 1 else ''})" for variant in shown]
    # As many legend entries in a row as fit into the width of the figure.
    fitting = (
        int(figure.get_figwidth() * LETTERS_PER_INCH // (max(map(len, labels)) + LETTERS_PER_LINE))
        if labels
        else 1
    )
    figure.legend(
        lines,
        labels,
        loc="outside lower center",
        ncols=max(1, min(4, len(shown), fitting)),
        frameon=False,
        fontsize=9,
    )


def _curves(
    axes: Any, collection: Collection, task: str, metric: str, band: Callable[[Sequence[Curve]], Band]
) -> None:
    for variant in collection.variants:
        curves = [
            curve for entry in collection.cell(task, variant) if (curve := entry.curve(metric)) is not None
        ]
        if curves:
            _draw_band(axes, band(curves), colour(collection, variant), scale=1e6)
    axes.set_xlabel("environment steps (millions)")
    from_zero(axes)
    _tidy(axes)


def _paper_band(curves: Sequence[Curve]) -> Band:
    return mean_band(curves, window_of(curves))


def _robust_band(curves: Sequence[Curve]) -> Band:
    window = window_of(curves)
    return (
        interquartile_band(curves, window, resamples=500)
        if len(curves) >= FEWEST
        else range_band(curves, window)
    )


def _draw_band(axes: Any, band: Band, colour: str, scale: float = 1.0, marker: str | None = None) -> None:
    # A line of a single point would be invisible.
    marker = "o" if len(band.steps) == 1 else marker
    axes.plot(band.steps / scale, band.centre, color=colour, linewidth=1.6, marker=marker, markersize=3.5)
    axes.fill_between(band.steps / scale, band.low, band.high, color=colour, alpha=0.18, linewidth=0.0)


def _tidy(axes: Any) -> None:
    plain(axes)
    if len(axes.get_xticks()):
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.tick_params(labelsize=8)
