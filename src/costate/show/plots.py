"""Live plots of the episode and of the policies' internal quantities, and learning curves of the runs."""

import html
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import viser

from costate._base.types import Float
from costate.show.performance import Performance, strongest
from costate.show.player import Moment

COLORS = ("#1f77b4", "#ff7f0e")
ACTION_COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
# More points than pixels would be useless.
POINTS = 300
# Number of co-state components that are shown.
STRONGEST = 6


class Plot(NamedTuple):
    """One quantity over time, with a line for each robot."""

    title: str
    number: Callable[[Moment], float]
    scale: tuple[float, float] | None = None


PLOTS = (
    Plot("cos(h, λ̂): memory and the critic's co-state", lambda moment: moment.cosine, (-1.05, 1.05)),
    Plot("share of sensors that work", lambda moment: moment.seen, (-0.05, 1.05)),
    Plot("reward", lambda moment: moment.reward),
    Plot("return so far", lambda moment: moment.total),
    Plot("value V predicted by the critic", lambda moment: moment.value),
)


class LivePlots:
    """The plots of a performance."""

    def __init__(self, gui: viser.GuiApi, performance: Performance, titles: Sequence[str]) -> None:
        self._performance = performance
        self._bars = [gui.add_html(bars_of(title, [])) for title in titles]
        lines = [_series(title, color) for title, color in zip(titles, COLORS, strict=False)]
        self._plots = [_add(gui, plot.title, lines, plot.scale) for plot in PLOTS]
        self._actions = []
        for i, title in enumerate(titles):
            size = min(len(ACTION_COLORS), len(performance.players[i].robot.actuators.action_low))
            named = [_series(f"u{k}", color) for k, color in zip(range(size), ACTION_COLORS, strict=False)]
            label = "controls" if len(titles) == 1 else f"controls of {title}"
            self._actions.append(_add(gui, label, named, None))
        self._titles = titles

    def update(self) -> None:
        """Draw the past few seconds."""
        histories = [list(history) for history in self._performance.histories]
        if min(map(len, histories)) < 2:
            return
        stride = -(-len(histories[0]) // POINTS)
        thinned = [history[::-1][::stride][::-1] for history in histories]
        time = np.array([moment.time for moment in thinned[0]])
        for plot, handle in zip(PLOTS, self._plots, strict=True):
            handle.data = (
                time,
                *(np.array([plot.number(moment) for moment in history], float) for history in thinned),
            )
        for handle, history in zip(self._actions, thinned, strict=True):
            actions: Float[np.ndarray, "T A"] = np.array([moment.action for moment in history], float)
            handle.data = (time, *actions.T[: len(ACTION_COLORS)])
        for bars, title, history, player in zip(
            self._bars, self._titles, histories, self._performance.players, strict=True
        ):
            bars.content = bars_of(title, strongest(history, player.names, STRONGEST))


def _series(label: str, color: str) -> dict[str, Any]:
    return {"label": label, "stroke": color, "width": 1.5, "points": {"show": False}}


def _add(
    gui: viser.GuiApi, title: str, lines: Sequence[dict[str, Any]], scale: tuple[float, float] | None
) -> Any:
    empty = np.zeros(2)
    scales: dict[str, Any] = {"x": {"time": False}}
    if scale is not None:
        scales["y"] = {"range": scale}
    series: Any = ({"label": "s"}, *lines)
    return gui.add_uplot(
        (np.array([0.0, 1.0]), *(empty for _ in lines)),
        series,
        title=title,
        scales=scales,
        height=110,
        legend={"show": len(lines) > 1},
    )


def bars_of(title: str, components: Sequence[tuple[str, float, float]]) -> str:
    """Return the strongest components of the co-state as a table of bars, the memory's above the critic's."""
    rows = "".join(
        f'<tr><td style="padding-right:.6em;white-space:nowrap">{html.escape(name)}</td>'
        f'<td style="width:100%">{_bar(remembered, COLORS[0])}'
        f"{_bar(expected, '#999')}</td></tr>"
        for name, remembered, expected in components
    )
    return (
        f'<div class="costate-bars" style="font-size:.75em;padding:.3em .8em">'
        f"<b>co-state by sensor: {html.escape(title)}</b><br>"
        f'<span style="color:{COLORS[0]}">memory h</span> and <span style="color:#777">critic λ̂</span>, '
        f"each relative to its largest"
        f'<table style="width:100%;border-collapse:collapse">{rows}</table></div>'
    )


def _bar(share: float, color: str) -> str:
    """Return a bar from the middle to the right if positive, to the left if negative."""
    width = 50.0 * min(1.0, abs(share))
    left = 50.0 if share >= 0.0 else 50.0 - width
    place = f"position:absolute;left:{left:.1f}%;width:{width:.1f}%;height:100%;background:{color}"
    return f'<div style="position:relative;height:.45em"><div style="{place}"></div></div>'


class TrainingPlots:
    """The learning curves of the runs.

    They are images in the text, because the client's plots have no width if they are created in a hidden tab.
    """

    CURVES = (
        ("training/episode_reward", "return in training"),
        ("costate/cosine", "cos(h, λ̂) in training"),
        ("training/sps", "steps per second"),
    )

    def __init__(self, gui: viser.GuiApi, titles: Sequence[str]) -> None:
        self._titles = titles
        self._text = gui.add_html("")

    def update(self, metrics: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Draw what the runs have logged so far."""
        pictures = [
            curve_picture(title, [_curve(rows, name) for rows in metrics]) for name, title in self.CURVES
        ]
        key = "".join(
            f'<span style="color:{color}">■</span> {html.escape(title)} '
            for title, color in zip(self._titles, COLORS, strict=False)
        )
        self._text.content = (
            f'<div class="costate-training" style="font-size:.8em;padding:.3em .8em">'
            f"{key}{''.join(pictures)}</div>"
        )


def _curve(rows: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(float(row["env_steps"]), float(row[name])) for row in rows if name in row]


WIDTH, HEIGHT = 260.0, 110.0


def curve_picture(title: str, curves: Sequence[Sequence[tuple[float, float]]]) -> str:
    """Return curves as SVG, with the range of both axes as text."""
    points = [point for curve in curves for point in curve if np.isfinite(point[1])]
    if len(points) < 2:
        return f"<p><b>{html.escape(title)}</b><br>nothing logged yet</p>"
    (left, bottom), (right, top) = np.min(points, axis=0), np.max(points, axis=0)
    across, up = max(right - left, 1.0), max(top - bottom, 1e-9)
    lines = []
    for curve, color in zip(curves, COLORS, strict=False):
        thinned = [*curve[:: -(-len(curve) // POINTS)], curve[-1]] if curve else []
        path = " ".join(
            f"{WIDTH * (x - left) / across:.1f},{HEIGHT * (1.0 - (y - bottom) / up):.1f}"
            for x, y in thinned
            if np.isfinite(y)
        )
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    frame = f'<rect width="{WIDTH:.0f}" height="{HEIGHT:.0f}" fill="none" stroke="#ddd"/>'
    return (
        f"<p><b>{html.escape(title)}</b><br>from {bottom:.4g} to {top:.4g}"
        f'<svg viewBox="-2 -2 {WIDTH + 4:.0f} {HEIGHT + 4:.0f}" style="width:100%">'
        f"{frame}{''.join(lines)}</svg>"
        f"<br>{left:,.0f} to {right:,.0f} steps</p>"
    )
