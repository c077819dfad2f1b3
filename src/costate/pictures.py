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


def plain(axes: Any, grid: str = "both") -> None:
    """No frame where nothing is measured, and a grid that stays behind the data."""
    axes.grid(alpha=0.25, axis=grid)
    axes.spines[["top", "right"]].set_visible(False)
