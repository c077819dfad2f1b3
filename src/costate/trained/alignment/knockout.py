"""What memory is worth: the same policy with its core's state erased every so many steps."""

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
"""A period that no episode reaches."""


class Knockout(NamedTuple):
    """Mean returns with the memory erased and with it left alone, each over episodes of its own."""

    means: dict[int, float]
    """By the number of steps between two erasures."""
    errors: dict[int, float]
    """Standard error of the difference to ``intact``, by the same number."""
    intact: float
    """Mean return with the memory left alone."""


def summarise(returns: Mapping[int, Float[np.ndarray, " N"]]) -> Knockout:
    """Summarise the returns of every period, :data:`NEVER` among them."""
    squares = {every: float(np.var(each, ddof=1)) / len(each) for every, each in returns.items()}
    erased = [every for every in returns if every != NEVER]
    return Knockout(
        means={every: float(np.mean(returns[every])) for every in erased},
        errors={every: float(np.sqrt(squares[every] + squares[NEVER])) for every in erased},
        intact=float(np.mean(returns[NEVER])),
    )


class ForgetfulController(AbstractController):
    """Another controller that forgets before every so many observations, counted from the start of the episode; each stream with its own period."""

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
    """The controller with its core's state erased every ``every[i]`` steps in stream i; 1 leaves it no memory at all."""
    if min(every) < 1:
        raise ConfigError(
            f"The hidden state is to be erased every {min(every)} steps, but that must be at least 1, which leaves no memory at all."
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
    """Mean return by the period of erasing the core's state, each over at least ``episodes`` episodes.

    All periods are played side by side, so that there is one simulator to build and one program to compile.
    """
    kinds = (*PERIODS, NEVER)
    copies = LARGEST_BATCH // len(kinds)
    rounds = -(-episodes // copies)
    returns = play(
        task, forgetful(controller, kinds * copies), sensors, rounds * copies * len(kinds), seed, tell
    )
    return summarise(dict(zip(kinds, returns.reshape(-1, len(kinds)).T, strict=True)))
