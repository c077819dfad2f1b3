"""``costate bench``: measure how fast this machine trains, and how fast it could."""

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
    """Measure how fast this machine trains with a preset, and how fast it could.

    Run nothing else meanwhile.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "WalkerStand"
    """Task to train on."""
    algorithm: AlgorithmName | None = None  # type: ignore[valid-type]
    """Learner: PPO as in the paper, or recurrent soft actor-critic; None for the preset's own."""
    preset: PresetName | None = None  # type: ignore[valid-type]
    """Variant; None for nc-gru, or for nc-sac-gru with soft actor-critic."""
    seeds: int = 1
    """Number of seeds that train together."""
    devices: int | None = None
    """Number of devices that share the learner's work; None for all that can be used."""
    repeats: int = 7
    """Number of iterations to time, each followed by as many steps of the raw engine. Medians are reported.
    """
    starts: bool = True
    """Also measure the time from process start to the first iteration, with an empty and a filled compilation
    cache.
    """
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
    TASKS[parsed.task]  # raises for an unknown task now, instead of after a minute
    if parsed.algorithm is not None:
        check_preset(name, parsed.task, parsed.algorithm)
    with document_on_stdout(parsed.json) as emit:
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
        emit(dataclasses.asdict(result) | {"fraction_of_limit": result.fraction})
    return 0
