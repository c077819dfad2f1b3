"""``costate bench``: how fast this machine trains, and how fast it could."""

import dataclasses
from typing import Annotated

import tyro

from costate._base.checks import MOST_SEEDS, require_at_most
from costate._base.errors import ConfigError
from costate.cli.arguments import read_arguments
from costate.cli.choices import AlgorithmName, PresetName
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.config.presets import check_preset, usual_preset
from costate.envs.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class BenchArguments:
    """Measure how fast this machine trains at the configuration of a preset, and how fast it could. Leave it alone for the while."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "WalkerStand"
    """Task to train on."""
    algorithm: AlgorithmName | None = None  # type: ignore[valid-type]
    """Learner: PPO as in the paper, or recurrent soft actor-critic; None for that of the preset."""
    preset: PresetName | None = None  # type: ignore[valid-type]
    """Variant; None for nc-gru, or nc-sac-gru with soft actor-critic."""
    seeds: int = 1
    """Seeds that train together."""
    devices: int | None = None
    """Devices that share the learner's work; None for all that can be used."""
    repeats: int = 7
    """Iterations, each followed by as many steps of the raw engine; medians are reported."""
    starts: bool = True
    """Whether to measure also how long a process takes to its first iteration, with an empty and with a full compilation cache."""
    json: bool = False
    """Print the numbers as one JSON document, and everything else to stderr."""


ARGUMENTS = BenchArguments


def run(arguments: list[str]) -> int:
    """Measure the speed of training, and the limit of the machine."""
    from costate.training.benchmark import run_benchmark, table

    parsed = read_arguments("bench", BenchArguments, arguments)
    for name in ("seeds", "repeats"):
        if getattr(parsed, name) < 1:
            raise ConfigError(f"{name} is {getattr(parsed, name)}, but it must be at least 1.")
        require_at_most(name, getattr(parsed, name), MOST_SEEDS)
    name = parsed.preset or usual_preset(parsed.algorithm)
    TASKS[parsed.task]  # an unknown task is said before a minute has passed
    if parsed.algorithm is not None:
        check_preset(name, parsed.task, parsed.algorithm)
    with document_on_stdout(parsed.json) as give:
        with countdown() as tell:
            result = run_benchmark(
                parsed.task,
                name,
                seeds=parsed.seeds,
                devices=parsed.devices,
                repeats=parsed.repeats,
                starts=parsed.starts,
                tell=tell,
            )
        print(table(result))
        give(dataclasses.asdict(result) | {"fraction_of_limit": result.fraction})
    return 0
