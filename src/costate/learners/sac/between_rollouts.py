"""The learning step of soft actor-critic: store the new rows, then make updates unless warming up."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Int, Key
from costate.learners.averages import Metrics, episode_metrics
from costate.learners.replay import Replay, ReplayRows, append, empty_replay
from costate.learners.rollout import RolloutConfig, iteration_keys
from costate.learners.sac.checks import warmup_iterations
from costate.learners.sac.rollout import Episodes
from costate.learners.sac.settings import SACSettings
from costate.learners.sac.update import SACState, initial_sac_state, sac_update
from costate.learners.sharding import ALONE, Shards
from costate.learners.states import LearnerState
from costate.losses import AuxiliaryLossConfig, build_losses
from costate.policies.costate_loss import costate_scale
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import empty_stats, merge


class SACTrainState(LearnerState):
    """The training state of soft actor-critic."""

    learner: SACState
    replay: Replay | None
    """None only in states that are saved, or used to act."""
    key: Key[Array, ""]
    iteration: Int[Array, ""]


def fresh_sac(
    config: SACSettings,
    policy: PolicyConfig,
    rollout: RolloutConfig,
    key: Key[Array, ""],
    observation_size: int,
    action_size: int,
    auxiliary: Sequence[AuxiliaryLossConfig] = (),
) -> SACTrainState:
    """Return the training state before the first iteration."""
    key_networks, key_training = jax.random.split(key)
    # A separate key, so that all other weights are those of a run without auxiliary losses.
    losses = build_losses(
        auxiliary, jax.random.fold_in(key, 2), policy.hidden_size, policy.features, observation_size
    )
    learner = initial_sac_state(
        config, policy, key_networks, empty_stats((observation_size,)), action_size, losses
    )
    rows = config.replay.rows(rollout.environments)
    networks = learner.networks
    memory_size = (
        networks.actor.core.state_size + networks.critic.core.state_size
        if config.replay.start == "stored"
        else 0
    )
    replay = empty_replay(
        rows,
        rollout.environments,
        observation_size,
        action_size,
        config.replay.storage,
        memory_size,
        with_complete=config.sighted or bool(losses),
    )
    return SACTrainState(learner, replay, key_training, jnp.zeros((), jnp.int32))


def warming_up(config: SACSettings, rollout: RolloutConfig, iteration: Int[Array, ""]) -> Bool[Array, ""]:
    """Return whether an iteration, counted from 0, is part of the warm-up: random controls and no updates."""
    return iteration < warmup_iterations(config, rollout)


def with_statistics(learner: SACState, rows: ReplayRows) -> SACState:
    """Return the learner with these rows merged into its statistics, except blacked-out observations."""
    stats = merge(learner.observation_stats, rows.observation, rows.seen)
    return SACState(learner.networks, learner.target, learner.optimiser, stats)


def learn(
    config: SACSettings,
    rollout: RolloutConfig,
    state: SACTrainState,
    rows: ReplayRows,
    episodes: Episodes,
    shards: Shards = ALONE,
    iterations: int = 1,
) -> tuple[SACTrainState, Metrics]:
    """Do everything between two rollouts of one seed."""
    assert state.replay is not None, "a learner has its replay attached"
    keys = iteration_keys(state.key)
    replay = append(state.replay, rows)
    updates = rollout.steps_per_iteration // config.steps_per_update
    update = functools.partial(
        sac_update,
        config,
        rollout.observation_clip,
        costate_scale=costate_scale(config, iterations, state.iteration),
    )

    def improve(learner: SACState) -> tuple[SACState, Metrics]:
        learner, metrics = jax.lax.scan(
            lambda learner, key: update(learner, replay, key, shards=shards),
            learner,
            jax.random.split(keys.update, updates),
        )
        # After the updates, so that an iteration acts and learns with the same statistics.
        learner = with_statistics(learner, rows) if config.observation_statistics == "running" else learner
        return learner, jax.tree.map(lambda metric: metric.mean(), metrics)

    def only_watch(learner: SACState) -> tuple[SACState, Metrics]:
        no_metrics = jax.tree.map(
            lambda leaf: jnp.full(leaf.shape, jnp.nan), jax.eval_shape(improve, learner)[1]
        )
        return with_statistics(learner, rows), no_metrics

    warming = warming_up(config, rollout, state.iteration)
    learner, metrics = jax.lax.cond(warming, only_watch, improve, state.learner)
    metrics["costate/cosine"] = 1.0 - metrics["losses/costate"]
    metrics["training/updates"] = jnp.where(warming, 0.0, updates)
    return SACTrainState(learner, replay, keys.following, state.iteration + 1), metrics | episode_metrics(
        *episodes
    )
