"""``costate evaluate``: run whole episodes with a trained policy."""

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
from costate.cli.help_text import HelpLayout
from costate.cli.settings import settings_of
from costate.envs.sensors import SensorConfig
from costate.runs.run_directory import Run, open_run
from costate.trained.evaluation import Evaluation, evaluate, evaluated_sensors, regret, to_json
from costate.trained.random_controls import RandomReturn, random_return


@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """Run whole episodes with a trained policy: deterministic actions, frozen normaliser.

    Sensor settings are inherited from training unless they are given. If a number has several values, each is
    evaluated in turn.

    For example: costate evaluate RUN --dropout 0.5 0.75
    """

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    episodes: int = 100
    """Number of episodes."""
    seed: int = 0
    """Seed of episodes and sensor faults."""
    step: int | Literal["best"] | None = None
    """Training step of the checkpoint, or `best` for the policy with the best evaluation during training;
    None for the newest.
    """
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""
    sensors: Annotated[SensorConfig, tyro.conf.arg(name="")] = SensorConfig()
    """Unspecified settings are inherited from training; settings that have no effect are dropped."""


ARGUMENTS = EvaluateArguments
LAYOUT = HelpLayout(groups={"Sensors": ("sensors",)}, without_defaults=("sensors",))


# Numeric sensor settings accept several values, each of which is evaluated.
NUMBERS = tuple(
    setting.names[0] for setting in settings_of(SensorConfig) if setting.value in ("INT", "FLOAT")
)


def run(arguments: list[str]) -> int:
    """Run whole episodes with a trained policy."""
    readings = [_read(words) for words in each_combination(arguments, NUMBERS)]
    parsed, trained, _ = readings[0]
    with document_on_stdout(parsed.json) as emit:
        print(
            f"evaluating {parsed.run} ({trained.variant}): {counted(parsed.episodes, 'episode')}", flush=True
        )
        # All of them are checked before the first is evaluated.
        chosen = [evaluated_sensors(trained.config, one.sensors, given, _warn) for one, _, given in readings]
        documents = []
        with countdown() as tell:
            for number, sensors in enumerate(chosen):
                part = among(tell, number, len(chosen))
                result, path = evaluate(
                    trained,
                    sensors=sensors,
                    episodes=parsed.episodes,
                    seed=parsed.seed,
                    step=parsed.step,
                    tell=part,
                    warn=_warn,
                )
                _summarise(result, sensors)
                documents.append(to_json(result) | {"written": path})
            random_controls = _print_random_controls(trained.config.task, tell)
        print(f"written: {', '.join(str(document['written']) for document in documents)}")
        document = documents[0] if len(documents) == 1 else {"format": 1, "evaluations": documents}
        emit(document | {"random_controls": None if random_controls is None else random_controls._asdict()})
    return 0


def _read(arguments: list[str]) -> tuple[EvaluateArguments, Run, list[str]]:
    """Return the arguments, the run, and the names of the sensor settings that were given."""
    # Parsed twice: first to find the run, then with its sensors as the defaults.
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
            f"mask_input is {parsed.sensors.mask_input}, but the policy was trained with "
            f"{trained.config.sensors.mask_input}, which fixes the size of its input. Leave --mask-input out."
        )
    return parsed, trained, given


def each_combination(arguments: Sequence[str], flags: Collection[str]) -> list[list[str]]:
    """Expand flags with several values: one command line for every combination of the values."""
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


def _print_random_controls(task: str, tell: Tell) -> RandomReturn | None:
    """Print the return of random controls for comparison, and return it; None if there is none."""
    try:
        found = random_return(task, tell)
    except CostateError as error:
        print(f"random controls: unknown. {error}")
        return None
    print(f"random controls: {found} ({counted(found.episodes, 'episode')})")
    return found


def _warn(text: str) -> None:
    print(f"warning: {text}", flush=True)


def _summarise(result: Evaluation, sensors: SensorConfig) -> None:
    low, high = result.quartiles
    print(
        f"{result.task} at {sensors}, {counted(len(result.returns), 'episode')}, checkpoint of step "
        f"{result.env_steps:,}"
    )
    mean, median, lowest, highest = rounded(result.mean, result.median, low, high, least=1)
    print(f"return: mean {mean}, median {median}, interquartile range {lowest} to {highest}")
    known = regret(result)
    if known is not None:
        error = f" ± {known.standard_error:.1%}" if math.isfinite(known.standard_error) else ""
        print(f"optimum: {known.optimum:.1f} (known), regret {known.share:.1%}{error}")
