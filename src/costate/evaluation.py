"""Evaluation: deterministic actions, frozen normaliser, whole episodes, any sensor faults."""

import dataclasses
import functools
import json
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._errors import ConfigError
from costate._files import explained_errors, write_atomically
from costate._progress import Tell, nobody
from costate._types import Array, Float, Key
from costate.checkpoint import newest_steps
from costate.config import check_seed
from costate.controllers import AbstractController
from costate.envs.base import AbstractEnv, Drawn, EnvState, TimeStep
from costate.envs.factory import make_env
from costate.envs.sensors import SensorConfig, check_sensors
from costate.envs.tasks import TASKS
from costate.programs import program_name
from costate.run_directory import Run, open_run
from costate.startup import forget_uncacheable, prepare_jax
from costate.trained import load_controller

# Pools larger than this take longer to build than they save in stepping.
LARGEST_BATCH = 32
# Added to the seed, so that evaluation never meets the episodes of training.
SEED_OFFSET = 1_000_003


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes under one kind of sensors."""

    task: str
    dropout: float
    seed: int
    env_steps: int
    """Training steps of the checkpoint that was evaluated."""
    returns: tuple[float, ...]
    faults: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What was wrong with the sensors beside blackouts of whole observations, by the names of the settings."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def median(self) -> float:
        return float(np.median(self.returns))

    @property
    def quartiles(self) -> tuple[float, float]:
        """The interquartile range's ends."""
        low, high = np.percentile(self.returns, [25, 75])
        return float(low), float(high)


class Regret(NamedTuple):
    """How far evaluated returns are from the best mean return that is possible, as a share of that."""

    optimum: float
    share: float
    standard_error: float
    """Of the share; not a number where a single episode was played."""


def regret(result: Evaluation) -> Regret | None:
    """None where nobody knows the task's optimum."""
    # Optima are known for the paper's blackouts alone.
    optimum = None if result.faults else TASKS[result.task].optimum(result.dropout)
    if optimum is None:
        return None
    count, scale = len(result.returns), abs(optimum.mean_return)
    error = np.std(result.returns, ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return Regret(optimum.mean_return, (optimum.mean_return - result.mean) / scale, float(np.hypot(error, optimum.standard_error)) / scale)


def evaluate(
    run: Run | str | pathlib.Path,
    *,
    dropout: float | None = None,
    sensors: SensorConfig | None = None,
    episodes: int = 100,
    seed: int = 0,
    step: int | None = None,
    warn: Callable[[str], None] = warnings.warn,
    tell: Tell = nobody,
) -> tuple[Evaluation, pathlib.Path]:
    """Play ``episodes`` episodes with a run's newest checkpoint (or the one at ``step``); returns the result and the file it was written to.

    ``sensors`` default to those that the run was trained with, and ``dropout`` to theirs.
    """
    prepare_jax()
    run = run if isinstance(run, Run) else open_run(pathlib.Path(run))
    sensors = evaluated_sensors(run, sensors, dropout)
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}, but at least 1 episode is needed. The paper uses 100.")
    check_seed(seed)
    checkpoint, controller = load_controller(run, step, warn)
    returns = play(run.config.task, controller, sensors, episodes, seed, tell)
    result = Evaluation(run.config.task, sensors.dropout, seed, checkpoint.env_steps, tuple(float(r) for r in returns), sensors.other_faults)
    return result, _write(run, result)


def evaluated_sensors(run: Run, sensors: SensorConfig | None, dropout: float | None) -> SensorConfig:
    """Other sensors for a trained policy, which is told beside them what it was told in training; raises if they do not fit the task."""
    trained = run.config.sensors
    chosen = dataclasses.replace(sensors or trained, mask_input=trained.mask_input)
    chosen = chosen if dropout is None else dataclasses.replace(chosen, dropout=dropout)
    task = run.config.task_record
    check_sensors(chosen, task.observation, task.episode_steps)
    return chosen


def play(task: str, controller: AbstractController, sensors: SensorConfig, episodes: int, seed: int, tell: Tell = nobody) -> Float[np.ndarray, " N"]:
    """Returns of ``episodes`` episodes, in rounds of as many environments as are worth building."""
    rounds = -(-episodes // LARGEST_BATCH)
    batch = -(-episodes // rounds)
    env = make_env(task, batch, [seed + SEED_OFFSET], sensors)
    player = functools.partial(first_returns, env)
    # Named, because most contain the address of the simulator and must not be kept for other processes.
    player.__name__ = program_name(env)  # type: ignore[attr-defined]
    program = jax.jit(player)
    try:
        parts = []
        for number, key in enumerate(jax.random.split(jax.random.key(seed), rounds)):
            tell(number / rounds, f"{min(number * batch, episodes)} of {episodes} episodes")
            key_reset, key_steps = jax.random.split(key)
            env_state, timestep = env.reset(key_reset)
            parts.append(np.asarray(program(controller, env_state, timestep, key_steps)))
            env.check()
    finally:
        env.close()
        forget_uncacheable()
    return np.concatenate(parts)[:episodes]


def first_returns(
    env: AbstractEnv, controller: AbstractController, env_state: EnvState, timestep: TimeStep, key: Key[Array, ""]
) -> Float[Array, " B"]:
    """Return of the first episode of every environment; later ones would favour short episodes and are not counted."""

    def advance(carry: tuple[Any, ...], drawn: Drawn) -> tuple[tuple[Any, ...], None]:
        env_state, now, memory, running, total = carry
        control, memory = controller.decide(env, now, memory)
        env_state, after = env.advance(env_state, control, drawn)
        total = total + jnp.where(running, after.reward, 0.0)
        return (env_state, after, memory, running & ~after.is_last, total), None

    start = (env_state, timestep, controller.empty_memory(env), jnp.ones(env.batch_size, bool), jnp.zeros(env.batch_size))
    (_, _, _, _, total), _ = jax.lax.scan(advance, start, jax.vmap(env.draw)(jax.random.split(key, env.episode_steps)))
    return total


def to_json(result: Evaluation) -> dict[str, Any]:
    """What is written of an evaluation: its summary, and every return."""
    low, high = result.quartiles
    summary = {"mean": result.mean, "median": result.median, "quartile_low": low, "quartile_high": high, "episodes": len(result.returns)}
    known = regret(result)
    if known is not None:
        summary |= {"optimum": known.optimum, "regret": known.share}
    return {"format": 1, "summary": summary, "evaluation": dataclasses.asdict(result)}


def _write(run: Run, result: Evaluation) -> pathlib.Path:
    document = to_json(result) | {"written": time.strftime("%Y-%m-%dT%H:%M:%S")}
    path = _file(run, result.env_steps, result.dropout, result.faults, len(result.returns), result.seed)
    with explained_errors(path):
        run.evaluations.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(document, indent=1).encode())
    return path


def _file(run: Run, env_steps: int, dropout: float, faults: dict[str, Any], episodes: int, seed: int) -> pathlib.Path:
    others = "".join(f"_{name}_{'+'.join(value) if isinstance(value, tuple) else value}" for name, value in sorted(faults.items()))
    return run.evaluations / f"step_{env_steps:012d}_dropout_{dropout:g}{others}_episodes_{episodes}_seed_{seed}.json"


def find_evaluation(run: Run, sensors: SensorConfig, episodes: int, seed: int = 0) -> Evaluation | None:
    """The evaluation of the newest checkpoint that was made with these settings; None if there is none, or none that can be read."""
    return read_evaluation(_file(run, newest_steps(run.checkpoints), sensors.dropout, sensors.other_faults, episodes, seed))


def read_evaluation(path: pathlib.Path) -> Evaluation | None:
    """What :func:`evaluate` wrote to ``path``; None if that is missing or damaged."""
    try:
        record = json.loads(path.read_text())["evaluation"]
        returns = tuple(float(value) for value in record["returns"])
        if not returns or not np.isfinite(returns).all():
            return None
        # Older evaluations knew no other faults.
        faults = {name: tuple(value) if isinstance(value, list) else value for name, value in record.get("faults", {}).items()}
        return Evaluation(record["task"], float(record["dropout"]), int(record["seed"]), int(record["env_steps"]), returns, faults)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
