"""``costate evaluate``: whole episodes with a trained policy."""

import dataclasses
import math
import pathlib
from typing import Annotated, Literal

import tyro

from costate._counted import counted
from costate._errors import ConfigError
from costate.arguments import read_arguments
from costate.countdown import countdown
from costate.documents import document_on_stdout
from costate.envs.sensors import SensorConfig
from costate.evaluation import Evaluation, evaluate, evaluated_sensors, regret, to_json
from costate.help_text import Layout
from costate.run_directory import open_run


@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """Play whole episodes with a trained policy: deterministic actions, frozen normaliser.

    The sensors are those of training, but for the settings that are given.
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


def run(arguments: list[str]) -> int:
    """Play whole episodes with a trained policy."""
    # Read twice: once for the run, and then with its sensors as what is meant where nothing is said.
    parsed = read_arguments("evaluate", EvaluateArguments, arguments, layout=LAYOUT)
    given = [field.name for field in dataclasses.fields(SensorConfig) if getattr(parsed.sensors, field.name) != field.default]
    trained = open_run(parsed.run)
    defaults = dataclasses.replace(parsed, sensors=trained.config.sensors)
    parsed = read_arguments("evaluate", EvaluateArguments, arguments, defaults)
    if parsed.sensors.mask_input != trained.config.sensors.mask_input:
        raise ConfigError(
            f"mask_input is {parsed.sensors.mask_input}, but the policy was trained with {trained.config.sensors.mask_input}, which decides how many "
            f"numbers it reads. Leave --mask-input out."
        )
    with document_on_stdout(parsed.json) as give:
        print(f"evaluating {parsed.run} ({trained.variant}): {counted(parsed.episodes, 'episode')}", flush=True)
        sensors = evaluated_sensors(trained.config, parsed.sensors, given, _warn)
        with countdown() as tell:
            result, path = evaluate(
                trained, sensors=sensors, episodes=parsed.episodes, seed=parsed.seed, step=parsed.step, tell=tell, warn=_warn
            )  # fmt: skip
        _summarise(result, sensors)
        print(f"written: {path}")
        give(to_json(result) | {"written": path})
    return 0


def _warn(text: str) -> None:
    print(f"warning: {text}", flush=True)


def _summarise(result: Evaluation, sensors: SensorConfig) -> None:
    low, high = result.quartiles
    print(f"{result.task} at {sensors}, {counted(len(result.returns), 'episode')}, checkpoint of step {result.env_steps:,}")
    print(f"return: mean {result.mean:.1f}, median {result.median:.1f}, interquartile range {low:.1f} to {high:.1f}")
    known = regret(result)
    if known is not None:
        error = f" ± {known.standard_error:.1%}" if math.isfinite(known.standard_error) else ""
        print(f"optimum: {known.optimum:.1f} (known), regret {known.share:.1%}{error}")
