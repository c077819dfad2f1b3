"""``costate verify``: train iterations of a run again, and compare."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.runs.run_directory import open_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costate.trained.verification import Saved, Verification


@dataclasses.dataclass(frozen=True)
class VerifyArguments:
    """Train iterations of a run again from its config and seed, and compare every number.

    The numbers are compared with the run's log and its saved weights. The output lists exactly what was
    compared. The exit code is 1 if any bit differs.
    """

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    iterations: int = 2
    """Number of iterations to train again, from the first."""
    all: bool = False
    """Train all logged iterations again, which takes as long as the run did."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = VerifyArguments


def run(arguments: list[str]) -> int:
    """Train the first iterations of a run again, and compare every number."""
    from costate.trained.verification import verify
    from costate.trained.verified_words import sentences

    parsed = read_arguments("verify", VerifyArguments, arguments)
    trained = open_run(parsed.run)
    with document_on_stdout(parsed.json) as emit:
        with countdown() as tell:
            result = verify(trained, None if parsed.all else parsed.iterations, tell)
        for sentence in sentences(result):
            print(sentence)
        emit(_document(result))
    return 0 if result.same else 1


def _document(result: "Verification") -> dict[str, Any]:
    """Convert the result to plain data, for scripts."""

    def places(saved: "Sequence[Saved]") -> list[dict[str, Any]]:
        return [each._asdict() for each in saved]

    return dataclasses.asdict(result) | {
        "differences": [each._asdict() for each in result.differences],
        "saved": places(result.saved),
        "unseen": places(result.unseen),
        "altered": [each.saved._asdict() | {"what": each.what} for each in result.altered],
        "same": result.same,
        "largest": result.largest,
    }
