"""Read the rows of ``metrics.jsonl``, and find damaged lines."""

import dataclasses
import json
from typing import Any

# Far more than any counter reaches, and small enough for every number format.
LARGEST_COUNT = 2**62
# Number of line numbers that are listed before "and … more".
LISTED = 5


@dataclasses.dataclass(frozen=True)
class DamagedLine:
    """A line that is not a row of numbers."""

    number: int
    """Line number, from 1 as in editors."""
    content: bytes


@dataclasses.dataclass(frozen=True)
class MetricsRows:
    """Content of a metrics log."""

    rows: tuple[dict[str, Any], ...]
    """Intact rows, oldest first."""
    damaged: tuple[DamagedLine, ...]
    cut_off: bytes
    """A last line without a line break, left by a process that was killed while it wrote; usually empty."""

    @property
    def complaint(self) -> str | None:
        """A clause that lists the damaged lines; None if there are none."""
        if not self.damaged:
            return None
        verb = "are" if len(self.damaged) > 1 else "is"
        return f"metrics.jsonl is damaged in {self.damaged_lines}, which {verb} left out"

    @property
    def damaged_lines(self) -> str:
        """The numbers of the damaged lines, as text."""
        numbers = [str(line.number) for line in self.damaged]
        more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
        return f"line{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:LISTED])}{more}"


def parse_rows(content: bytes) -> MetricsRows:
    """Separate the intact rows of a log from its damaged lines. Empty lines are skipped."""
    *lines, last = content.split(b"\n")
    rows: list[dict[str, Any]] = []
    damaged: list[DamagedLine] = []
    for number, line in enumerate(lines, start=1):
        row = parse_row(line)
        if row is not None:
            rows.append(row)
        elif line.strip():
            damaged.append(DamagedLine(number, line))
    # An editor may have removed only the line break of the last line.
    row = parse_row(last)
    return MetricsRows(
        tuple(rows if row is None else [*rows, row]), tuple(damaged), last if row is None else b""
    )


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the numbers of one iteration by name; None if the line is anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not all(_is_number(value) for value in row.values()):
        return None
    # Rows written outside of training may lack the iteration.
    return row if _is_count(row.get("env_steps")) and _is_count(row.get("iteration", 0)) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < LARGEST_COUNT)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
