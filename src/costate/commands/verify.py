"""``costate verify``: do the first iterations of a run again, and compare."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from costate.arguments import read_arguments
from costate.countdown import countdown
from costate.documents import document_on_stdout
from costate.run_directory import open_run

SHOWN = 5


@dataclasses.dataclass(frozen=True)
class VerifyArguments:
    """Train the first iterations of a run again from its config and seed, and compare every number with its log. Exit code 1 if any differs."""

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    iterations: int = 2
    """How many to do again."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = VerifyArguments


def run(arguments: list[str]) -> int:
    """Do the first iterations of a run again, and compare every number."""
    from costate.verification import verify

    parsed = read_arguments("verify", VerifyArguments, arguments)
    trained = open_run(parsed.run)
    with document_on_stdout(parsed.json) as give:
        with countdown() as tell:
            result = verify(trained, parsed.iterations, tell)
        for change in result.machine:
            print(f"this machine is another: {change}")
        for difference in result.differences[:SHOWN]:
            print(f"iteration {difference.iteration}, {difference.metric}: {difference.logged!r} in the log, {difference.again!r} now")
        if result.same:
            print(f"the same, bit for bit: {result.numbers} numbers of {result.iterations} iterations")
        else:
            print(f"not the same: {len(result.differences)} of {result.numbers} numbers differ, by a relative {result.largest:.2g} at most")
        give(dataclasses.asdict(result) | {"differences": [d._asdict() for d in result.differences], "same": result.same, "largest": result.largest})
    return 0 if result.same else 1
