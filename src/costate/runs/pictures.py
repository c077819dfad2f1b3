"""What all pictures have in common, with matplotlib loaded only by those who draw."""

import io
from typing import Any

# Dots per inch: sharp in a report, and small.
DPI = 120


def as_png(figure: Any) -> bytes:
    """A figure as the content of a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()


def from_zero(axes: Any) -> None:
    """Let an axis of returns start at zero, so that heights can be compared; where returns are costs, leave it as their numbers lie."""
    numbers = [float(value) for line in axes.get_lines() for value in line.get_ydata()]
    if not any(value < 0.0 for value in numbers):
        axes.set_ylim(bottom=0.0)


def plain(axes: Any, grid: str = "both") -> None:
    """No frame where nothing is measured, and a grid that stays behind the data."""
    axes.grid(alpha=0.25, axis=grid)
    axes.spines[["top", "right"]].set_visible(False)
