"""Rollouts of soft actor-critic: environment × actor → rows for the replay, in one compiled loop.

They are like the paper's rollouts, without the values that on-policy learning needs.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool, Float, Int, Key
from costate.envs.base import AbstractEnv, EnvState, TimeStep, anything_seen, true_observation
from costate.learners.replay import ReplayRows
from costate.learners.rollout import Exploration, count_step, read_in_part, state_size_of
from costate.learners.states import StreamState
from costate.policies.cores import step_batch
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import RecurrentActor, RecurrentCritic, act_once, sac_inputs


class SACRolloutState(StreamState):
    """State of all streams between two iterations."""

    env_state: EnvState
    timestep: TimeStep
    core_state: Float[Array, "*N B C"]
    critic_state: Float[Array, "*N B G"] | None
    """The critic's memory; None unless it is stored with every row."""
    before: Float[Array, "*N B A"]
    """The control before the observation."""
    episode_return: Float[Array, "*N B"]
    episode_length: Int[Array, "*N B"]


def begin_sac(
    env: AbstractEnv, actors: RecurrentActor, critics: RecurrentCritic | None, keys: Key[Array, " N"]
) -> SACRolloutState:
    """Start an episode in every environment of every seed, with an empty memory (runs on the host)."""
    env_state, timestep = env.reset_seeds(keys)
    shape = (keys.shape[0], env.batch_size)
    widths = (
        state_size_of(actors.core),
        None if critics is None else state_size_of(critics.core),
        env.action_size,
    )
    # Made by NumPy, for the reason given in `first_step`.
    memories = (None if width is None else np.zeros((*shape, width), np.float32) for width in widths)
    return SACRolloutState(
        env_state,
        timestep,
        *jax.device_put((*memories, np.zeros(shape, np.float32), np.zeros(shape, np.int32))),
    )


class Episodes(NamedTuple):
    """Ends, returns and lengths of episodes, row by row."""

    ends: Bool[Array, "T B"]
    episode_return: Float[Array, "T B"]
    episode_length: Int[Array, "T B"]


def roll_sac(
    env: AbstractEnv,
    observation_clip: float | None,
    actor: RecurrentActor,
    critic: RecurrentCritic | None,
    stats: RunningStats,
    warming_up: Bool[Array, ""],
    state: SACRolloutState,
    exploration: Exploration,
    with_complete: bool = False,
    fault_share: Float[Array, ""] | None = None,
    explorers: int = 0,
    sighted: bool = True,
) -> tuple[SACRolloutState, ReplayRows, Episodes]:
    """Make T steps of every environment of one seed, by the actor, or by uniform controls in the warm-up.

    A ``critic`` is given if rows store the memories of both networks. With ``with_complete`` rows store what
    working sensors would have shown, which a ``sighted`` critic reads. ``fault_share`` is the share of
    observations exposed to faults while these set in. The first ``explorers`` environments always act by
    uniform controls. Their returns say nothing about the policy, so the ends of their episodes are left out.
    """
    explores = jnp.arange(env.batch_size) < explorers
    actor = dataclasses.replace(actor, core=actor.core.unstacked())
    critic = None if critic is None else dataclasses.replace(critic, core=critic.core.unstacked())

    def advance(
        state: SACRolloutState, drawn: Exploration
    ) -> tuple[SACRolloutState, tuple[ReplayRows, Episodes]]:
        now, seen = state.timestep, anything_seen(state.timestep)
        inputs = sac_inputs(stats, observation_clip, now.observation, seen, state.before, now.is_first)
        distribution, core_state = act_once(actor, inputs, state.core_state, now.is_first)
        complete = true_observation(now) if with_complete else None
        critic_state, memory = state.critic_state, None
        if critic is not None and critic_state is not None:
            memory = jnp.concatenate([state.core_state, critic_state], axis=-1)
            critic_inputs = inputs
            if complete is not None and sighted:
                critic_inputs = sac_inputs(
                    stats, observation_clip, complete, jnp.ones_like(seen), state.before, now.is_first
                )
            critic_state = step_batch(
                critic.core, critic.encoder.encode(critic_inputs), critic_state, now.is_first
            )
        action = jnp.where(
            (warming_up | explores)[:, None],
            uniform_control(drawn.noise),
            distribution.sample(drawn.noise),
        )
        env_state, after = env.advance(
            state.env_state, distribution.actuate(action, env.action_low, env.action_high), drawn.drawn
        )
        after = read_in_part(after, drawn.chance, fault_share)
        episode_return, episode_length = count_step(now, after, state.episode_return, state.episode_length)
        row = ReplayRows(
            now.observation,
            action,
            after.reward,
            after.discount,
            now.is_first,
            now.is_last,
            seen,
            memory,
            complete,
        )
        following = SACRolloutState(
            env_state, after, core_state, critic_state, action, episode_return, episode_length
        )
        return following, (row, Episodes(after.is_last & ~explores, episode_return, episode_length))

    state, (rows, episodes) = jax.lax.scan(advance, state, exploration)
    return state, rows, episodes


def uniform_control(noise: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
    """Return uniform numbers in (−1, 1) from standard normal ones: 2Φ(ε) − 1."""
    return jax.scipy.special.erf(noise / jnp.sqrt(2.0))
