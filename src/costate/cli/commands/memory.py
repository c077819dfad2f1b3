"""``costate memory``: measure how much memory improves the return on a task."""

import dataclasses
import json
import pathlib
from typing import Annotated

import tyro

from costate._base.files import write_atomically
from costate.cli.arguments import read_arguments
from costate.cli.choices import AlgorithmName
from costate.cli.commands.robustness import sensor_settings
from costate.cli.commands.sweep import SweepOptions, conduct, standings_document
from costate.cli.documents import document_on_stdout
from costate.learners import DEFAULT_LEARNER


@dataclasses.dataclass(frozen=True)
class MemoryArguments:
    """Train policies that differ only in memory and sensors, with one budget, and compare them in one table.

    The policies: no memory, the last few observations, a recurrent core (with and without the co-state loss),
    and one that sees everything.

    For example: costate memory CartpoleSwingup --steps 2_000_000 --seeds 4
    """

    tasks: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TASK…")]
    """Tasks to train on; `costate tasks` lists them."""
    algorithm: AlgorithmName = DEFAULT_LEARNER  # type: ignore[valid-type]
    """Learner of all policies.

    With soft actor-critic, the policy without memory still reads its own last control.
    """
    seeds: int = 3
    """Number of seeds of each policy."""
    steps: int | None = None
    """Environment steps of each run; None for the task's budget in the paper, or a million with soft
    actor-critic.
    """
    sensors: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Sensor settings of all policies except the one that sees everything; by default the paper's
    dropout=0.5.
    """
    frames: int = 8
    """Number of observations that the policy with the last few observations receives."""
    episodes: int = 100
    """Number of episodes that evaluate each run."""
    options: Annotated[SweepOptions, tyro.conf.arg(name="")] = SweepOptions()


ARGUMENTS = MemoryArguments


def run(arguments: list[str]) -> int:
    """Measure how much memory improves the return on a task."""
    from costate.experiments.collection import read_collection
    from costate.experiments.memory import memory_spec, notes, results_of, table, to_json

    parsed = read_arguments("memory", MemoryArguments, arguments)
    sensors = sensor_settings(parsed.sensors)
    spec = memory_spec(
        parsed.tasks, parsed.algorithm, parsed.seeds, parsed.steps, sensors, parsed.frames, parsed.episodes
    )
    folder = parsed.options.out or pathlib.Path("sweeps") / spec.name
    with document_on_stdout(parsed.options.json) as emit:
        code = conduct(spec, folder, parsed.options)
        if code != 0 or parsed.options.dry_run:
            emit(standings_document(spec, folder))
            return code
        results = results_of(read_collection(folder))
        caveats = notes(parsed.algorithm, parsed.tasks)
        document = {"format": 1, "results": to_json(results), "notes": caveats}
        write_atomically(folder / "memory.json", json.dumps(document, indent=1).encode())
        print("\n".join([table(results), *caveats]))
        print(f"written: {folder / 'memory.json'}")
        emit(document | {"written": folder / "memory.json"})
    return code
