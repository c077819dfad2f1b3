"""Plot single runs: return and co-state loss over environment steps, and return over blackout probability."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from costate._base.files import write_atomically
from costate.runs.pictures import as_png, from_zero, plain
from costate.runs.run_directory import Run

RETURN_COLOUR = "#4477aa"
EVALUATED_COLOUR = "#ee6677"
COSTATE_COLOUR = "#228833"


def draw_learning_curve(run: Run, title: str) -> None:
    """Write the run's learning curve beside its metrics, unless no episode has ended yet."""
    rows = run.read_metrics()
    if not any("training/episode_reward" in row for row in rows):
        return
    # Imported here, because it takes as long as building the policy. A Figure needs no screen and no global
    # state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curve(left, rows, "training/episode_reward", RETURN_COLOUR)
    evaluated = [
        (row["env_steps"] / 1e6, row["eval/episode_reward"]) for row in rows if "eval/episode_reward" in row
    ]
    if evaluated:
        left.plot(
            *zip(*evaluated, strict=True),
            "o",
            color=EVALUATED_COLOUR,
            markersize=4,
            label="without exploration noise",
        )
        left.legend(frameon=False)
    left.set(ylabel="episode return", title="return under training blackouts")
    from_zero(left)
    _curve(right, rows, "losses/costate", COSTATE_COLOUR)
    right.set(ylabel="1 − cos(h, λ̂)", title="co-state loss")
    right.set_ylim(0.0, max(1.05, right.get_ylim()[1]))
    figure.suptitle(title)
    write_atomically(run.learning_curve, as_png(figure))


def draw_degradation(setting: str, curves: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> bytes:
    """Plot mean return over a sensor setting, as PNG. Runs of one label share a colour and a legend entry."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    labels = list(dict.fromkeys(label for label, _, _ in curves))
    for label, values, means in curves:
        first = label not in axes.get_legend_handles_labels()[1]
        axes.plot(
            values,
            means,
            marker="o",
            markersize=4,
            color=colormaps["tab10"](labels.index(label) % 10),
            label=label if first else None,
        )
    axes.set(xlabel=setting, ylabel="mean episode return", title="return without retraining")
    from_zero(axes)
    plain(axes)
    axes.legend(frameon=False)
    return as_png(figure)


def _curve(axes: Any, rows: list[dict[str, float]], name: str, colour: str) -> None:
    """Plot one metric, faint, with its moving average on top."""
    known = [(row["env_steps"], row[name]) for row in rows if name in row]
    steps, values = np.array(known, float).reshape(-1, 2).T
    steps = steps / 1e6
    window = max(1, len(values) // 20)
    # At the start the window holds only the points so far, so that the line begins where the data does.
    totals = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    axes.plot(steps, values, color=colour, alpha=0.3, linewidth=1.0)
    axes.plot(steps, (totals[ends] - totals[starts]) / (ends - starts), color=colour, linewidth=1.8)
    axes.set_xlabel("environment steps (millions)")
    plain(axes)
