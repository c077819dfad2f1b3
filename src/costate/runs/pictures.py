"""Helpers for all plots. Only those who draw import matplotlib."""

import io
from typing import Any

# Dots per inch: sharp in a report, and small in bytes.
DPI = 120


def as_png(figure: Any) -> bytes:
    """Return a figure as the content of a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()


def from_zero(axes: Any) -> None:
    """Let an axis of returns start at zero, so that heights can be compared.

    Axes with negative returns stay as they are.
    """
    numbers = [float(value) for line in axes.get_lines() for value in line.get_ydata()]
    if not any(value < 0.0 for value in numbers):
        axes.set_ylim(bottom=0.0)


def plain(axes: Any, grid: str = "both") -> None:
    """Remove the top and right spines, and draw a faint grid."""
    axes.grid(alpha=0.25, axis=grid)
    axes.spines[["top", "right"]].set_visible(False)
