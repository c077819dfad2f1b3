"""One gradient step of soft actor-critic, and the state that it changes."""

import dataclasses
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from costate._base.types import Array, Float, Key, PyTree
from costate.learners.averages import Metrics
from costate.learners.replay import Replay, Windows, sample
from costate.learners.sac.losses import Networks, loss_weights, sac_loss
from costate.learners.sac.settings import SACSettings
from costate.learners.sharding import ALONE, Shards
from costate.losses import WeightedLoss
from costate.policies.cores.memoryless import MemorylessConfig
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import RecurrentActor, RecurrentCritic, build_actor, build_critic

Part = TypeVar("Part", RecurrentActor, RecurrentCritic, tuple[WeightedLoss, ...])


class SACState(eqx.Module):
    """The training state of soft actor-critic without the replay."""

    networks: Networks
    target: RecurrentCritic
    optimiser: PyTree
    observation_stats: RunningStats


def initial_sac_state(
    config: SACSettings,
    policy: PolicyConfig,
    key: Key[Array, ""],
    stats: RunningStats,
    action_size: int,
    losses: tuple[WeightedLoss, ...] = (),
) -> SACState:
    """Return the state before the first update."""
    key_actor, key_critic = jax.random.split(key)
    observation_size = stats.mean.shape[0]
    networks = Networks(
        build_actor(policy, key_actor, observation_size, action_size),
        build_critic(
            critic_config(config, policy),
            config.critic_head,
            config.head_width,
            key_critic,
            observation_size,
            action_size,
        ),
        jnp.log(jnp.float32(config.initial_temperature)),
        losses,
    )
    return SACState(networks, networks.critic, make_sac_optimiser(config).init(networks), stats)


def critic_config(config: SACSettings, policy: PolicyConfig) -> PolicyConfig:
    """Return the config of a critic: that of the actor, but without a memory if the critic is sighted."""
    return dataclasses.replace(policy, core=MemorylessConfig()) if config.sighted else policy


def make_sac_optimiser(config: SACSettings) -> optax.GradientTransformation:
    """Return one Adam for all weights. It works by components, so that only the learning rate is shared."""
    return optax.adam(config.learning_rate)


def clip_parts(gradient: Networks, limit: float) -> Networks:
    """Clip the gradients of actor and critic separately, because their norms are unrelated."""

    def clip(part: Part) -> Part:
        clipped: Part = jax.tree.map(
            lambda leaf: leaf * jnp.minimum(1.0, limit / jnp.maximum(optax.tree.norm(part), 1e-12)), part
        )
        return clipped

    losses = clip(gradient.losses) if gradient.losses else ()
    return Networks(clip(gradient.actor), clip(gradient.critic), gradient.log_temperature, losses)


def sac_update(
    config: SACSettings,
    observation_clip: float | None,
    state: SACState,
    replay: Replay,
    key: Key[Array, ""],
    shards: Shards = ALONE,
    costate_scale: Float[Array, ""] | float = 1.0,
) -> tuple[SACState, Metrics]:
    """Make one gradient step on one batch of windows.

    All shards draw the same windows, and each computes its share of them.
    """
    key_windows, key_noise = jax.random.split(key)
    settings = config.replay
    windows = sample(replay, key_windows, settings.window, settings.batch)
    weight = loss_weights(windows.usable, settings.burn_in)
    noise = jax.random.normal(key_noise, (*weight.shape, replay.rows.action.shape[-1]))
    over_time, at_start = (windows.rows, windows.usable, weight, noise), (windows.before, windows.memory)
    own_rows, own_usable, own_weight, own_noise = jax.tree.map(
        lambda array: shards.part(array, axis=1), over_time
    )
    own_windows = Windows(
        own_rows, own_usable, *jax.tree.map(lambda array: shards.part(array, axis=0), at_start)
    )
    gradient, metrics = jax.grad(sac_loss, has_aux=True)(
        state.networks,
        config,
        observation_clip,
        state.target,
        state.observation_stats,
        own_windows,
        own_weight,
        own_noise,
        costate_scale,
    )
    gradient, metrics = shards.total((gradient, metrics))
    clipped = clip_parts(gradient, config.max_gradient_norm)
    changes, optimiser = make_sac_optimiser(config).update(clipped, state.optimiser, state.networks)
    networks = optax.apply_updates(state.networks, changes)
    target = jax.tree.map(
        lambda old, new: old + config.target_rate * (new - old), state.target, networks.critic
    )
    metrics |= {
        "losses/grad_norm": optax.tree.norm(gradient),
        "training/temperature": jnp.exp(networks.log_temperature),
    }
    return SACState(networks, target, optimiser, state.observation_stats), metrics
