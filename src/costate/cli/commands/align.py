"""``costate align``: measure how closely the hidden state of a trained policy matches the co-state."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from costate._base.counted import counted
from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.runs.run_directory import open_run
from costate.trained.alignment.result import AlignmentSettings


@dataclasses.dataclass(frozen=True)
class AlignArguments:
    """Compare the hidden state of a trained policy with the true co-states along its own trajectories.

    The result is shown beside what chance would give.
    """

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""
    settings: Annotated[AlignmentSettings, tyro.conf.arg(name="")] = AlignmentSettings()


ARGUMENTS = AlignArguments


def run(arguments: list[str]) -> int:
    """Compare hidden states with true co-states."""
    from costate.trained.alignment.align import align, write_alignment
    from costate.trained.alignment.result import all_verdicts, table, to_json
    from costate.trained.alignment.verdicts import MARGIN

    parsed = read_arguments("align", AlignArguments, arguments)
    trained = open_run(parsed.run)
    settings = parsed.settings
    with document_on_stdout(parsed.json) as emit:
        print(
            f"{trained.config.task}: {counted(settings.episodes, 'episode')} of "
            f"{counted(settings.steps, 'step')}, co-states over a horizon of "
            f"{counted(settings.horizon, 'step')} → {trained.path / 'alignment'}",
            flush=True,
        )
        with countdown() as tell:
            found = align(
                trained,
                settings,
                lambda text: print(f"warning: {text}", flush=True),
                lambda text: print(text, flush=True),
                tell,
            )
        files = write_alignment(trained, found)
        print(table(found))
        print(
            f"what this says about the hidden state of this run (differences up to {MARGIN:g} count as none):"
        )
        for verdict in all_verdicts(found):
            print(f"  {verdict}")
        print(f"written: {', '.join(str(file) for file in files)}")
        emit(to_json(trained, found) | {"written": files})
    return 0
