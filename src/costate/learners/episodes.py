"""Whole episodes of a trained policy inside a compiled program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Int, Key
from costate.envs.base import AbstractEnv, Drawn, EnvState, TimeStep
from costate.policies.controllers import AbstractAgent


class FirstEpisodes(NamedTuple):
    """Results of playing for as many steps as the longest episode has."""

    returns: Float[Array, "*N B"]
    """Return of the first episode of each environment. Later episodes are not counted, because that would
    favour short ones."""
    restarts: Int[Array, "*N B"]
    """Further episodes that each environment began because its first one ended early."""


def first_episodes(
    env: AbstractEnv, agent: AbstractAgent, env_state: EnvState, timestep: TimeStep, key: Key[Array, ""]
) -> FirstEpisodes:
    """Play every environment of one seed from ``timestep``, a first step, without exploration noise."""

    def advance(carry: tuple[Any, ...], drawn: Drawn) -> tuple[tuple[Any, ...], None]:
        env_state, now, memory, running, total, restarts = carry
        control, memory = agent.decide(env, now, memory)
        env_state, after = env.advance(env_state, control, drawn)
        total = total + jnp.where(running, after.reward, 0.0)
        return (env_state, after, memory, running & ~after.is_last, total, restarts + after.is_first), None

    streams = env.batch_size
    start = (
        env_state,
        timestep,
        agent.empty_memory(env),
        jnp.ones(streams, bool),
        jnp.zeros(streams),
        jnp.zeros(streams, jnp.int32),
    )
    (_, _, _, _, total, restarts), _ = jax.lax.scan(
        advance, start, jax.vmap(env.draw)(jax.random.split(key, env.episode_steps))
    )
    return FirstEpisodes(total, restarts)
