"""Turn a trajectory into the sequences of PPO's losses: advantages, pieces and minibatches."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Int
from costate.learners.advantages import generalised_advantages
from costate.learners.averages import row_weights, weighted_sum, weighted_variance
from costate.learners.ppo.settings import PPOSettings
from costate.learners.rollout import Trajectory
from costate.learners.sharding import ALONE, Shards
from costate.policies.costate_loss import Targets
from costate.policies.running_stats import RunningStats, normalise, scale_reward


class Rows(eqx.Module):
    """The inputs of the losses, for each step of S streams."""

    observation: Float[Array, "T S O"]
    is_first: Bool[Array, "T S"]
    weight: Float[Array, "T S"]
    """Weight of each row in a mean: equal for rows whose action took effect, 0 for the others, with sum 1."""
    action: Float[Array, "T S A"]
    log_prob: Float[Array, "T S"]
    value: Float[Array, "T S"]
    advantage: Float[Array, "T S"]
    value_target: Float[Array, "T S"]
    terminal: Float[Array, "T S"]
    """Weight of each row in a mean over the last controls before a termination, with sum 1; all 0 without
    terminations."""
    member_values: Float[Array, "T S M"] | None = None
    """Value by each critic of an ensemble at collection; None without an ensemble."""
    member_weight: Float[Array, "T S M"] | None = None
    """Weight of each row in a mean over the rows from which each critic learns, with sum 1 for each."""
    target: Targets | None = None
    """Precomputed co-states; None where they are those of the policy that is being trained."""
    complete: Float[Array, "T S O"] | None = None
    """What working sensors would have shown; None unless an auxiliary loss needs it."""
    seen: Bool[Array, "T S"] | None = None
    """True where any sensor gave a reading; None unless an auxiliary loss needs it."""


class Batch(eqx.Module):
    """Sequences for the losses."""

    rows: Rows
    core_state: Float[Array, "S C"]
    """State of the core at the start of each stream."""


class PrecomputedTargets(eqx.Module):
    """Optional quantities computed from a trajectory before the first update."""

    members: Bool[Array, "B M"] | None = None
    """Mask of the environments from which each critic of an ensemble learns."""
    target: Targets | None = None
    """Co-states of the slow critic."""
    bonus: Float[Array, "T B"] | None = None
    """Reward for the ensemble's disagreement."""


NOTHING_PRECOMPUTED = PrecomputedTargets()


def trajectory_advantages(
    config: PPOSettings, trajectory: Trajectory, reward: Float[Array, "T B"], final_value: Float[Array, " B"]
) -> Float[Array, "T B"]:
    """Return the advantages of every stream by GAE.

    A step that ends an episode passes no credit on. The value after it is that of the true last observation.
    """
    discount = config.discount * trajectory.discount
    trace_decay = jnp.where(trajectory.ends, 0.0, config.trace_decay)
    value = jnp.concatenate([trajectory.value, final_value[None]])
    return jax.vmap(generalised_advantages, in_axes=1, out_axes=1)(reward, discount, value, trace_decay)


def make_batch(
    config: PPOSettings,
    observation_clip: float | None,
    observation_stats: RunningStats,
    return_stats: RunningStats,
    trajectory: Trajectory,
    final_value: Float[Array, " B"],
    precomputed: PrecomputedTargets = NOTHING_PRECOMPUTED,
) -> Batch:
    """Return the inputs of the losses, normalised by the statistics used to collect the trajectory."""
    reward = trajectory.reward
    if config.reward_scaling == "running-return":
        reward = scale_reward(return_stats, reward, config.reward_clip)
    if precomputed.bonus is not None:
        reward = reward + precomputed.bonus
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
        terminal=row_weights(
            (trajectory.valid & trajectory.ends & (trajectory.discount == 0.0)).astype(reward.dtype)
        ),
        member_values=trajectory.member_values,
        member_weight=None
        if precomputed.members is None
        else valid[..., None] * precomputed.members[None].astype(valid.dtype),
        target=precomputed.target,
        complete=None
        if trajectory.complete is None
        else normalise(observation_stats, trajectory.complete, observation_clip),
        seen=trajectory.seen,
    )
    return cut_streams(rows, trajectory.core_state, config.bptt_length)


def cut_streams(rows: Rows, core_state: Float[Array, "P B C"], length: int | None) -> Batch:
    """Cut every stream into pieces of ``length`` steps, each starting from the core state of the rollout."""
    steps, streams = rows.weight.shape
    length = length or steps

    def cut(array: Array) -> Array:
        pieces = array.reshape(steps // length, length, streams, *array.shape[2:])
        return jnp.moveaxis(pieces, 0, 1).reshape(length, -1, *array.shape[2:])

    return Batch(jax.tree.map(cut, rows), core_state.reshape(-1, core_state.shape[-1]))


def take_minibatch(batch: Batch, streams: Int[Array, " M"], shards: Shards = ALONE) -> Batch:
    """Return this device's share of a minibatch of streams, each with all of its steps.

    Weights and advantages are normalised within the whole minibatch (Appendix E.2), for any number of
    devices.
    """
    weight = row_weights(batch.rows.weight[:, streams])
    advantage = batch.rows.advantage[:, streams]
    # With equal advantages, one subtraction leaves the rounding error of their mean, and the division would
    # make that as large as any advantage. Each further subtraction leaves less than a millionth of it.
    for _ in range(3):
        advantage = advantage - weighted_sum(advantage, weight)
    advantage = advantage / (jnp.sqrt(weighted_variance(advantage, weight)) + 1e-8)
    terminal = row_weights(batch.rows.terminal[:, streams])
    own = shards.part(streams, axis=0)
    rows: Rows = jax.tree.map(lambda array: jnp.take(array, own, axis=1), batch.rows)
    weight, advantage, terminal = (shards.part(array, axis=1) for array in (weight, advantage, terminal))
    if batch.rows.member_weight is not None:
        of_members = jax.vmap(row_weights, in_axes=-1, out_axes=-1)(batch.rows.member_weight[:, streams])
        rows = dataclasses.replace(rows, member_weight=shards.part(of_members, axis=1))
    return Batch(
        dataclasses.replace(rows, weight=weight, advantage=advantage, terminal=terminal),
        batch.core_state[own],
    )
