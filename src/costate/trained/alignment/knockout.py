"""Knock out the memory: play a trained policy with its core's state erased every so many steps."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.progress import Tell, nobody
from costate._base.types import Array, Float, Int
from costate.envs.base import AbstractActuators, TimeStep
from costate.envs.sensors import SensorConfig
from costate.policies.controllers import AbstractController, Carry
from costate.policies.running_stats import RunningStats
from costate.trained.evaluation import LARGEST_BATCH, play

PERIODS = (1, 2, 4, 8, 16, 32, 64)
"""Steps between two erasures of the memory."""
NEVER = 1_000_000
"""A period longer than any episode."""


class Knockout(NamedTuple):
    """Mean returns with the memory erased and intact, each over its own episodes."""

    means: dict[int, float]
    """By the number of steps between two erasures."""
    errors: dict[int, float]
    """Standard error of the difference from ``intact``, by the same number."""
    intact: float
    """Mean return with the memory intact."""


def summarise(returns: Mapping[int, Float[np.ndarray, " N"]]) -> Knockout:
    """Summarise the returns of every period, one of which is :data:`NEVER`."""
    squares = {every: float(np.var(each, ddof=1)) / len(each) for every, each in returns.items()}
    erased = [every for every in returns if every != NEVER]
    return Knockout(
        means={every: float(np.mean(returns[every])) for every in erased},
        errors={every: float(np.sqrt(squares[every] + squares[NEVER])) for every in erased},
        intact=float(np.mean(returns[NEVER])),
    )


class ForgetfulController(AbstractController):
    """A controller whose memory is erased every so many observations.

    Observations are counted from the start of the episode. Each stream has its own period.
    """

    controller: AbstractController
    stats: RunningStats
    every: Int[Array, " B"]

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return self.controller.empty_memory(env), jnp.zeros(env.batch_size, jnp.int32)

    def decide(
        self, env: AbstractActuators, now: TimeStep, memory: Carry
    ) -> tuple[Float[Array, "B A"], Carry]:
        inner, count = memory
        count = jnp.where(now.is_first, 0, count)
        state = self.controller.core_state(inner)
        kept = jnp.where((count % self.every == 0)[:, None], jnp.zeros_like(state), state)
        control, inner = self.controller.decide(env, now, self.controller.with_core_state(inner, kept))
        return control, (inner, count + 1)

    def feature(self, now: TimeStep, memory: Carry) -> Float[Array, "B F"]:
        return self.controller.feature(now, memory[0])

    def hidden(self, memory: Carry) -> Float[Array, "B H"]:
        return self.controller.hidden(memory[0])

    def in_features(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S F"]:
        return self.controller.in_features(hidden)

    def core_state(self, memory: Carry) -> Float[Array, "B C"]:
        return self.controller.core_state(memory[0])

    def with_core_state(self, memory: Carry, core_state: Float[Array, "B C"]) -> Carry:
        return self.controller.with_core_state(memory[0], core_state), memory[1]


def forgetful(controller: AbstractController, every: Sequence[int]) -> ForgetfulController:
    """Return the controller with its core's state erased every ``every[i]`` steps in stream i."""
    if min(every) < 1:
        raise ConfigError(
            f"The hidden state is to be erased every {min(every)} steps, but the period must be at least 1, "
            "which leaves no memory at all."
        )
    return ForgetfulController(
        controller=controller, stats=controller.stats, every=jnp.asarray(every, jnp.int32)
    )


def returns_without_memory(
    task: str,
    controller: AbstractController,
    sensors: SensorConfig,
    episodes: int,
    seed: int,
    tell: Tell = nobody,
) -> Knockout:
    """Return the mean return for every period of erasing the core's state.

    Each is the mean of at least ``episodes`` episodes.

    All periods are played in one batch, so that only one simulator is built and one program compiled.
    """
    periods = (*PERIODS, NEVER)
    copies = LARGEST_BATCH // len(periods)
    rounds = -(-episodes // copies)
    returns = play(
        task, forgetful(controller, periods * copies), sensors, rounds * copies * len(periods), seed, tell
    )
    return summarise(dict(zip(periods, returns.reshape(-1, len(periods)).T, strict=True)))
