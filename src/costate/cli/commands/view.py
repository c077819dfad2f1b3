"""``costate view``: look at a policy in the browser."""

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
class View:
    """Look at a trained policy in the browser: the robot in real time, blackouts at will, and the memory as the co-state that it is meant to be.

    Give two runs of one task to see them side by side under the same blackouts.
    """

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN…")]
    """One run directory, or two."""
    view: Annotated[ViewConfig, tyro.conf.arg(name="")] = ViewConfig()


ARGUMENTS = View


def run(arguments: list[str]) -> int:
    """Look at a trained policy in the browser, with its blackouts and co-states."""
    options = read_arguments("view", View, arguments)
    require("The live view", "viser", "mujoco")
    # Imported after --help was answered: it takes seconds.
    from costate.show.view import view

    with stop_requests(b"\nclosing\n") as stop:
        view(
            [open_run(path) for path in options.runs],
            options.view,
            lambda line: print(line, flush=True),
            lambda: stop.asked,
        )
    return 0
