"""Probe worlds with known values. Each can be solved only if one particular part of a learner works."""

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Int, Key
from costate.envs.worlds.analytic import AbstractWorld

Advanced = tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]
"""State, reward, and whether the episode has terminated."""


def _sign(key: Key[Array, ""]) -> Float[Array, ""]:
    """Return ±1 with equal probability."""
    return 2.0 * jax.random.bernoulli(key).astype(jnp.float32) - 1.0


class ConstantReward(AbstractWorld):
    """One step, reward 1: V = 1. Isolates the critic's regression."""

    observation_size = 1
    action_size = 1
    episode_steps = 1

    def initial(self, key: Key[Array, ""]) -> Float[Array, ""]:
        return jnp.zeros(())

    def observe(self, state: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, " O"]:
        return state[None]

    def advance(self, state: Float[Array, ""], action: Float[Array, " A"], key: Key[Array, ""]) -> Advanced:
        return state, jnp.ones(()), jnp.ones((), bool)


class ObservedReward(AbstractWorld):
    """One step, reward equal to the observation ±1: V(y) = y. Isolates the path from observation to value."""

    observation_size = 1
    action_size = 1
    episode_steps = 1

    def initial(self, key: Key[Array, ""]) -> Float[Array, ""]:
        return _sign(key)

    def observe(self, state: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, " O"]:
        return state[None]

    def advance(self, state: Float[Array, ""], action: Float[Array, " A"], key: Key[Array, ""]) -> Advanced:
        return state, state, jnp.ones((), bool)


class DelayedReward(AbstractWorld):
    """Two steps, observations 0 then 1, reward 1 at the end: V(0) = γ, V(1) = 1. Isolates discounting."""

    observation_size = 1
    action_size = 1
    episode_steps = 2

    def initial(self, key: Key[Array, ""]) -> Float[Array, ""]:
        return jnp.zeros(())

    def observe(self, state: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, " O"]:
        return state[None]

    def advance(self, state: Float[Array, ""], action: Float[Array, " A"], key: Key[Array, ""]) -> Advanced:
        return state + 1.0, state, state >= 1.0


class EndlessReward(AbstractWorld):
    """Reward 1 forever, with a time limit of 5 steps: V = 1 / (1 − γ).

    Isolates the bootstrap at time limits, without which V < 5.
    """

    observation_size = 1
    action_size = 1
    episode_steps = 5

    def initial(self, key: Key[Array, ""]) -> Float[Array, ""]:
        return jnp.zeros(())

    def observe(self, state: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, " O"]:
        return state[None]

    def advance(self, state: Float[Array, ""], action: Float[Array, " A"], key: Key[Array, ""]) -> Advanced:
        return state, jnp.ones(()), jnp.zeros((), bool)


class TargetAction(AbstractWorld):
    """One step, reward −(u − ½ y)² with y = ±1: the best control is ½ y. Isolates the actor."""

    observation_size = 1
    action_size = 1
    episode_steps = 1

    def initial(self, key: Key[Array, ""]) -> Float[Array, ""]:
        return _sign(key)

    def observe(self, state: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, " O"]:
        return state[None]

    def advance(self, state: Float[Array, ""], action: Float[Array, " A"], key: Key[Array, ""]) -> Advanced:
        return state, -jnp.square(action[0] - 0.5 * state), jnp.ones((), bool)


class FuelledAction(AbstractWorld):
    """One step, reward y u − ½|u| with y = −1, 0 or 1: the best u in ±1 is y.

    Isolates switching control laws.
    """

    observation_size = 1
    action_size = 1
    episode_steps = 1

    def initial(self, key: Key[Array, ""]) -> Float[Array, ""]:
        return jax.random.randint(key, (), -1, 2).astype(jnp.float32)

    def observe(self, state: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, " O"]:
        return state[None]

    def advance(self, state: Float[Array, ""], action: Float[Array, " A"], key: Key[Array, ""]) -> Advanced:
        return state, state * action[0] - 0.5 * jnp.abs(action[0]), jnp.ones((), bool)


class _Cue(eqx.Module):
    sign: Float[Array, ""]
    elapsed: Int[Array, ""]


class RememberedCue(AbstractWorld):
    """A cue ±1 is observed once, and three steps later the reward is −(u − ½ cue)².

    Isolates memory, without which the best return is −¼.
    """

    observation_size = 1
    action_size = 1
    episode_steps = 4

    def initial(self, key: Key[Array, ""]) -> _Cue:
        return _Cue(_sign(key), jnp.zeros((), jnp.int32))

    def observe(self, state: _Cue, key: Key[Array, ""]) -> Float[Array, " O"]:
        return jnp.where(state.elapsed == 0, state.sign, 0.0)[None]

    def advance(
        self, state: _Cue, action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[_Cue, Float[Array, ""], Bool[Array, ""]]:
        at_end = state.elapsed >= 3
        reward = jnp.where(at_end, -jnp.square(action[0] - 0.5 * state.sign), 0.0)
        return _Cue(state.sign, state.elapsed + 1), reward, at_end
