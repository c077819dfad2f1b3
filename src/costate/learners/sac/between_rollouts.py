"""What soft actor-critic does between two rollouts: remember the new rows, then so many updates, or none while warming up."""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.counted import counted
from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Int, Key
from costate.learners.averages import Metrics, episode_metrics
from costate.learners.replay import Replay, ReplayRows, append, empty_replay
from costate.learners.rollout import RolloutConfig, iteration_keys
from costate.learners.sac.config import SACConfig
from costate.learners.sac.rollout import Episodes
from costate.learners.sac.update import SACState, initial_sac_state, sac_update
from costate.learners.sharding import ALONE, Shards
from costate.losses import AuxiliaryLossConfig, build_losses
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import empty_stats, merge


class SACTrainState(eqx.Module):
    """Everything that training changes."""

    learner: SACState
    replay: Replay | None
    """None only where a state is stored or used to act."""
    key: Key[Array, ""]
    iteration: Int[Array, ""]


def check_sac(rollout: RolloutConfig, config: SACConfig, iterations: int) -> None:
    """Raise unless updates and replay fit to the rollout."""
    steps = rollout.steps_per_iteration
    if steps % config.steps_per_update:
        raise ConfigError(
            f"An iteration of {steps} steps ({rollout.environments} environments × {rollout.rollout_length}) has no whole number of updates at one "
            f"for every {config.steps_per_update}. Use a divisor of {steps} for steps_per_update."
        )
    if config.explorers >= rollout.environments:
        raise ConfigError(
            f"explorers is {config.explorers}, but there are {rollout.environments} environments, and one of them at least must do what the policy "
            f"says. Use at most {rollout.environments - 1} explorers, or more environments."
        )
    warming = warmup_iterations(config, rollout)
    if warming >= iterations:
        raise ConfigError(
            f"warmup_steps is {config.warmup_steps}, so learning would start after {warming * steps:,} environment steps of random controls, but the "
            f"run ends after {iterations * steps:,} ({counted(iterations, 'iteration')} of {steps:,} steps). Ask for at least --steps "
            f"{(warming + 1) * steps}, or for fewer --warmup-steps."
        )
    rows = config.replay.rows(rollout.environments)
    if rows < rollout.rollout_length:
        raise ConfigError(
            f"A replay of {config.replay.capacity} steps keeps {rows} rows of each environment, fewer than the {rollout.rollout_length} that one "
            f"iteration adds. Use a capacity of at least {rollout.rollout_length * rollout.environments}."
        )


def fresh_sac(
    config: SACConfig,
    policy: PolicyConfig,
    rollout: RolloutConfig,
    key: Key[Array, ""],
    observation_size: int,
    action_size: int,
    auxiliary: Sequence[AuxiliaryLossConfig] = (),
) -> SACTrainState:
    """Training before its first iteration."""
    key_networks, key_training = jax.random.split(key)
    # From a key of its own, so that all other weights are those of a run without such losses.
    losses = build_losses(
        auxiliary, jax.random.fold_in(key, 2), policy.hidden_size, policy.features, observation_size
    )
    learner = initial_sac_state(
        config, policy, key_networks, empty_stats((observation_size,)), action_size, losses
    )
    rows = config.replay.rows(rollout.environments)
    networks = learner.networks
    remembered = (
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
        remembered,
        with_complete=config.sighted or bool(losses),
    )
    return SACTrainState(learner, replay, key_training, jnp.zeros((), jnp.int32))


def warmup_iterations(config: SACConfig, rollout: RolloutConfig) -> int:
    """Iterations of random controls before the first that learns: as many as were asked for, and until a window fits."""
    return max(
        -(-config.warmup_steps // rollout.steps_per_iteration),
        -(-config.replay.window // rollout.rollout_length),
    )


def warming_up(config: SACConfig, rollout: RolloutConfig, iteration: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether an iteration, counted from 0, still does random controls; then also nothing is learnt from it."""
    return iteration < warmup_iterations(config, rollout)


def with_statistics(learner: SACState, rows: ReplayRows) -> SACState:
    """The learner with what these rows show in its statistics; dark observations show nothing."""
    stats = merge(learner.observation_stats, rows.observation, rows.seen)
    return SACState(learner.networks, learner.target, learner.optimiser, stats)


def learn(
    config: SACConfig,
    rollout: RolloutConfig,
    state: SACTrainState,
    rows: ReplayRows,
    episodes: Episodes,
    shards: Shards = ALONE,
) -> tuple[SACTrainState, Metrics]:
    """Everything between two rollouts of one seed."""
    assert state.replay is not None, "a learner has its replay attached"
    keys = iteration_keys(state.key)
    replay = append(state.replay, rows)
    updates = rollout.steps_per_iteration // config.steps_per_update
    one = functools.partial(sac_update, config, rollout.observation_clip)

    def improve(learner: SACState) -> tuple[SACState, Metrics]:
        learner, metrics = jax.lax.scan(
            lambda learner, key: one(learner, replay, key, shards),
            learner,
            jax.random.split(keys.update, updates),
        )
        # After the updates, so that an iteration acts and learns with the same statistics.
        learner = with_statistics(learner, rows) if config.observation_statistics == "running" else learner
        return learner, jax.tree.map(lambda metric: metric.mean(), metrics)

    def watch(learner: SACState) -> tuple[SACState, Metrics]:
        nothing = jax.tree.map(
            lambda leaf: jnp.full(leaf.shape, jnp.nan), jax.eval_shape(improve, learner)[1]
        )
        return with_statistics(learner, rows), nothing

    warming = warming_up(config, rollout, state.iteration)
    learner, metrics = jax.lax.cond(warming, watch, improve, state.learner)
    metrics["costate/cosine"] = 1.0 - metrics["losses/costate"]
    metrics["training/updates"] = jnp.where(warming, 0.0, updates)
    return SACTrainState(learner, replay, keys.following, state.iteration + 1), metrics | episode_metrics(
        *episodes
    )
