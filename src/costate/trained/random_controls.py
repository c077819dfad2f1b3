"""The return of uniform random controls on a task: the baseline of a policy that has learnt nothing."""

import contextlib
import hashlib
import json
import pathlib
from typing import NamedTuple

import jax
import numpy as np

from costate._base.checks import WIDEST_BOUND
from costate._base.errors import CostateError
from costate._base.files import write_atomically
from costate._base.progress import Tell, nobody
from costate._base.rounding import rounded
from costate._base.types import Array, Float, Key
from costate.envs.base import AbstractActuators, TimeStep
from costate.envs.sensors import SensorConfig
from costate.envs.suites import BUILT_IN
from costate.envs.tasks import TASKS
from costate.policies.controllers import AbstractAgent, Carry
from costate.policies.squashed import to_bounds
from costate.runs.machine import versions
from costate.trained.evaluation import LARGEST_BATCH, play
from costate.training.startup import cache_directory, prepare_jax

# One batch of an evaluation.
EPISODES = LARGEST_BATCH
SEED = 0


class RandomReturn(NamedTuple):
    """The mean return of episodes with uniform random controls."""

    mean: float
    standard_error: float
    episodes: int

    def __str__(self) -> str:
        mean, error = rounded(self.mean, self.standard_error, least=1)
        return f"{mean} ± {error}"


class RandomAgent(AbstractAgent):
    """Draws controls uniformly within the bounds of the actuators, whatever it observes."""

    key: Key[Array, ""]

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return self.key

    def decide(
        self, env: AbstractActuators, now: TimeStep, memory: Carry
    ) -> tuple[Float[Array, "B A"], Carry]:
        key, key_control = jax.random.split(memory)
        if np.max(np.abs([env.action_low, env.action_high])) > WIDEST_BOUND:
            raise CostateError(
                "The controls of this task have no bounds, so there are no uniform random ones."
            )
        control = jax.random.uniform(key_control, (env.batch_size, env.action_size), minval=-1.0)
        return to_bounds(control, env.action_low, env.action_high), key


def random_return(task: str, tell: Tell = nobody) -> RandomReturn:
    """Return the mean return of random controls on a task.

    For a built-in task it is computed once and kept in the user's cache.
    """
    file = _file(task)
    if file is not None and (kept := _read(file)) is not None:
        return kept
    found = play_random(task, tell=tell)
    if file is not None:
        # Failing to write the cache does no harm: it can be computed again.
        with contextlib.suppress(OSError, CostateError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(found._asdict()).encode())
    return found


def play_random(task: str, episodes: int = EPISODES, seed: int = SEED, tell: Tell = nobody) -> RandomReturn:
    """Play episodes with random controls. The sensors do not matter."""
    prepare_jax()
    returns = play(task, RandomAgent(jax.random.key(seed)), SensorConfig(dropout=0.0), episodes, seed, tell)
    error = float(np.std(returns, ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else float("nan")
    return RandomReturn(float(np.mean(returns)), error, len(returns))


def _file(task: str) -> pathlib.Path | None:
    """Return the cache file of a task's return.

    None for a task of the user's, which may change, and for a user without a home directory.
    """
    folder = cache_directory()
    if folder is None or task not in BUILT_IN:
        return None
    record = TASKS[task]
    decisive = [task, record.engine, record.episode_steps, EPISODES, SEED, versions()]
    return (
        folder.parent
        / "random_returns"
        / f"{task}-{hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:12]}.json"
    )


def _read(file: pathlib.Path) -> RandomReturn | None:
    try:
        record = json.loads(file.read_text())
        return RandomReturn(float(record["mean"]), float(record["standard_error"]), int(record["episodes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
