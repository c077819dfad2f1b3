"""Evaluation: deterministic actions, frozen normaliser, whole episodes, any sensor faults."""

import dataclasses
import functools
import hashlib
import json
import pathlib
import time
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import numpy as np

from costate._base.checks import MOST_EPISODES, require_at_most
from costate._base.errors import ConfigError
from costate._base.files import output_folder, write_atomically
from costate._base.progress import Tell, nobody
from costate._base.types import Array, Float, Key
from costate.config.run_config import RunConfig, check_seed
from costate.envs.factory import make_env
from costate.envs.sensors import (
    LENGTHS,
    MODIFIERS,
    SensorConfig,
    check_sensors,
    drop_ineffective,
    lengthen_bursts,
)
from costate.envs.tasks import TASKS
from costate.learners.episodes import first_episodes
from costate.policies.controllers import AbstractAgent
from costate.runs.checkpoint import newest_steps
from costate.runs.run_directory import Run, open_run
from costate.trained.trained import Point, load_controller
from costate.training.programs import program_name
from costate.training.startup import forget_uncacheable, prepare_jax

# Building a larger pool of environments takes longer than it saves in stepping.
LARGEST_BATCH = 32
# Most systems allow 255 bytes, and a file is first written as `.NAME.partial`.
LONGEST_NAME = 255 - len("..partial")
# Added to the seed, so that evaluation never plays the episodes of training.
SEED_OFFSET = 1_000_003
# Folded into the seed's key, so that evaluation never draws the blackouts of training. Training splits that
# key, and a split gives the same keys as folding in small numbers.
DOMAIN = 0x4556_414C
# Version of the random numbers. Evaluations of version 1 do not record it; they used keys that training uses
# too.
DRAWS = 2


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes under one setting of the sensors."""

    task: str
    dropout: float
    seed: int
    env_steps: int
    """Training steps of the checkpoint that was evaluated."""
    returns: tuple[float, ...]
    faults: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Sensor faults other than blackouts of whole observations, by the names of the settings."""
    draws: int = DRAWS
    """Version of the random numbers. The same seed gives other blackouts in another version."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def median(self) -> float:
        return float(np.median(self.returns))

    @property
    def quartiles(self) -> tuple[float, float]:
        """The ends of the interquartile range."""
        low, high = np.percentile(self.returns, [25, 75])
        return float(low), float(high)


class Regret(NamedTuple):
    """Shortfall of the mean return from the best possible mean return, as a share of that optimum."""

    optimum: float
    share: float
    standard_error: float
    """Standard error of ``share``; NaN after a single episode."""


def regret(result: Evaluation) -> Regret | None:
    """Return the regret of an evaluation; None if the task's optimum is unknown."""
    # Optima are known for the paper's blackouts alone.
    optimum = None if result.faults else TASKS[result.task].optimum(result.dropout)
    if optimum is None:
        return None
    count, scale = len(result.returns), abs(optimum.mean_return)
    error = np.std(result.returns, ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return Regret(
        optimum.mean_return,
        (optimum.mean_return - result.mean) / scale,
        float(np.hypot(error, optimum.standard_error)) / scale,
    )


def evaluate(
    run: Run | str | pathlib.Path,
    *,
    dropout: float | None = None,
    sensors: SensorConfig | None = None,
    episodes: int = 100,
    seed: int = 0,
    step: Point = None,
    warn: Callable[[str], None] = warnings.warn,
    tell: Tell = nobody,
) -> tuple[Evaluation, pathlib.Path]:
    """Play episodes with a run's newest checkpoint; return the result and the file it was written to.

    ``step`` names another checkpoint or milestone, or "best" for the best policy of those evaluated during
    training.

    ``sensors`` default to those of training, and ``dropout`` to theirs. Settings of bursts and held values
    that are inherited from training are dropped where nothing goes dark. Inherited bursts that are too short
    for the probability are lengthened, with a warning.
    """
    prepare_jax()
    run = run if isinstance(run, Run) else open_run(pathlib.Path(run))
    asked = sensors or run.config.sensors
    asked = asked if dropout is None else dataclasses.replace(asked, dropout=dropout)
    sensors = evaluated_sensors(run.config, asked, warn=warn)
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}, but at least 1 episode is needed. The paper uses 100.")
    require_at_most("episodes", episodes, MOST_EPISODES)
    check_seed(seed)
    checkpoint, controller = load_controller(run, step, warn)
    returns = play(run.config.task, controller, sensors, episodes, seed, tell)
    result = Evaluation(
        run.config.task,
        sensors.dropout,
        seed,
        checkpoint.env_steps,
        tuple(float(r) for r in returns),
        sensors.other_faults,
    )
    return result, _write(run, result)


def evaluated_sensors(
    config: RunConfig,
    asked: SensorConfig,
    given: Collection[str] = (),
    warn: Callable[[str], None] = lambda text: None,
) -> SensorConfig:
    """Return the sensors to evaluate a trained policy with; raise if they do not fit the task.

    The mask input is always that of training. The settings in ``MODIFIERS`` (burst lengths and the like)
    count as inherited if they equal those of training and are not among the names in ``given``. Inherited
    settings never cause an error: they are dropped where they have no effect, and bursts are lengthened as
    far as necessary.
    """
    trained, task = config.sensors, config.task_record
    inherited = [
        name for name in MODIFIERS if name not in given and getattr(asked, name) == getattr(trained, name)
    ]
    fitting = drop_ineffective(dataclasses.replace(asked, mask_input=trained.mask_input), inherited)
    chosen = lengthen_bursts(fitting, inherited)
    check_sensors(chosen, task.observation, task.episode_steps)
    for name in (name for name in LENGTHS if getattr(chosen, name) != getattr(fitting, name)):
        often = ", ".join(
            f"{fault} is {getattr(chosen, fault):g}"
            for fault in MODIFIERS[name]
            if getattr(chosen, fault) > 0.0
        )
        warn(
            f"{name} is {getattr(chosen, name):.4g} and not {getattr(trained, name):.4g} as in training, "
            f"the least that is possible where {often}. Give {name} for longer bursts."
        )
    return chosen


def sensors_at(config: RunConfig, dropout: float) -> SensorConfig:
    """Return the sensors of training at another blackout probability."""
    return evaluated_sensors(config, dataclasses.replace(config.sensors, dropout=dropout))


def play(
    task: str, agent: AbstractAgent, sensors: SensorConfig, episodes: int, seed: int, tell: Tell = nobody
) -> Float[np.ndarray, " N"]:
    """Return the returns of ``episodes`` episodes, played in batches of at most ``LARGEST_BATCH``."""
    rounds = -(-episodes // LARGEST_BATCH)
    batch = -(-episodes // rounds)
    env = make_env(task, batch, [seed + SEED_OFFSET], sensors)
    player = functools.partial(first_episodes, env)
    # Named, because most contain the address of the simulator and must not be kept for other processes.
    player.__name__ = program_name(env)  # type: ignore[attr-defined]
    program = jax.jit(player)
    try:
        parts = []
        for number, key in enumerate(round_keys(seed, rounds)):
            tell(number / rounds, f"{min(number * batch, episodes)} of {episodes} episodes")
            key_reset, key_steps = jax.random.split(key)
            env_state, timestep = env.reset(key_reset)
            parts.append(np.asarray(program(agent, env_state, timestep, key_steps).returns))
            env.check()
    finally:
        env.close()
        forget_uncacheable()
    return np.concatenate(parts)[:episodes]


def round_keys(seed: int, rounds: int) -> Key[Array, " R"]:
    """Return the random keys of an evaluation's rounds. Training derives none of them, whatever its seed."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), DOMAIN), rounds)


def to_json(result: Evaluation) -> dict[str, Any]:
    """Return the JSON document of an evaluation: its summary, and every return."""
    low, high = result.quartiles
    summary = {
        "mean": result.mean,
        "median": result.median,
        "quartile_low": low,
        "quartile_high": high,
        "episodes": len(result.returns),
    }
    known = regret(result)
    if known is not None:
        summary |= {"optimum": known.optimum, "regret": known.share}
    return {"format": 1, "summary": summary, "evaluation": dataclasses.asdict(result)}


def _write(run: Run, result: Evaluation) -> pathlib.Path:
    document = to_json(result) | {"written": time.strftime("%Y-%m-%dT%H:%M:%S")}
    path = _file(run, result.env_steps, result.dropout, result.faults, len(result.returns), result.seed)
    output_folder(run.evaluations)
    write_atomically(path, json.dumps(document, indent=1).encode())
    return path


def _file(
    run: Run, env_steps: int, dropout: float, faults: dict[str, Any], episodes: int, seed: int
) -> pathlib.Path:
    others = "".join(
        f"_{name}_{'+'.join(value) if isinstance(value, tuple) else value}"
        for name, value in sorted(faults.items())
    )
    name = f"step_{env_steps:012d}_dropout_{dropout:g}{others}_episodes_{episodes}_seed_{seed}.json"
    if len(name.encode()) > LONGEST_NAME:
        # The document has the faults in full.
        name = name.replace(others, f"_faults_{hashlib.sha256(others.encode()).hexdigest()[:16]}")
    return run.evaluations / name


def find_evaluation(run: Run, sensors: SensorConfig, episodes: int, seed: int = 0) -> Evaluation | None:
    """Return the evaluation of the newest checkpoint with these settings; None if none can be read.

    An evaluation with another version of the random numbers is not reused: its blackouts differ from those of
    the evaluations that it would be compared with.
    """
    found = read_evaluation(
        _file(run, newest_steps(run.checkpoints), sensors.dropout, sensors.other_faults, episodes, seed)
    )
    return found if found is not None and found.draws == DRAWS else None


def read_evaluation(path: pathlib.Path) -> Evaluation | None:
    """Read what :func:`evaluate` wrote to ``path``; None if it is missing or damaged."""
    try:
        record = json.loads(path.read_text())["evaluation"]
        returns, dropout = tuple(float(value) for value in record["returns"]), float(record["dropout"])
        if not returns or not np.isfinite(returns).all() or not 0.0 <= dropout <= 1.0:
            return None
        # Older evaluations do not record other faults.
        faults = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record.get("faults", {}).items()
        }
        draws = int(record.get("draws", 1))
        return Evaluation(
            record["task"], dropout, int(record["seed"]), int(record["env_steps"]), returns, faults, draws
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
