"""``costate view``: show a policy in the browser."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from costate.cli.arguments import read_arguments
from costate.runs.interrupts import stop_requests
from costate.runs.run_directory import open_run
from costate.show.requirements import require
from costate.show.settings import ViewConfig


@dataclasses.dataclass(frozen=True)
class ViewArguments:
    """Show a trained policy in the browser, in real time.

    Blackouts are at a click, and the hidden state is shown as the co-state that it approximates. Give two
    runs of one task to see them side by side under the same blackouts.
    """

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN…")]
    """One run directory, or two."""
    view: Annotated[ViewConfig, tyro.conf.arg(name="")] = ViewConfig()


ARGUMENTS = ViewArguments


def run(arguments: list[str]) -> int:
    """Show a trained policy in the browser, with its blackouts and co-states."""
    options = read_arguments("view", ViewArguments, arguments)
    require("The live view", "viser", "mujoco")
    # Imported late, so that --help does not wait for it: it takes seconds.
    from costate.show.view import view

    with stop_requests(b"\nclosing\n") as stop:
        view(
            [open_run(path) for path in options.runs],
            options.view,
            lambda line: print(line, flush=True),
            lambda: stop.asked,
        )
    return 0
