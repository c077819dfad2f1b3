"""Figures of a comparison.

They show co-states over time beside their reconstruction from memory, the memory projected on co-states, and
bars of all measures beside those of their controls.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from costate.runs.pictures import as_png, plain
from costate.trained.alignment.comparison import (
    CRITIC,
    MEMORY,
    OBSERVATION,
    SHUFFLED,
    STATE,
    UNTRAINED,
    Likeness,
)
from costate.trained.alignment.knockout import Knockout
from costate.trained.alignment.measures import Rows, fit_probe, r_squared, scaling_of
from costate.trained.alignment.result import Alignment

TRUTH, PREDICTION = "#222222", "#4477aa"
BARS = {
    MEMORY: "#4477aa",
    UNTRAINED: "#ccbb44",
    SHUFFLED: "#bbbbbb",
    OBSERVATION: "#ee6677",
    STATE: "#228833",
}
SHOWN = 4
"""Number of components of the co-state that are drawn: those that the probe predicts best."""
KIND = "closed loop"


def draw(task: str, found: Alignment) -> dict[str, bytes]:
    """Draw all figures; return their PNG files by name."""
    figures = {
        "over_time.png": over_time(task, found),
        "phase.png": phase(task, found),
        "likeness.png": likeness_bars(task, found),
    }
    if found.knockout is not None:
        figures["knockout.png"] = knockout(task, found.knockout)
    return {name: as_png(figure) for name, figure in figures.items()}


def _reconstruction(found: Alignment) -> tuple[Rows, Rows]:
    """Return the true gradients of the last, held-out episode, and the probe's prediction from memory."""
    fitting, tested = found.moments[: -found.comparison.held_out], found.moments[-1]
    source, target = (
        np.concatenate([pick(each) for each in fitting])
        for pick in (lambda e: e.hiddens, lambda e: e.gradients[KIND])
    )
    number = np.repeat(np.arange(len(fitting)), [len(each.hiddens) for each in fitting])
    return tested.gradients[KIND], fit_probe(source, target, number).predict(tested.hiddens)


def over_time(task: str, found: Alignment) -> Figure:
    """Plot gradients of the future reward and their prediction from memory over time, blackouts shaded."""
    truth, prediction = _reconstruction(found)
    names, seen, times = found.moments[-1].names, found.moments[-1].seen, found.moments[-1].times
    scores = [
        r_squared(truth[:, [i]], prediction[:, [i]], truth[:, [i]].mean(axis=0))
        for i in range(truth.shape[1])
    ]
    chosen = sorted(np.argsort(np.nan_to_num(scores, nan=-np.inf))[::-1][:SHOWN])
    figure = Figure(figsize=(10.0, 1.9 * len(chosen) + 0.6), layout="constrained")
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    for axes, i in zip(panels, chosen, strict=True):
        _shade_blackouts(axes, times[~seen])
        axes.plot(times, truth[:, i], color=TRUTH, linewidth=1.4, label="true")
        axes.plot(times, prediction[:, i], color=PREDICTION, linewidth=1.2, label="predicted from memory")
        axes.set_ylabel(names[i], fontsize=8)
        axes.set_title(f"R² {scores[i]:.2f}", fontsize=8, loc="right")
        plain(axes)
    panels[0].legend(frameon=False, ncols=2, fontsize=8, loc="upper left")
    panels[-1].set_xlabel(
        "step of an episode that nothing was fitted to; blackouts are shaded; the best predicted components"
    )
    figure.suptitle(f"{task}: ∂(future reward)/∂x = −λ, and its prediction from the hidden state")
    return figure


def phase(task: str, found: Alignment) -> Figure:
    """Plot memory against the co-state, both projected on the co-state's main directions."""
    truth, prediction = _reconstruction(found)
    scale = scaling_of(truth)
    x, y = scale.apply(truth), scale.apply(prediction)
    _, _, directions = np.linalg.svd(x, full_matrices=False)
    count = min(2, x.shape[1])
    figure = Figure(figsize=(4.2 * (count + 1), 4.0), layout="constrained")
    panels = figure.subplots(1, count + 1, squeeze=False)[0]
    for axes, direction in zip(panels[:count], directions[:count], strict=True):
        axes.scatter(x @ direction, y @ direction, s=6, c=np.arange(len(x)), cmap="viridis")
        axes.axline((0.0, 0.0), slope=1.0, color="#999999", linewidth=0.8, linestyle="--")
        axes.set(xlabel="−λ, projected", ylabel="memory, projected")
        plain(axes)
    orbit = directions[:2]
    for rows, colour, label in ((x, TRUTH, "−λ"), (y, PREDICTION, "memory")):
        projected = rows @ orbit.T
        panels[-1].plot(
            projected[:, 0], projected[:, -1], color=colour, linewidth=0.9, alpha=0.8, label=label
        )
    panels[-1].set(xlabel="first direction", ylabel="second direction")
    panels[-1].legend(frameon=False, fontsize=8)
    plain(panels[-1])
    figure.suptitle(f"{task}: hidden state projected on the co-state (an episode that nothing was fitted to)")
    return figure


def likeness_bars(task: str, found: Alignment) -> Figure:
    """Plot probe R², CCA and CKA for every kind of co-state, each beside its controls."""
    kinds = list(found.comparison.likeness)
    figure = Figure(figsize=(10.0, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, what, title in zip(
        panels,
        Likeness._fields,
        ("probe R² (unseen episodes)", "canonical correlation", "kernel alignment"),
        strict=True,
    ):
        for place, (name, colour) in enumerate(BARS.items()):
            heights = [getattr(found.comparison.likeness[kind][name], what) for kind in kinds]
            # A failing probe can be arbitrarily bad. Below zero it is worse than predicting the mean.
            shown = np.clip(heights, -0.25, 1.0)
            axes.bar(np.arange(len(kinds)) + 0.16 * (place - 2), shown, 0.15, color=colour, label=name)
        axes.set_xticks(np.arange(len(kinds)), [_kind_name(kind) for kind in kinds], fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.set_ylim(top=1.02)
        axes.axhline(0.0, color="#666666", linewidth=0.6)
        plain(axes)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    figure.suptitle(f"{task}: similarity to a co-state of …")
    return figure


def knockout(task: str, found: Knockout) -> Figure:
    """Plot the return over the period at which the hidden state is erased."""
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    periods = np.array(list(found.means))
    axes.plot(periods, list(found.means.values()), marker="o", color=PREDICTION)
    axes.axhline(found.intact, color=TRUTH, linestyle="--", linewidth=1.0, label="memory left alone")
    axes.legend(frameon=False, fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(periods, [str(period) for period in periods])
    axes.set(
        xlabel="steps between two erasures of the hidden state",
        ylabel="mean return",
        title=f"{task}: return without memory",
    )
    plain(axes)
    return figure


def _kind_name(kind: str) -> str:
    return "critic's ∂V/∂ỹ" if kind == CRITIC else f"{kind} λ"


def _shade_blackouts(axes: Any, dark: np.ndarray) -> None:
    for step in dark:
        axes.axvspan(step - 0.5, step + 0.5, color="#000000", alpha=0.06, linewidth=0)
