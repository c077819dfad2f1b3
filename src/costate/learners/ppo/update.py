"""One update of PPO with the co-state loss (Algorithm 1 and Appendix E), and the training state."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from costate._base.types import Array, Float, Int, Key, PyTree
from costate.learners.averages import Metrics, episode_metrics, weighted_variance
from costate.learners.ppo.batch import Batch, PrecomputedTargets, Rows, make_batch, take_minibatch
from costate.learners.ppo.losses import targets_of, total_loss
from costate.learners.ppo.schedules import adapted, learning_rate
from costate.learners.ppo.settings import PPOSettings
from costate.learners.rollout import RolloutConfig, Trajectory, iteration_keys
from costate.learners.sharding import ALONE, Shards
from costate.learners.states import LearnerState
from costate.losses import WeightedLoss
from costate.policies.cores import Memory, read_sequence
from costate.policies.costate_loss import costate_scale, epistemic_spread, member_targets
from costate.policies.policy import RecurrentActorCritic
from costate.policies.running_stats import RunningStats, empty_stats, merge, normalise

Part = TypeVar("Part")


class TrainState(LearnerState):
    """The training state of PPO."""

    policy: RecurrentActorCritic
    optimiser: PyTree
    observation_stats: RunningStats
    return_stats: RunningStats
    key: Key[Array, ""]
    iteration: Int[Array, ""]
    slow: RecurrentActorCritic | None = None
    """Moving average of the policy; None unless targets come from it."""
    pace: Float[Array, ""] | None = None
    """Learning rate multiplier; None unless the learning rate is adaptive. Checkpoints store it under this
    name."""
    losses: tuple[WeightedLoss, ...] = ()
    """Auxiliary losses with their weights."""
    loss_optimiser: PyTree = None
    """Optimiser of the auxiliary losses; None without them."""


def initial_state(
    config: PPOSettings,
    policy: RecurrentActorCritic,
    key: Key[Array, ""],
    observation_size: int,
    losses: tuple[WeightedLoss, ...] = (),
) -> TrainState:
    """Return the training state before the first iteration."""
    optimiser = make_optimiser(config, iterations=1).init(policy)
    slow = None if config.slow_critic is None else policy
    lr_multiplier = jnp.ones((), jnp.float32) if config.learning_rate_decay == "adaptive" else None
    loss_optimiser = make_optimiser(config, iterations=1).init(losses) if losses else None
    return TrainState(
        policy,
        optimiser,
        observation_stats=empty_stats((observation_size,)),
        return_stats=empty_stats(),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
        slow=slow,
        pace=lr_multiplier,
        losses=losses,
        loss_optimiser=loss_optimiser,
    )


def make_optimiser(config: PPOSettings, iterations: int) -> optax.GradientTransformation:
    """Return Adam with gradient clipping and a learning rate that is constant within an iteration."""
    per_iteration = config.epochs * config.minibatches

    def step_size(count: Int[Array, ""]) -> Float[Array, ""]:
        return learning_rate(config, iterations, count // per_iteration)

    return optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm), optax.adam(step_size, eps=config.adam_epsilon)
    )


def bootstrap_key(config: PPOSettings, key: Key[Array, ""]) -> Key[Array, ""]:
    """Return the key of the bootstrap masks: numbered as the keys that shuffle the epochs, and after them."""
    return jax.random.fold_in(key, config.epochs)


def precompute_targets(
    config: PPOSettings,
    observation_clip: float | None,
    state: TrainState,
    trajectory: Trajectory,
    key: Key[Array, ""],
) -> PrecomputedTargets:
    """Return bootstrap masks, targets of the slow critic and the reward for exploring, where enabled."""
    members, target, bonus = None, None, None
    if trajectory.member_values is not None:
        members = jax.random.bernoulli(key, config.bootstrap, trajectory.member_values.shape[1:])

    def memory_of(policy: RecurrentActorCritic) -> Memory:
        features = policy.encoder.encode(
            normalise(state.observation_stats, trajectory.observation, observation_clip)
        )
        return read_sequence(policy.core, features, trajectory.core_state[0], trajectory.is_first)

    if state.slow is not None:
        target = targets_of(config, state.slow, memory_of(state.slow))
    if config.spread_bonus > 0.0:
        spread = epistemic_spread(
            member_targets(state.policy.core, state.policy.critic, memory_of(state.policy))
        )
        # A control is rewarded for the observation that it leads to, which is in the next row. The last row
        # has no next row, so it takes its own.
        bonus = config.spread_bonus * jnp.concatenate([spread[1:], spread[-1:]])
    return PrecomputedTargets(members, target, bonus)


class Learnt(NamedTuple):
    """Weights changed by gradients, with the states of their optimisers.

    Auxiliary losses have a separate optimiser, so that the norm of their gradient does not affect the
    clipping of the policy's.
    """

    policy: RecurrentActorCritic
    optimiser: PyTree
    losses: tuple[WeightedLoss, ...] = ()
    loss_optimiser: PyTree = None


def optimise(
    config: PPOSettings,
    optimiser: optax.GradientTransformation,
    learnt: Learnt,
    batch: Batch,
    key: Key[Array, ""],
    shards: Shards,
    costate_scale: Float[Array, ""] | float = 1.0,
    lr_multiplier: Float[Array, ""] | None = None,
) -> tuple[Learnt, Metrics]:
    """Make K epochs of minibatch updates over the streams, each computed by all shards together.

    The metrics are means over the last epoch.
    """
    streams = batch.core_state.shape[0]
    order = jax.vmap(lambda key: jax.random.permutation(key, streams))(jax.random.split(key, config.epochs))

    def loss_of(
        policy: RecurrentActorCritic, losses: tuple[WeightedLoss, ...], own: Batch
    ) -> tuple[Array, Metrics]:
        return total_loss(policy, own, config, shards, costate_scale, losses)

    def step(part: Part, gradient: Part, state: PyTree) -> tuple[Part, PyTree]:
        updates, state = optimiser.update(gradient, state, part)
        # Adam's steps are proportional to its learning rate.
        if lr_multiplier is not None:
            updates = jax.tree.map(lambda step: lr_multiplier * step, updates)
        return optax.apply_updates(part, updates), state

    def descend(learnt: Learnt, streams: Int[Array, " M"]) -> tuple[Learnt, Any]:
        own = take_minibatch(batch, streams, shards)
        gradients, metrics = jax.grad(loss_of, argnums=(0, 1), has_aux=True)(
            learnt.policy, learnt.losses, own
        )
        gradient, of_losses = shards.total(gradients)
        policy, state = step(learnt.policy, gradient, learnt.optimiser)
        losses, loss_state = learnt.losses, learnt.loss_optimiser
        if losses:
            losses, loss_state = step(losses, of_losses, loss_state)
        return Learnt(policy, state, losses, loss_state), (metrics, optax.tree.norm(gradient))

    minibatches = order.reshape(config.epochs * config.minibatches, -1)
    learnt, (shares, gradient_norm) = jax.lax.scan(descend, learnt, minibatches)
    metrics = shards.total(shares) | {"losses/grad_norm": gradient_norm}
    return learnt, jax.tree.map(lambda m: m[-config.minibatches :].mean(), metrics)


def update(
    config: PPOSettings,
    rollout: RolloutConfig,
    iterations: int,
    state: TrainState,
    trajectory: Trajectory,
    final_value: Float[Array, " B"],
    shards: Shards = ALONE,
) -> tuple[TrainState, Metrics]:
    """Do everything between two rollouts of one seed.

    All shards hold the whole trajectory and end with the same state.
    """
    keys = iteration_keys(state.key)
    # The return statistics only scale rewards, so they may include this iteration. The observation statistics
    # are part of the policy: merged before the update, they would make the first importance ratio differ from
    # 1.
    return_stats = merge(state.return_stats, trajectory.discounted_return, trajectory.valid)
    precomputed = precompute_targets(
        config, rollout.observation_clip, state, trajectory, bootstrap_key(config, keys.update)
    )
    batch = make_batch(
        config,
        rollout.observation_clip,
        state.observation_stats,
        return_stats,
        trajectory,
        final_value,
        precomputed,
    )
    optimiser = make_optimiser(config, iterations)
    scale = costate_scale(config, iterations, state.iteration)
    learnt = Learnt(state.policy, state.optimiser, state.losses, state.loss_optimiser)
    learnt, metrics = optimise(config, optimiser, learnt, batch, keys.update, shards, scale, state.pace)
    policy = learnt.policy
    observation_stats = merge(
        state.observation_stats, trajectory.observation, jnp.ones_like(trajectory.valid)
    )
    slow = (
        None
        if state.slow is None
        else jax.tree.map(lambda slow, now: slow + config.slow_critic * (now - slow), state.slow, policy)
    )
    metrics["training/learning_rate"] = learning_rate(config, iterations, state.iteration) * (
        1.0 if state.pace is None else state.pace
    )
    lr_multiplier = (
        None if state.pace is None else adapted(state.pace, metrics["losses/approx_kl"], config.target_kl)
    )
    state = TrainState(
        policy,
        learnt.optimiser,
        observation_stats,
        return_stats,
        keys.following,
        state.iteration + 1,
        slow,
        lr_multiplier,
        learnt.losses,
        learnt.loss_optimiser,
    )
    if precomputed.bonus is not None:
        metrics["costate/bonus"] = precomputed.bonus.mean()
    metrics["costate/cosine"] = 1.0 - metrics["losses/costate"]
    episodes = episode_metrics(trajectory.ends, trajectory.episode_return, trajectory.episode_length)
    metrics["training/reward_scale"] = jnp.sqrt(return_stats.variance)
    return state, metrics | _value_metrics(batch.rows) | episodes | policy.readout.exploration()


def _value_metrics(rows: Rows) -> Metrics:
    unexplained = weighted_variance(rows.value_target - rows.value, rows.weight)
    explained = 1.0 - unexplained / jnp.maximum(weighted_variance(rows.value_target, rows.weight), 1e-8)
    return {"losses/explained_variance": explained}
