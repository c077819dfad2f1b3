"""``costate view``: look at a policy in the browser."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from costate.interrupts import stop_requests
from costate.run_directory import open_run
from costate.show.requirements import require


@dataclasses.dataclass(frozen=True)
class View:
    """Look at a trained policy in the browser: the robot in real time, blackouts at will, and the memory as the co-state that it is meant to be.

    Give two runs of one task to see them side by side under the same blackouts.
    """

    runs: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
    """One run directory, or two."""
    dropout: float | None = None
    """Probability of blackouts at first; that of training if not given."""
    burst_length: float | None = None
    """Mean number of steps of a blackout at first, 0 to draw every step by itself; that of training if not given."""
    step: int | None = None
    """Training steps of the policy to start with; the newest if not given."""
    seed: int = 0
    """Of the first episode."""
    host: str = "127.0.0.1"
    """Address to serve on. Only this machine can look unless it is another; everybody who can reach that address can then look."""
    port: int = 8080
    """Port to serve on, or the first free one after it."""


def run(arguments: list[str]) -> int:
    """Look at a trained policy in the browser, with its blackouts and co-states."""
    options = tyro.cli(View, prog="costate view", args=arguments)
    require("The live view", "viser", "mujoco")
    # Imported after --help was answered: it takes seconds.
    from costate.show.view import ViewConfig, view

    config = ViewConfig(options.dropout, options.burst_length, options.step, options.seed, options.host, options.port)
    with stop_requests(b"\nclosing\n") as stop:
        view([open_run(path) for path in options.runs], config, lambda line: print(line, flush=True), lambda: stop.asked)
    return 0
