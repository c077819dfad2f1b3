"""``costate evaluate``: whole episodes with a trained policy."""

import contextlib
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Collection, Sequence
from typing import Annotated, Literal

import tyro

from costate._base.counted import counted
from costate._base.errors import ConfigError, CostateError
from costate._base.progress import Tell, among
from costate._base.rounding import rounded
from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.cli.help_text import Layout
from costate.cli.settings import settings_of
from costate.envs.sensors import SensorConfig
from costate.runs.run_directory import Run, open_run
from costate.trained.evaluation import Evaluation, evaluate, evaluated_sensors, regret, to_json
from costate.trained.random_controls import RandomReturn, random_return


@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """Play whole episodes with a trained policy: deterministic actions, frozen normaliser.

    The sensors are those of training, but for the settings that are given. Several values of a number are evaluated one after the other:
    costate evaluate RUN --dropout 0.5 0.75
    """

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    episodes: int = 100
    """Episodes to play."""
    seed: int = 0
    """Seed of episodes and sensor faults."""
    step: int | Literal["best"] | None = None
    """Training step of the checkpoint, or `best` for the best policy of those evaluated in training; None for the newest."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""
    sensors: Annotated[SensorConfig, tyro.conf.arg(name="")] = SensorConfig()
    """Unspecified settings are inherited from training; settings that have no effect are dropped."""


ARGUMENTS = EvaluateArguments
LAYOUT = Layout(groups={"Sensors": ("sensors",)}, without_defaults=("sensors",))


# Sensor settings that are numbers can have several values, each of which is evaluated.
NUMBERS = tuple(
    setting.names[0] for setting in settings_of(SensorConfig) if setting.value in ("INT", "FLOAT")
)


def run(arguments: list[str]) -> int:
    """Play whole episodes with a trained policy."""
    readings = [_read(words) for words in each_combination(arguments, NUMBERS)]
    parsed, trained, _ = readings[0]
    with document_on_stdout(parsed.json) as give:
        print(
            f"evaluating {parsed.run} ({trained.variant}): {counted(parsed.episodes, 'episode')}", flush=True
        )
        # Whether all of them fit the task is known before the first is played.
        chosen = [evaluated_sensors(trained.config, one.sensors, given, _warn) for one, _, given in readings]
        documents = []
        with countdown() as tell:
            for number, sensors in enumerate(chosen):
                part = among(tell, number, len(chosen))
                result, path = evaluate(
                    trained, sensors=sensors, episodes=parsed.episodes, seed=parsed.seed, step=parsed.step, tell=part, warn=_warn
                )  # fmt: skip
                _summarise(result, sensors)
                documents.append(to_json(result) | {"written": path})
            chance = _by_chance(trained.config.task, tell)
        print(f"written: {', '.join(str(document['written']) for document in documents)}")
        whole = documents[0] if len(documents) == 1 else {"format": 1, "evaluations": documents}
        give(whole | {"random_controls": None if chance is None else chance._asdict()})
    return 0


def _read(arguments: list[str]) -> tuple[EvaluateArguments, Run, list[str]]:
    """The arguments, the run, and which settings of the sensors were given; the others are those of the run."""
    # Read twice: once for the run, and then with its sensors as what is meant where nothing is said.
    parsed = read_arguments("evaluate", EvaluateArguments, arguments, layout=LAYOUT)
    given = [
        field.name
        for field in dataclasses.fields(SensorConfig)
        if getattr(parsed.sensors, field.name) != field.default
    ]
    trained = open_run(parsed.run)
    defaults = dataclasses.replace(parsed, sensors=trained.config.sensors)
    parsed = read_arguments("evaluate", EvaluateArguments, arguments, defaults)
    if parsed.sensors.mask_input != trained.config.sensors.mask_input:
        raise ConfigError(
            f"mask_input is {parsed.sensors.mask_input}, but the policy was trained with {trained.config.sensors.mask_input}, which decides how many "
            f"numbers it reads. Leave --mask-input out."
        )
    return parsed, trained, given


def each_combination(arguments: Sequence[str], flags: Collection[str]) -> list[list[str]]:
    """Command lines in which each of some flags has one value, for every combination of the values that it has in the one that was given."""
    choices: list[list[list[str]]] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        values = list(itertools.takewhile(_is_number, words)) if word in flags else []
        del words[: len(values)]
        choices.append([[word, value] for value in values] or [[word]])
    return [[word for part in combination for word in part] for combination in itertools.product(*choices)]


def _is_number(word: str) -> bool:
    with contextlib.suppress(ValueError):
        float(word)
        return True
    return False


def _by_chance(task: str, tell: Tell) -> RandomReturn | None:
    """What random controls return, said beside what the policy does; None where there are none."""
    try:
        found = random_return(task, tell)
    except CostateError as error:
        print(f"random controls: not known. {error}")
        return None
    print(f"random controls: {found} ({counted(found.episodes, 'episode')})")
    return found


def _warn(text: str) -> None:
    print(f"warning: {text}", flush=True)


def _summarise(result: Evaluation, sensors: SensorConfig) -> None:
    low, high = result.quartiles
    print(
        f"{result.task} at {sensors}, {counted(len(result.returns), 'episode')}, checkpoint of step {result.env_steps:,}"
    )
    mean, median, lowest, highest = rounded(result.mean, result.median, low, high, least=1)
    print(f"return: mean {mean}, median {median}, interquartile range {lowest} to {highest}")
    known = regret(result)
    if known is not None:
        error = f" ± {known.standard_error:.1%}" if math.isfinite(known.standard_error) else ""
        print(f"optimum: {known.optimum:.1f} (known), regret {known.share:.1%}{error}")
