"""Plots of solved control problems."""

from typing import Any

import numpy as np

from costate.control.solution import Solution
from costate.runs.pictures import as_png, plain

# Distinguishable with any kind of colour vision (Paul Tol's "bright" scheme).
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#222222")
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def draw_solution(solution: Solution) -> bytes:
    """Plot x, λ, u and H over time as a PNG, with the switching function if the control law has pieces."""
    from matplotlib.figure import Figure

    pieces = bool(np.isfinite(solution.kinks).any())
    figure = Figure(figsize=(7.0, 9.4 if pieces else 7.8), layout="constrained")
    panels = iter(figure.subplots(5 if pieces else 4, 1, sharex=True))
    _lines(next(panels), solution, solution.states, "x", "state x")
    _lines(next(panels), solution, solution.costates, "λ", "co-state λ = ∇V")
    if pieces:
        _switching_function(next(panels), solution)
    _lines(next(panels), solution, solution.controls, "u", "control u")
    _hamiltonian(last := next(panels), solution)
    last.set_xlabel("time")
    figure.suptitle(f"{solution.name}: cost {solution.cost:.6g}, t_f = {solution.final_time:.6g}")
    return as_png(figure)


def _lines(axes: Any, solution: Solution, values: np.ndarray, symbol: str, label: str) -> None:
    for index, column in enumerate(values.T):
        name = f"{symbol}{str(index + 1).translate(SUBSCRIPTS)}" if values.shape[1] > 1 else symbol
        axes.plot(solution.times, column, color=COLOURS[index % len(COLOURS)], linewidth=1.6, label=name)
    axes.set_ylabel(label)
    if values.shape[1] > 1:
        axes.legend(frameon=False, fontsize=8, ncols=values.shape[1], loc="best")
    _tidy(axes, solution)


def _switching_function(axes: Any, solution: Solution) -> None:
    """Plot σ = −gᵀλ, and the levels at which the control law changes its piece."""
    _lines(axes, solution, -solution.slopes, "σ", "σ = −gᵀλ")
    for level in np.unique(solution.kinks[np.isfinite(solution.kinks)]):
        axes.axhline(-level, color="#888888", linewidth=0.9, linestyle="--")


def _hamiltonian(axes: Any, solution: Solution) -> None:
    values = solution.hamiltonians
    axes.plot(solution.times, values, color=COLOURS[0], linewidth=1.6)
    # H is constant. A window as wide as H is large shows that; one fitted to the data would show rounding
    # errors.
    middle = 0.5 * (values.min() + values.max())
    half = max(0.5 * (1.0 + abs(middle)), float(np.ptp(values)))
    axes.set(ylabel="Hamiltonian H", ylim=(middle - half, middle + half))
    _tidy(axes, solution)


def _tidy(axes: Any, solution: Solution) -> None:
    for when in solution.switching_times:
        axes.axvline(when, color="#888888", linewidth=0.9, linestyle=":")
    plain(axes)
