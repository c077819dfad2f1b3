"""``costate report``: draw figures and tables of a folder of runs."""

import dataclasses
import json
import pathlib
from typing import Annotated

import tyro

from costate._base.checks import printable
from costate._base.counted import counted
from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout


@dataclasses.dataclass(frozen=True)
class ReportArguments:
    """Draw the figures and tables of a folder of runs.

    The result is one HTML page that works offline, every figure as PNG and SVG, and the numbers as JSON.
    """

    folder: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="DIR")]
    """Folder of a sweep, or any folder that contains runs."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = ReportArguments


def run(arguments: list[str]) -> int:
    """Draw the figures and tables of a folder of runs, as one page."""
    from costate.experiments.report import SUMMARY, write_report

    parsed = read_arguments("report", ReportArguments, arguments)
    with document_on_stdout(parsed.json) as emit:
        with countdown() as tell:
            page, collection = write_report(parsed.folder, tell)
        for name, reason in collection.broken:
            print(printable(f"not reported: {name}: {reason}"))
        for name, reason in collection.incomplete:
            print(printable(f"incomplete: {name}: {reason}"))
        for entry in collection.entries:
            if not entry.finished:
                print(
                    f"unfinished: {entry.label} at {entry.env_steps:,} "
                    f"steps{f', failed: {entry.failure}' if entry.failure else ''}"
                )
        print(f"{counted(len(collection.entries), 'run')} reported; written: {page}")
        emit(json.loads((page.parent / SUMMARY).read_text()) | {"written": page})
    return 0
