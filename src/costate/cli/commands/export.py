"""``costate export``: write a trained policy as a file that runs without its run directory."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.trained.exporting import FormatName, export


@dataclasses.dataclass(frozen=True)
class ExportArguments:
    """Write a trained policy in a form that needs no training code: a bundle, NumPy, ONNX or StableHLO.

    The hidden state is an explicit input and output, and the normaliser is included. The file is written only
    if its actions match those of the policy over 1,000 random steps.
    """

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run, or a policy bundle."""
    format: FormatName = "bundle"
    """bundle for `costate.load`; numpy for a controller without JAX; onnx; stablehlo."""
    out: pathlib.Path | None = None
    """File to write, or an existing folder to write it into; with numpy always a folder.

    None for RUN/export/….
    """
    step: int | Literal["best"] | None = None
    """Training step of the checkpoint, or `best` for the policy with the best evaluation during training;
    None for the newest.
    """
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = ExportArguments


def run(arguments: list[str]) -> int:
    """Write a trained policy as a bundle, for NumPy, ONNX or StableHLO."""
    from costate.training.startup import keep_compiled_programs

    parsed = read_arguments("export", ExportArguments, arguments)
    with document_on_stdout(parsed.json) as emit:
        print(f"exporting {parsed.run} as {parsed.format}", flush=True)
        keep_compiled_programs()
        with countdown() as tell:
            done = export(parsed.run, parsed.format, parsed.out, parsed.step, tell)
        print(f"reads: {done.reads}")
        print(f"trained with: {done.trained_with}")
        print(f"parity: {done.parity}")
        print(f"one step of one stream: {done.microseconds:.0f} µs (median)")
        print(f"written: {', '.join(map(str, done.files))}")
        result = {
            "parity": dataclasses.asdict(done.parity),
            "microseconds": done.microseconds,
            "reads": done.reads,
            "trained_with": done.trained_with,
        }
        emit({"format": 1, "form": parsed.format, **result, "written": done.files})
    return 0
