"""The losses of PPO with the co-state loss on one minibatch of sequences (Algorithm 1 and Appendix E)."""

import jax
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Float
from costate.learners.averages import Metrics, weighted_sum
from costate.learners.ppo.batch import Batch, Rows
from costate.learners.ppo.settings import PPOSettings
from costate.learners.sharding import ALONE, Shards
from costate.losses import Evidence, WeightedLoss, auxiliary_terms
from costate.policies.cores import Memory
from costate.policies.costate_loss import (
    Targets,
    costate_loss,
    epistemic_spread,
    hidden_targets,
    member_targets,
    terminal_distance,
)
from costate.policies.distribution import AbstractDistribution
from costate.policies.policy import RecurrentActorCritic, Unrolled, unroll_policy


def surrogate_loss(
    ratio: Float[Array, "T S"], advantage: Float[Array, "T S"], clip_epsilon: float
) -> Float[Array, "T S"]:
    """Return −min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â) for every step (Schulman et al. 2017)."""
    return -jnp.minimum(
        ratio * advantage, jnp.clip(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon) * advantage
    )


def clipped_value_loss(
    value: Float[Array, "T S"], old: Float[Array, "T S"], target: Float[Array, "T S"], clip_epsilon: float
) -> Float[Array, "T S"]:
    """Return ½ max((V − R)², (V_clip − R)²) for every step (Huang et al. 2022).

    V_clip is V clipped to within ε of the value at collection.
    """
    near = old + jnp.clip(value - old, -clip_epsilon, clip_epsilon)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near - target))


def value_term(config: PPOSettings, unrolled: Unrolled, rows: Rows) -> Float[Array, ""]:
    """Return the value loss; of an ensemble the mean over its critics, each by its own rows."""

    def of_critic(value: Array, old: Array, weight: Array) -> Float[Array, ""]:
        if config.value_loss == "plain":
            return weighted_sum(0.5 * jnp.square(value - rows.value_target), weight)
        return weighted_sum(clipped_value_loss(value, old, rows.value_target, config.clip_epsilon), weight)

    if unrolled.member_values is None or rows.member_values is None or rows.member_weight is None:
        return of_critic(unrolled.value, rows.value, rows.weight)
    return jax.vmap(of_critic, in_axes=-1)(
        unrolled.member_values, rows.member_values, rows.member_weight
    ).mean()


def targets_of(config: PPOSettings, policy: RecurrentActorCritic, memory: Memory) -> Targets:
    """Return the targets that a policy's critic sets for hidden states, as far as the config needs them."""
    core, critic = policy.core, policy.critic
    return Targets(
        member_targets(core, critic, memory),
        hidden_targets(core, critic, memory) if config.costate_gradient == "both" else None,
    )


def aim_of(config: PPOSettings, target: Float[Array, "T S M K"]) -> Float[Array, "T S M K"]:
    """Return the target of each hypothesis: its own, or the mean of all."""
    return (
        jnp.broadcast_to(target.mean(-2, keepdims=True), target.shape)
        if config.costate_average == "ensemble"
        else target
    )


def costate_term(
    config: PPOSettings,
    policy: RecurrentActorCritic,
    unrolled: Unrolled,
    weight: Float[Array, "T S"],
    known: Targets | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """Return L_co-state = E_t[1 − cos(h_t, λ̂_t)] (Eq. 4.2), and the spread of an ensemble's hypotheses.

    λ̂ is that of the policy's own critic unless it is ``known``.
    """
    memory, core = unrolled.memory, policy.core
    target = targets_of(config, policy, memory) if known is None else known
    mean = costate_loss(config, core, memory, aim_of(config, target.by_feature), weight, policy.in_features)
    if target.by_memory is not None:
        mean = 0.5 * (mean + costate_loss(config, core, memory, aim_of(config, target.by_memory), weight))
    metrics = (
        {"costate/spread": weighted_sum(epistemic_spread(target.by_feature), weight)}
        if unrolled.member_values is not None
        else {}
    )
    return mean, metrics


def terminal_term(unrolled: Unrolled, share: Float[Array, "T S"]) -> Float[Array, ""]:
    """Return the loss of the terminal condition h(t_f) = ∇Φ, on the last hidden state that decides a control.

    Its Hamiltonian holds the co-state after the step. No task here has a terminal cost, so ∇Φ = 0.
    """
    hiddens = unrolled.memory.hiddens
    return weighted_sum(terminal_distance(hiddens, jnp.zeros_like(hiddens)), share)


def mean_entropy(
    control: AbstractDistribution, weight: Float[Array, "T S"], shards: Shards
) -> Float[Array, ""]:
    """Return this device's share of the mean entropy.

    It is that of its rows, or of one number if the entropy is the same in every state.
    """
    entropy = control.entropy()
    if entropy is None:
        raise ConfigError(
            f"The readout explores by a {type(control).__name__}, whose entropy() is None, but PPO's loss "
            "needs a number. Return one from it, or use another readout."
        )
    return entropy / shards.count if entropy.ndim == 0 else weighted_sum(entropy, weight)


def evidence_of(
    config: PPOSettings, policy: RecurrentActorCritic, unrolled: Unrolled, rows: Rows
) -> Evidence:
    """Return what auxiliary losses may use of a minibatch."""
    assert rows.complete is not None, "rows hold the truth where a loss asks for it"
    assert rows.seen is not None, "and whether anything was seen"
    target = targets_of(config, policy, unrolled.memory) if rows.target is None else rows.target
    return Evidence(
        hidden=unrolled.memory.hiddens,
        features=unrolled.memory.features,
        observation=rows.observation,
        complete=rows.complete,
        costate=target.by_feature.mean(-2),
        seen=rows.seen,
        is_first=rows.is_first,
    )


def total_loss(
    policy: RecurrentActorCritic,
    batch: Batch,
    config: PPOSettings,
    shards: Shards = ALONE,
    costate_scale: Float[Array, ""] | float = 1.0,
    losses: tuple[WeightedLoss, ...] = (),
) -> tuple[Float[Array, ""], Metrics]:
    """Return L_actor + c₁ L_critic − c₂ L_entropy + c₃ L_co-state on one minibatch (Algorithm 1).

    Auxiliary ``losses`` are added with weights of their own. On several devices it is one device's share:
    the shares add up to the whole, because row weights sum to 1 over all devices. ``costate_scale`` is the
    share of c₃ that has been reached.
    """
    rows = batch.rows
    unrolled = unroll_policy(policy, rows.observation, batch.core_state, rows.is_first)
    log_ratio = unrolled.control.log_prob(rows.action) - rows.log_prob
    ratio = jnp.exp(log_ratio)

    actor = weighted_sum(surrogate_loss(ratio, rows.advantage, config.clip_epsilon), rows.weight)
    critic = value_term(config, unrolled, rows)
    entropy = mean_entropy(unrolled.control, rows.weight, shards)
    loss = actor + config.value_coef * critic - config.entropy_coef * entropy
    if config.costate_coef > 0.0:
        costate, spread = costate_term(config, policy, unrolled, rows.weight, rows.target)
        loss = loss + config.costate_coef * costate_scale * costate
    else:
        # Measured, so that the baseline's alignment can be compared, but kept out of the gradient altogether.
        costate, spread = costate_term(
            config, *jax.lax.stop_gradient((policy, unrolled)), rows.weight, rows.target
        )
    optional = spread
    if config.terminal_coef > 0.0:
        optional["losses/terminal"] = terminal_term(unrolled, rows.terminal)
        loss = loss + config.terminal_coef * optional["losses/terminal"]
    if losses:
        auxiliary, measured = auxiliary_terms(
            losses, evidence_of(config, policy, unrolled, rows), rows.weight
        )
        loss, optional = loss + auxiliary, optional | measured
    return loss, optional | {
        "losses/total": loss,
        "losses/policy": actor,
        "losses/value": critic,
        "losses/entropy": entropy,
        "losses/costate": costate,
        "losses/approx_kl": weighted_sum(ratio - 1.0 - log_ratio, rows.weight),
        "losses/clip_fraction": weighted_sum(
            (jnp.abs(ratio - 1.0) > config.clip_epsilon).astype(ratio.dtype), rows.weight
        ),
    }
