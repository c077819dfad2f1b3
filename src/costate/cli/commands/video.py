"""``costate video``: film a policy."""

import dataclasses
import pathlib
import sys
from typing import Annotated, Literal

import tyro

from costate._base.errors import ConfigError
from costate._base.files import output_file
from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.runs.run_directory import open_run
from costate.show.requirements import require
from costate.show.settings import FilmConfig


@dataclasses.dataclass(frozen=True)
class VideoArguments:
    """Film a trained policy, without a display.

    The picture dims during blackouts, and a strip below shows when they were.

    Several runs, or with --grid several policies of one run from the start of training to its end, are filmed
    side by side under the same blackouts.
    """

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN…")]
    """Run directories."""
    out: pathlib.Path | None = None
    """File to write, .mp4 or .gif, or an existing folder to write it into; None for RUN/videos/…."""
    grid: bool = False
    """Compare policies of one run from the start of training to its end: its milestones and newest
    checkpoints.
    """
    at: tuple[int | Literal["best"], ...] = ()
    """Training steps of the policies to compare, instead of those that --grid chooses; `best` for the best
    one.
    """
    film: Annotated[FilmConfig, tyro.conf.arg(name="")] = FilmConfig()
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = VideoArguments


def run(arguments: list[str]) -> int:
    """Film trained policies, without a display."""
    options = read_arguments("video", VideoArguments, arguments)
    require("A film", "mujoco", "trimesh")
    # Imported late, so that --help does not wait for it: it takes seconds.
    from costate.show.film import film, tiles_of

    if not options.runs:
        raise ConfigError("No run was given. Give the folder of a run, for example: costate video runs/…")
    runs = [open_run(path) for path in options.runs]
    tiles = tiles_of(runs, options.at, options.grid)
    kind = "grid" if len(tiles) > 1 else f"step_{tiles[0].step:012d}"
    name = f"{runs[0].config.task_record.folder}_{kind}.mp4"
    out = output_file(options.out or runs[0].path / "videos" / name, name)
    with document_on_stdout(options.json) as emit:
        with countdown() as tell:
            returns = film(
                tiles, options.film, out, lambda warning: print(f"warning: {warning}", file=sys.stderr), tell
            )
        for tile, total in zip(tiles, returns, strict=True):
            print(f"{tile.title}: return {total:.1f}")
        print(f"film in {out}")
        policies = [
            {"run": tile.run.path, "step": tile.step, "return": total}
            for tile, total in zip(tiles, returns, strict=True)
        ]
        emit({"film": out, "policies": policies})
    return 0
