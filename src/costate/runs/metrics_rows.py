"""Rows of ``metrics.jsonl`` read back: those that are whole, and the lines that are none."""

import dataclasses
import json
from typing import Any

# Far more than any counter reaches, and few enough for every number format.
LARGEST_COUNT = 2**62
# Line numbers that are listed before "and … more".
LISTED = 5


@dataclasses.dataclass(frozen=True)
class DamagedLine:
    """A line that is no row of numbers."""

    number: int
    """From 1, as editors count."""
    content: bytes


@dataclasses.dataclass(frozen=True)
class MetricsRows:
    """What a log holds."""

    rows: tuple[dict[str, Any], ...]
    """Whole rows, oldest first."""
    damaged: tuple[DamagedLine, ...]
    cut_off: bytes
    """A last line without an end, as a process leaves it that is killed while it writes; usually empty."""

    @property
    def complaint(self) -> str | None:
        """Which lines are damaged; None if none is."""
        if not self.damaged:
            return None
        return f"metrics.jsonl is damaged in {self.damaged_lines}, which {'are' if len(self.damaged) > 1 else 'is'} left out"

    @property
    def damaged_lines(self) -> str:
        """The numbers of the damaged lines, in words."""
        numbers = [str(line.number) for line in self.damaged]
        more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
        return f"line{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:LISTED])}{more}"


def parse_rows(content: bytes) -> MetricsRows:
    """Tell the whole rows of a log from its damaged lines. Empty lines count as neither."""
    *lines, last = content.split(b"\n")
    rows: list[dict[str, Any]] = []
    damaged: list[DamagedLine] = []
    for number, line in enumerate(lines, start=1):
        row = parse_row(line)
        if row is not None:
            rows.append(row)
        elif line.strip():
            damaged.append(DamagedLine(number, line))
    # An editor may have taken away the end of the last line alone.
    row = parse_row(last)
    return MetricsRows(
        tuple(rows if row is None else [*rows, row]), tuple(damaged), last if row is None else b""
    )


def parse_row(line: bytes) -> dict[str, Any] | None:
    """The numbers of one iteration by their names; None if the line is anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not all(_is_number(value) for value in row.values()):
        return None
    # Rows that were made outside of training need not count iterations.
    return row if _is_count(row.get("env_steps")) and _is_count(row.get("iteration", 0)) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < LARGEST_COUNT)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
