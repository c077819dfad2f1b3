"""What memory is worth: the same policy with its hidden state erased every so many steps."""

import equinox as eqx
import jax.numpy as jnp

from costate._errors import ConfigError
from costate._types import Array, Float
from costate.controllers import AbstractController, Carry
from costate.envs.base import AbstractActuators, TimeStep
from costate.running_stats import RunningStats


class ForgetfulController(AbstractController):
    """Another controller that forgets before every ``every``-th observation, counted from the start of the episode."""

    controller: AbstractController
    stats: RunningStats
    every: int = eqx.field(static=True)

    def empty_memory(self, env: AbstractActuators) -> Carry:
        return self.controller.empty_memory(env), jnp.zeros(env.batch_size, jnp.int32)

    def decide(self, env: AbstractActuators, now: TimeStep, memory: Carry) -> tuple[Float[Array, "B A"], Carry]:
        inner, count = memory
        count = jnp.where(now.is_first, 0, count)
        hidden = self.controller.hidden(inner)
        kept = jnp.where((count % self.every == 0)[:, None], jnp.zeros_like(hidden), hidden)
        control, inner = self.controller.decide(env, now, self.controller.with_hidden(inner, kept))
        return control, (inner, count + 1)

    def feature(self, now: TimeStep, memory: Carry) -> Float[Array, "B F"]:
        return self.controller.feature(now, memory[0])

    def hidden(self, memory: Carry) -> Float[Array, "B H"]:
        return self.controller.hidden(memory[0])

    def with_hidden(self, memory: Carry, hidden: Float[Array, "B H"]) -> Carry:
        return self.controller.with_hidden(memory[0], hidden), memory[1]


def forgetful(controller: AbstractController, every: int) -> ForgetfulController:
    """The controller with its hidden state erased every ``every`` steps; 1 leaves it no memory at all."""
    if every < 1:
        raise ConfigError(f"The hidden state is to be erased every {every} steps, but that must be at least 1, which leaves no memory at all.")
    return ForgetfulController(controller=controller, stats=controller.stats, every=every)
