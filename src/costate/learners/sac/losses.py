"""Soft actor-critic over replayed windows with a burn-in, and the co-state loss (Eq. 4.2).

The learner is that of Haarnoja et al. (2018), the burn-in that of Kapturowski et al. (2019). Off-policy the
value of an observation is V(ỹ_t) = E_{u∼π} min_i Q_i(h_t, u) − α log π(u), where ỹ and h are the critic's.
The last term does not depend on ỹ, because π has an encoder of its own, so the co-state's target is

    λ̂_t = stop_gradient ∂V/∂ỹ_t = (∂h_t/∂ỹ_t)ᵀ ∂/∂h_t E_{u∼π} min_i Q_i(h_t, u),

with what the core carried before held fixed, exactly as for PPO. The expectation is estimated by the one
control that the actor's loss samples.

A critic is only needed while learning, where a simulator knows what the sensors would have shown. One that
sees it (`critic="sighted"`; Pinto et al. 2017) needs no memory, and its gradient is that of a value of the
state itself. The actor's memory is then pulled to the co-state at the true observation, which the actor
cannot see half of the time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float
from costate.learners.averages import Metrics, row_weights, weighted_sum
from costate.learners.replay import Windows
from costate.learners.sac.settings import SACSettings
from costate.losses import Evidence, WeightedLoss, auxiliary_terms
from costate.policies.cores import Memory
from costate.policies.costate_loss import costate_loss, targets_from_slopes
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import (
    RecurrentActor,
    RecurrentCritic,
    controls_before,
    read_window,
    sac_inputs,
    starting_memories,
)


class Networks(eqx.Module):
    """All weights that gradients change."""

    actor: RecurrentActor
    critic: RecurrentCritic
    log_temperature: Float[Array, ""]
    losses: tuple[WeightedLoss, ...] = ()
    """Auxiliary losses with their weights."""


def q_and_gradients(
    critic: RecurrentCritic, hidden: Float[Array, "M N H"], action: Float[Array, "M N A"]
) -> tuple[Array, Array, Array]:
    """Return min_i Q_i and its gradients by memory and control, from one pass through the heads."""
    value, pull_back = jax.vjp(critic.lowest, hidden, action)
    by_hidden, by_action = pull_back(jnp.ones_like(value))
    return value, by_hidden, by_action


def loss_weights(usable: Bool[Array, "L N"], burn_in: int) -> Float[Array, "M N"]:
    """Return equal weights for the usable rows after the burn-in.

    They sum to 1, or are all zero if no row is usable. The last row of a window has no outcome and is never
    among them.
    """
    return row_weights(usable[burn_in:].astype(jnp.float32))


def sac_loss(
    networks: Networks,
    config: SACSettings,
    observation_clip: float | None,
    target: RecurrentCritic,
    stats: RunningStats,
    windows: Windows,
    weight: Float[Array, "M N"],
    noise: Float[Array, "M N A"],
    costate_scale: Float[Array, ""] | float = 1.0,
) -> tuple[Float[Array, ""], Metrics]:
    """Return L_critic + L_actor + L_temperature + c₃ L_co-state.

    Each network gets the gradient of its own losses only. ``costate_scale`` is the share of c₃ that has been
    reached.
    """
    rows, burn_in = windows.rows, config.replay.burn_in
    actor, critic = networks.actor, networks.critic
    before = controls_before(rows.action, windows.before)
    inputs = sac_inputs(stats, observation_clip, rows.observation, rows.seen, before, rows.is_first)
    truth = None
    if rows.complete is not None:
        truth = sac_inputs(
            stats, observation_clip, rows.complete, jnp.ones_like(rows.seen), before, rows.is_first
        )
    critic_inputs = inputs if truth is None or not config.sighted else truth
    of_actor, of_critic = starting_memories(windows.memory, actor.core.state_size)
    actor_memory = read_window(actor, inputs, rows.is_first, burn_in, of_actor)
    critic_memory = read_window(critic, critic_inputs, rows.is_first, burn_in, of_critic)
    target_memory = read_window(target, critic_inputs, rows.is_first, burn_in, of_critic)

    action, log_prob = actor.distribution(actor_memory.features, actor_memory.hiddens).sample_and_log_prob(
        noise
    )
    frozen, frozen_memory = jax.lax.stop_gradient((critic, critic_memory))
    value, by_hidden, by_action = jax.lax.stop_gradient(
        q_and_gradients(frozen, frozen_memory.hiddens, action)
    )
    temperature = jnp.exp(networks.log_temperature)
    fixed_temperature = jax.lax.stop_gradient(temperature)

    # ∂/∂θ min Q(h, u_θ) = ∂Q/∂u · ∂u/∂θ: the derivative by the control is known already, so no second pass
    # through the critic is needed.
    actor_loss = weighted_sum(fixed_temperature * log_prob - (by_action * action).sum(-1), weight)
    backup = soft_backup(
        config,
        target,
        target_memory,
        rows.reward[burn_in:],
        rows.discount[burn_in:],
        action,
        log_prob,
        fixed_temperature,
    )
    head_losses = critic.losses(critic_memory.hiddens, rows.action[burn_in:], backup)
    critic_loss = sum(weighted_sum(each, weight) for each in head_losses)
    entropy = -weighted_sum(jax.lax.stop_gradient(log_prob), weight)
    wanted = config.target_entropy * action.shape[-1] * weight.sum()
    # Too little entropy raises α, too much lowers it.
    temperature_loss = networks.log_temperature * (entropy - wanted)

    targets = targets_from_slopes(critic.core, critic_memory, by_hidden)
    aims = targets[..., None, :]
    costate = costate_loss(config, actor.core, actor_memory, aims, weight)
    own = costate_loss(config, critic.core, critic_memory, aims, weight)
    loss = actor_loss + critic_loss + temperature_loss
    auxiliary: Metrics = {}
    if networks.losses:
        assert truth is not None, "rows hold the truth where a loss asks for it"
        sensors = rows.observation.shape[-1]
        evidence = Evidence(
            hidden=actor_memory.hiddens,
            features=actor_memory.features,
            observation=inputs[burn_in:, :, :sensors],
            complete=truth[burn_in:, :, :sensors],
            costate=targets,
            seen=rows.seen[burn_in:],
            is_first=rows.is_first[burn_in:],
        )
        term, auxiliary = auxiliary_terms(networks.losses, evidence, weight)
        loss = loss + term
    if config.costate_coef > 0.0:
        pulled = costate + own if config.costate_memory == "both" else costate
        loss = loss + config.costate_coef * costate_scale * pulled
    return loss, auxiliary | {
        # What the loss estimates; the loss itself stands for it only in its gradient.
        "losses/policy": weighted_sum(fixed_temperature * log_prob - value, weight),
        "losses/value": jnp.asarray(critic_loss),
        "losses/entropy": entropy,
        "losses/costate": costate,
        "losses/costate_critic": own,
        "losses/q": weighted_sum(value, weight),
        "losses/temperature": temperature_loss,
    }


def soft_backup(
    config: SACSettings,
    target: RecurrentCritic,
    memory: Memory,
    reward: Float[Array, "M N"],
    discount: Float[Array, "M N"],
    action: Float[Array, "M N A"],
    log_prob: Float[Array, "M N"],
    temperature: Float[Array, ""],
) -> Float[Array, "M N"]:
    """Return r_t + γ γ_t (min_i Q̄_i(h̄_{t+1}, u_{t+1}) − α log π(u_{t+1})) by the target critic.

    It has no meaning in the last row.
    """
    after = target.lowest(memory.hiddens, action) - temperature * log_prob
    following = jnp.concatenate([after[1:], jnp.zeros_like(after[:1])])
    return jax.lax.stop_gradient(reward + config.discount * discount * following)
