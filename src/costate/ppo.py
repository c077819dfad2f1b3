"""Proximal policy optimisation with the co-state loss (Algorithm 1 and Appendix E): losses, one update, the state of training."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from costate._checks import require_finite
from costate._errors import ConfigError
from costate._types import Array, Bool, Float, Int, Key, PyTree
from costate.advantages import generalised_advantages
from costate.averages import Metrics, episode_metrics, row_weights, weighted_sum, weighted_variance
from costate.cores import read_sequence
from costate.costate_loss import by_member, costate_distance, epistemic_spread, hidden_targets, member_targets, terminal_distance
from costate.policy import RecurrentActorCritic, Unrolled, unroll_policy
from costate.readouts import AbstractDistribution
from costate.rollout import RolloutConfig, Trajectory, iteration_keys
from costate.running_stats import RunningStats, empty_stats, merge, normalise, scale_reward
from costate.sharding import ALONE, Shards


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """The learner's settings; the defaults are the paper's table of hyperparameters."""

    costate_coef: float = 0.05
    """Weight c₃ of the co-state loss; 0 is plain PPO."""
    costate_hidden: Literal["after", "before"] = "after"
    """Hidden state in the cosine: h_t after reading y_t (the paper's text) or h_{t−1} before it (the authors' code)."""
    costate_gradient: Literal["feature", "both"] = "feature"
    """What the value is differentiated by: the encoded observation (the paper), or also what was remembered, each compared with h by itself."""
    costate_average: Literal["own", "ensemble"] = "own"
    """Target of every hypothesis of an ensemble: the gradient of its own critic, or the mean of all."""
    costate_warmup: float = 0.0
    """Share of training in which the weight of the co-state loss grows linearly from 0."""
    slow_critic: float | None = None
    """Targets from a slow average of the policy, which moves by this share towards it in every iteration; None for the policy itself."""
    bootstrap: float = 0.8
    """Share of the environments from which each critic of an ensemble learns, drawn anew in every iteration."""
    spread_bonus: float = 0.0
    """Weight of the ensemble's disagreement about the co-state as a reward for exploring; 0 leaves it out."""
    terminal_coef: float = 0.0
    """Weight of the terminal condition h(t_f) = ∇Φ (Definition 3.2) where an episode truly terminates; time limits are no ends. 0 leaves it out."""
    epochs: int = 4
    """Passes over the data of one iteration."""
    minibatches: int = 4
    """Parts into which the streams are split in every epoch."""
    bptt_length: int | None = None
    """Steps through which gradients flow; longer rollouts are cut into pieces that start from stored memories. None for the whole rollout."""
    learning_rate: float = 2.5e-4
    """Adam's step size at the start."""
    learning_rate_decay: Literal["linear", "none"] = "linear"
    """Whether the step size falls linearly to zero over the run."""
    adam_epsilon: float = 1e-5
    """Adam's ε."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    discount: float = 0.99
    """Discount factor γ."""
    trace_decay: float = 0.95
    """GAE's λ."""
    clip_epsilon: float = 0.2
    """Bound of the importance ratio's and of the value's change."""
    value_coef: float = 0.5
    """Weight c₁ of the value loss."""
    entropy_coef: float = 0.01
    """Weight c₂ of the entropy bonus."""
    reward_scaling: Literal["running-return", "none"] = "running-return"
    """Whether rewards are divided by the deviation of the running discounted return."""
    reward_clip: float | None = 10.0
    """Bound of a scaled reward; None for no bound, as in the authors' code."""

    def __post_init__(self) -> None:
        require_finite(self)
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be at least 1. The paper uses 4.")
        for name in ("discount", "trace_decay"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must lie between 0 and 1.")
        for name in ("costate_warmup", "slow_critic", "bootstrap"):
            value = getattr(self, name)
            if value is not None and not (0.0 <= value <= 1.0 and (value > 0.0 or name == "costate_warmup")):
                raise ConfigError(f"{name} is {value}, but it is a share: between 0 and 1, and not 0 unless it is costate_warmup.")
        if self.costate_coef == 0.0 and (self.costate_warmup or self.slow_critic or self.costate_gradient != "feature"):
            raise ConfigError(
                "costate_coef is 0, but costate_warmup, slow_critic or costate_gradient was given, which would have no effect. Give costate_coef, or "
                "leave them out."
            )
        for name in ("costate_coef", "terminal_coef", "value_coef", "entropy_coef", "spread_bonus"):
            if getattr(self, name) < 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but a loss weight cannot be negative. Use 0 to leave the loss out.")
        for name in ("learning_rate", "adam_epsilon", "max_gradient_norm", "clip_epsilon", "reward_clip"):
            value = getattr(self, name)
            if value is not None and value <= 0.0:
                raise ConfigError(f"{name} is {value}, but it must be positive.")
        if self.bptt_length is not None and self.bptt_length < 1:
            raise ConfigError(f"bptt_length is {self.bptt_length}, but it must be at least 1. Use None for the whole rollout.")


def streams_per_minibatch(rollout: RolloutConfig, ppo: PPOConfig) -> int:
    """Sequences in a minibatch: environments, times the pieces that each is cut into."""
    pieces = rollout.rollout_length // (ppo.bptt_length or rollout.rollout_length)
    return rollout.environments * pieces // ppo.minibatches


def check_divisible(rollout: RolloutConfig, ppo: PPOConfig) -> None:
    """Raise unless the streams of one iteration split evenly into minibatches."""
    length = ppo.bptt_length or rollout.rollout_length
    if rollout.rollout_length % length:
        divisors = [d for d in range(1, rollout.rollout_length + 1) if rollout.rollout_length % d == 0]
        raise ConfigError(
            f"bptt_length {length} does not divide rollout_length {rollout.rollout_length}, so the rollout cannot be cut into equal pieces. "
            f"Lengths that work: {', '.join(map(str, divisors))}."
        )
    streams = rollout.environments * (rollout.rollout_length // length)
    if streams % ppo.minibatches:
        allowed = [m for m in range(1, streams + 1) if streams % m == 0]
        below = rollout.environments // ppo.minibatches * ppo.minibatches
        sizes = " or ".join(str(size) for size in (below, below + ppo.minibatches) if size > 0)
        raise ConfigError(
            f"{streams} streams ({rollout.environments} environments) cannot be split evenly into {ppo.minibatches} minibatches. "
            f"Minibatches that work: {', '.join(map(str, allowed))}; or keep {ppo.minibatches} minibatches and use {sizes} environments."
        )


class TrainState(eqx.Module):
    """Everything that training changes."""

    policy: RecurrentActorCritic
    optimiser: PyTree
    observation_stats: RunningStats
    return_stats: RunningStats
    key: Key[Array, ""]
    iteration: Int[Array, ""]
    slow: RecurrentActorCritic | None = None
    """A slow average of the policy, where targets come from one."""


class Rows(eqx.Module):
    """What the losses need of every step of S streams."""

    observation: Float[Array, "T S O"]
    is_first: Bool[Array, "T S"]
    weight: Float[Array, "T S"]
    """Share of each row in a mean: equal for all rows of which the action counted, 0 for the others, 1 in sum."""
    action: Float[Array, "T S A"]
    log_prob: Float[Array, "T S"]
    value: Float[Array, "T S"]
    advantage: Float[Array, "T S"]
    value_target: Float[Array, "T S"]
    terminal: Float[Array, "T S"]
    """Share of each row in a mean over those whose control was the last before a termination; 1 in sum, or all 0 if there is none."""
    member_values: Float[Array, "T S M"] | None = None
    """What each critic of an ensemble said; None where there is none."""
    member_weight: Float[Array, "T S M"] | None = None
    """Share of each row in a mean over those from which each of them learns; 1 in sum for each."""
    target: Float[Array, "T S M F"] | None = None
    """λ̂ where it is known before the losses; None where it is that of the policy which is being learnt."""


class Batch(eqx.Module):
    """Sequences for the losses."""

    rows: Rows
    core_state: Float[Array, "S C"]
    """Where each stream's memory starts."""


def initial_state(config: PPOConfig, policy: RecurrentActorCritic, key: Key[Array, ""], observation_size: int) -> TrainState:
    """Training before its first iteration."""
    optimiser = make_optimiser(config, iterations=1).init(policy)
    slow = None if config.slow_critic is None else policy
    return TrainState(policy, optimiser, empty_stats((observation_size,)), empty_stats(), key, jnp.zeros((), jnp.int32), slow)


def make_optimiser(config: PPOConfig, iterations: int) -> optax.GradientTransformation:
    """Clipped Adam whose step size is constant within an iteration."""
    per_iteration = config.epochs * config.minibatches

    def step_size(count: Int[Array, ""]) -> Float[Array, ""]:
        return learning_rate(config, iterations, count // per_iteration)

    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), optax.adam(step_size, eps=config.adam_epsilon))


def learning_rate(config: PPOConfig, iterations: int, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Step size in an iteration, counted from 0: the same throughout, or falling linearly to reach zero after the last one."""
    if config.learning_rate_decay == "none":
        return jnp.asarray(config.learning_rate)
    return config.learning_rate * (1.0 - iteration / iterations)


def warmed_up(config: PPOConfig, iterations: int, iteration: Int[Array, ""]) -> Float[Array, ""] | float:
    """Share of the weight of the co-state loss that is reached in an iteration, counted from 0."""
    return jnp.minimum(1.0, iteration / (config.costate_warmup * iterations)) if config.costate_warmup > 0.0 else 1.0


class Foresight(eqx.Module):
    """What is computed of a trajectory before anything is learnt from it, where settings ask for it."""

    members: Bool[Array, "B M"] | None = None
    """From which environments each critic of an ensemble learns."""
    target: Float[Array, "T B M F"] | None = None
    """λ̂ of the slow critic."""
    bonus: Float[Array, "T B"] | None = None
    """Reward for what the ensemble disagrees about."""


NOTHING_FORESEEN = Foresight()


def foresee(config: PPOConfig, observation_clip: float | None, state: TrainState, trajectory: Trajectory, key: Key[Array, ""]) -> Foresight:
    """Bootstrap masks, slow targets and the reward for exploring, as far as they are asked for."""
    members, target, bonus = None, None, None
    if trajectory.member_values is not None:
        members = jax.random.bernoulli(key, config.bootstrap, trajectory.member_values.shape[1:])

    def targets_of(policy: RecurrentActorCritic) -> Float[Array, "T B M F"]:
        features = policy.encoder.encode(normalise(state.observation_stats, trajectory.observation, observation_clip))
        memory = read_sequence(policy.core, features, trajectory.core_state[0], trajectory.is_first)
        return member_targets(policy.core, policy.critic, memory)

    if state.slow is not None:
        target = targets_of(state.slow)
    if config.spread_bonus > 0.0:
        spread = epistemic_spread(targets_of(state.policy))
        # A control is rewarded for the observation that it leads to, which is the next row; after the last row there is none to look at.
        bonus = config.spread_bonus * jnp.concatenate([spread[1:], spread[-1:]])
    return Foresight(members, target, bonus)


def trajectory_advantages(
    config: PPOConfig, trajectory: Trajectory, reward: Float[Array, "T B"], final_value: Float[Array, " B"]
) -> Float[Array, "T B"]:
    """GAE of every stream. A step that ends an episode passes no credit on; the value after it is that of the true last observation."""
    discount = config.discount * trajectory.discount
    trace_decay = jnp.where(trajectory.ends, 0.0, config.trace_decay)
    value = jnp.concatenate([trajectory.value, final_value[None]])
    return jax.vmap(generalised_advantages, in_axes=1, out_axes=1)(reward, discount, value, trace_decay)


def make_batch(
    config: PPOConfig,
    observation_clip: float | None,
    observation_stats: RunningStats,
    return_stats: RunningStats,
    trajectory: Trajectory,
    final_value: Float[Array, " B"],
    foresight: Foresight = NOTHING_FORESEEN,
) -> Batch:
    """What the losses need of a trajectory, seen through the statistics with which it was collected."""
    reward = trajectory.reward
    if config.reward_scaling == "running-return":
        reward = scale_reward(return_stats, reward, config.reward_clip)
    if foresight.bonus is not None:
        reward = reward + foresight.bonus
    valid = trajectory.valid.astype(reward.dtype)
    advantage = trajectory_advantages(config, trajectory, reward, final_value)
    rows = Rows(
        observation=normalise(observation_stats, trajectory.observation, observation_clip),
        is_first=trajectory.is_first,
        weight=row_weights(valid),
        action=trajectory.action,
        log_prob=trajectory.log_prob,
        value=trajectory.value,
        advantage=advantage,
        value_target=advantage + trajectory.value,
        terminal=row_weights((trajectory.valid & trajectory.ends & (trajectory.discount == 0.0)).astype(reward.dtype)),
        member_values=trajectory.member_values,
        member_weight=None if foresight.members is None else valid[..., None] * foresight.members[None].astype(valid.dtype),
        target=foresight.target,
    )
    return cut_streams(rows, trajectory.core_state, config.bptt_length)


def cut_streams(rows: Rows, core_state: Float[Array, "P B C"], length: int | None) -> Batch:
    """Every stream cut into pieces of ``length`` steps, each starting from what the rollout's core carried there."""
    steps, streams = rows.weight.shape
    length = length or steps

    def cut(array: Array) -> Array:
        pieces = array.reshape(steps // length, length, streams, *array.shape[2:])
        return jnp.moveaxis(pieces, 0, 1).reshape(length, -1, *array.shape[2:])

    return Batch(jax.tree.map(cut, rows), core_state.reshape(-1, core_state.shape[-1]))


def take_minibatch(batch: Batch, streams: Int[Array, " M"], shards: Shards = ALONE) -> Batch:
    """This device's share of some of the streams, each with all of its steps.

    Weights and advantages are normalised within the whole minibatch (Appendix E.2), whatever the number of devices.
    """
    weight = row_weights(batch.rows.weight[:, streams])
    advantage = batch.rows.advantage[:, streams]
    spread = jnp.sqrt(weighted_variance(advantage, weight))
    advantage = (advantage - weighted_sum(advantage, weight)) / (spread + 1e-8)
    terminal = row_weights(batch.rows.terminal[:, streams])
    own = shards.part(streams, axis=0)
    rows: Rows = jax.tree.map(lambda array: jnp.take(array, own, axis=1), batch.rows)
    weight, advantage, terminal = (shards.part(array, axis=1) for array in (weight, advantage, terminal))
    if batch.rows.member_weight is not None:
        of_members = jax.vmap(row_weights, in_axes=-1, out_axes=-1)(batch.rows.member_weight[:, streams])
        rows = dataclasses.replace(rows, member_weight=shards.part(of_members, axis=1))
    return Batch(dataclasses.replace(rows, weight=weight, advantage=advantage, terminal=terminal), batch.core_state[own])


def surrogate_loss(ratio: Float[Array, "T S"], advantage: Float[Array, "T S"], clip_epsilon: float) -> Float[Array, "T S"]:
    """−min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â) for every step (Schulman et al. 2017)."""
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon) * advantage)


def clipped_value_loss(value: Float[Array, "T S"], old: Float[Array, "T S"], target: Float[Array, "T S"], clip_epsilon: float) -> Float[Array, "T S"]:
    """½ max((V − R)², (V_clip − R)²) with V_clip within ε of the value at collection (Huang et al. 2022)."""
    near = old + jnp.clip(value - old, -clip_epsilon, clip_epsilon)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near - target))


def value_term(unrolled: Unrolled, rows: Rows, clip_epsilon: float) -> Float[Array, ""]:
    """The clipped value loss; of an ensemble the mean over its critics, each by the rows from which it learns."""
    if unrolled.member_values is None or rows.member_values is None or rows.member_weight is None:
        return weighted_sum(clipped_value_loss(unrolled.value, rows.value, rows.value_target, clip_epsilon), rows.weight)

    def of_member(value: Array, old: Array, weight: Array) -> Float[Array, ""]:
        return weighted_sum(clipped_value_loss(value, old, rows.value_target, clip_epsilon), weight)

    return jax.vmap(of_member, in_axes=-1)(unrolled.member_values, rows.member_values, rows.member_weight).mean()


def costate_term(config: PPOConfig, policy: RecurrentActorCritic, unrolled: Unrolled, rows: Rows) -> tuple[Float[Array, ""], Metrics]:
    """L_co-state = E_t[1 − cos(h_t, λ̂_t)] (Eq. 4.2), and how far the hypotheses of an ensemble lie apart; both averaged over them."""
    memory, core = unrolled.memory, policy.core
    target = member_targets(core, policy.critic, memory) if rows.target is None else rows.target
    hidden = by_member(core, memory.hiddens if config.costate_hidden == "after" else core.expose(memory.previous))
    compared = hidden if policy.costate_map is None else hidden @ policy.costate_map
    aim = jnp.broadcast_to(target.mean(-2, keepdims=True), target.shape) if config.costate_average == "ensemble" else target
    distance = costate_distance(compared, aim)
    if config.costate_gradient == "both":
        distance = 0.5 * (distance + costate_distance(hidden, hidden_targets(core, policy.critic, memory)))
    metrics = {"costate/spread": weighted_sum(epistemic_spread(target), rows.weight)} if unrolled.member_values is not None else {}
    return weighted_sum(distance.mean(-1), rows.weight), metrics


def terminal_term(unrolled: Unrolled, share: Float[Array, "T S"]) -> Float[Array, ""]:
    """The terminal condition h(t_f) = ∇Φ on the last hidden state that decides a control, whose Hamiltonian holds the co-state after the step.

    No task here has a terminal cost, so that ∇Φ = 0: what comes after the end costs nothing.
    """
    hiddens = unrolled.memory.hiddens
    return weighted_sum(terminal_distance(hiddens, jnp.zeros_like(hiddens)), share)


def mean_entropy(control: AbstractDistribution, weight: Float[Array, "T S"], shards: Shards) -> Float[Array, ""]:
    """This device's share of the mean entropy: of its rows, or of the one number where it is the same in every state and has no rows."""
    entropy = control.entropy()
    return entropy / shards.count if entropy.ndim == 0 else weighted_sum(entropy, weight)


def total_loss(
    policy: RecurrentActorCritic, batch: Batch, config: PPOConfig, shards: Shards = ALONE, warmth: Float[Array, ""] | float = 1.0
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor + c₁ L_critic − c₂ L_entropy + c₃ L_co-state on one minibatch (Algorithm 1), or one device's share of it.

    The shares add up to the whole, because row weights sum to 1 over all devices. ``warmth`` is the share of c₃ that has been reached.
    """
    rows = batch.rows
    unrolled = unroll_policy(policy, rows.observation, batch.core_state, rows.is_first)
    log_ratio = unrolled.control.log_prob(rows.action) - rows.log_prob
    ratio = jnp.exp(log_ratio)

    actor = weighted_sum(surrogate_loss(ratio, rows.advantage, config.clip_epsilon), rows.weight)
    critic = value_term(unrolled, rows, config.clip_epsilon)
    entropy = mean_entropy(unrolled.control, rows.weight, shards)
    loss = actor + config.value_coef * critic - config.entropy_coef * entropy
    if config.costate_coef > 0.0:
        costate, spread = costate_term(config, policy, unrolled, rows)
        loss = loss + config.costate_coef * warmth * costate
    else:
        # Measured, so that the baseline's alignment can be compared, but kept out of the gradient altogether.
        costate, spread = costate_term(config, *jax.lax.stop_gradient((policy, unrolled)), rows)
    optional = spread
    if config.terminal_coef > 0.0:
        optional["losses/terminal"] = terminal_term(unrolled, rows.terminal)
        loss = loss + config.terminal_coef * optional["losses/terminal"]
    return loss, optional | {
        "losses/total": loss,
        "losses/policy": actor,
        "losses/value": critic,
        "losses/entropy": entropy,
        "losses/costate": costate,
        "losses/approx_kl": weighted_sum(ratio - 1.0 - log_ratio, rows.weight),
        "losses/clip_fraction": weighted_sum((jnp.abs(ratio - 1.0) > config.clip_epsilon).astype(ratio.dtype), rows.weight),
    }


def optimise(
    config: PPOConfig,
    optimiser: optax.GradientTransformation,
    policy: RecurrentActorCritic,
    optimiser_state: PyTree,
    batch: Batch,
    key: Key[Array, ""],
    shards: Shards,
    warmth: Float[Array, ""] | float = 1.0,
) -> tuple[RecurrentActorCritic, PyTree, Metrics]:
    """K epochs of minibatches over the streams, each computed by all shards together; the metrics are means over the last epoch."""
    streams = batch.core_state.shape[0]
    order = jax.vmap(lambda key: jax.random.permutation(key, streams))(jax.random.split(key, config.epochs))

    def descend(carry: tuple[RecurrentActorCritic, PyTree], streams: Int[Array, " M"]) -> tuple[tuple[RecurrentActorCritic, PyTree], Any]:
        policy, optimiser_state = carry
        own = take_minibatch(batch, streams, shards)
        gradient, metrics = jax.grad(total_loss, has_aux=True)(policy, own, config, shards, warmth)
        gradient = shards.total(gradient)
        updates, optimiser_state = optimiser.update(gradient, optimiser_state, policy)
        return (optax.apply_updates(policy, updates), optimiser_state), (metrics, optax.tree.norm(gradient))

    minibatches = order.reshape(config.epochs * config.minibatches, -1)
    (policy, optimiser_state), (shares, gradient_norm) = jax.lax.scan(descend, (policy, optimiser_state), minibatches)
    metrics = shards.total(shares) | {"losses/grad_norm": gradient_norm}
    return policy, optimiser_state, jax.tree.map(lambda m: m[-config.minibatches :].mean(), metrics)


def update(
    config: PPOConfig,
    rollout: RolloutConfig,
    iterations: int,
    state: TrainState,
    trajectory: Trajectory,
    final_value: Float[Array, " B"],
    shards: Shards = ALONE,
) -> tuple[TrainState, Metrics]:
    """Everything between two rollouts of one seed. All shards hold the whole trajectory and end with the same state."""
    keys = iteration_keys(state.key)
    # The return statistics only scale rewards, so they may include this iteration; the observation statistics are part of the policy, and merging
    # them before the update would make the first importance ratio differ from 1.
    return_stats = merge(state.return_stats, trajectory.discounted_return, trajectory.valid)
    foresight = foresee(config, rollout.observation_clip, state, trajectory, jax.random.fold_in(keys.update, 1))
    batch = make_batch(config, rollout.observation_clip, state.observation_stats, return_stats, trajectory, final_value, foresight)
    optimiser = make_optimiser(config, iterations)
    warmth = warmed_up(config, iterations, state.iteration)
    policy, optimiser_state, metrics = optimise(config, optimiser, state.policy, state.optimiser, batch, keys.update, shards, warmth)
    observation_stats = merge(state.observation_stats, trajectory.observation, jnp.ones_like(trajectory.valid))
    slow = None if state.slow is None else jax.tree.map(lambda slow, now: slow + config.slow_critic * (now - slow), state.slow, policy)
    state = TrainState(policy, optimiser_state, observation_stats, return_stats, keys.following, state.iteration + 1, slow)
    if foresight.bonus is not None:
        metrics["costate/bonus"] = foresight.bonus.mean()
    metrics["costate/cosine"] = 1.0 - metrics["losses/costate"]
    episodes = episode_metrics(trajectory.ends, trajectory.episode_return, trajectory.episode_length)
    return state, metrics | _value_metrics(batch.rows) | episodes | _policy_metrics(config, iterations, state)


def _value_metrics(rows: Rows) -> Metrics:
    unexplained = weighted_variance(rows.value_target - rows.value, rows.weight)
    explained = 1.0 - unexplained / jnp.maximum(weighted_variance(rows.value_target, rows.weight), 1e-8)
    return {"losses/explained_variance": explained}


def _policy_metrics(config: PPOConfig, iterations: int, state: TrainState) -> Metrics:
    return {
        # The counter already points to the next iteration.
        "training/learning_rate": learning_rate(config, iterations, state.iteration - 1),
        "training/reward_scale": jnp.sqrt(state.return_stats.variance),
    } | state.policy.readout.exploration()
