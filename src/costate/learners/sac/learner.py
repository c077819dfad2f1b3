"""Recurrent soft actor-critic behind the common interface."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Key, UInt
from costate.envs.base import AbstractEnv
from costate.learners.base import AbstractAlgorithm, Collected, Experience, Metrics, Sequence
from costate.learners.replay import Replay, replay_bytes
from costate.learners.rollout import Exploration, share_of_faults
from costate.learners.sac.between_rollouts import (
    SACTrainState,
    fresh_sac,
    learn,
    warming_up,
    warmup_iterations,
)
from costate.learners.sac.losses import judge
from costate.learners.sac.rollout import SACRolloutState, begin_sac, roll_sac
from costate.learners.sharding import Shards
from costate.policies.controllers import SquashedController
from costate.policies.costate_loss import targets_from_slopes
from costate.policies.insight import SquashedInsight
from costate.policies.sac_networks import RecurrentCritic, read_window, sac_inputs


class OffPolicy(AbstractAlgorithm):
    """Every iteration adds its rollout to a replay, and learns from windows of all that is in it."""

    @property
    def streams(self) -> int:
        return self.config.sac.replay.batch

    @property
    def worth_a_device(self) -> int:
        # An update is short, and each device has the whole replay.
        return 4

    @property
    def spreads_products(self) -> bool:
        # A share of a batch of short windows has a few hundred rows: to hand half of a product to another thread takes as long as the product.
        return False

    @property
    def warmup_iterations(self) -> int:
        return warmup_iterations(self.config.sac, self.config.rollout)

    @property
    def updates_per_iteration(self) -> int:
        return self.config.rollout.steps_per_iteration // self.config.sac.steps_per_update

    @property
    def cost_of_a_step(self) -> float:
        # An update takes about as long as 48 steps of a walker.
        return 1.0 + 48.0 / self.config.sac.steps_per_update

    def fresh(self, seed: UInt[Array, ""]) -> SACTrainState:
        config, task = self.config, self.config.task_record
        key, sizes = jax.random.key(seed), (config.observation_size, task.action_size)
        return fresh_sac(config.sac, config.policy, config.rollout, key, *sizes, config.losses)

    def acting(self, state: SACTrainState) -> Any:
        return (
            state.learner.networks.actor,
            self._stored(state),
            state.learner.observation_stats,
            state.iteration,
        )

    def _stored(self, state: SACTrainState) -> RecurrentCritic | None:
        """The critic, where rows store what it remembers."""
        return state.learner.networks.critic if self.config.sac.replay.start == "stored" else None

    def begin(self, env: AbstractEnv, states: SACTrainState, keys: Key[Array, " N"]) -> SACRolloutState:
        return begin_sac(env, states.learner.networks.actor, self._stored(states), keys)

    def roll(
        self, env: AbstractEnv, acting: Any, state: SACRolloutState, exploration: Exploration
    ) -> tuple[SACRolloutState, Experience]:
        actor, critic, stats, iteration = acting
        warming = warming_up(self.config.sac, self.config.rollout, iteration)
        clip, sac = self.config.rollout.observation_clip, self.config.sac
        with_truth = sac.sighted or bool(self.config.losses)
        faults = share_of_faults(self.config.rollout, self.config.iterations, iteration)
        state, rows, episodes = roll_sac(
            env,
            clip,
            actor,
            critic,
            stats,
            warming,
            state,
            exploration,
            with_truth,
            faults,
            sac.explorers,
            sac.sighted,
        )
        return state, Experience((rows, episodes), rows.is_first)

    def collected(self, experience: Experience) -> Collected:
        rows, _ = experience.rows
        return Collected(rows.observation, rows.complete, rows.action, rows.reward)

    def learn(
        self, state: SACTrainState, experience: Experience, shards: Shards
    ) -> tuple[SACTrainState, Metrics]:
        rows, episodes = experience.rows
        return learn(self.config.sac, self.config.rollout, state, rows, episodes, shards)

    def controller(self, state: SACTrainState) -> SquashedController:
        actor, stats = state.learner.networks.actor, state.learner.observation_stats
        return SquashedController(
            actor=actor, stats=stats, observation_clip=self.config.rollout.observation_clip
        )

    def insight(self, state: SACTrainState) -> SquashedInsight:
        return SquashedInsight(self.controller(state), state.learner.networks.critic, self.config.sac.sighted)

    def critic_costates(self, state: SACTrainState, sequence: Sequence) -> Float[Array, "T B F"]:
        networks, stats, clip = (
            state.learner.networks,
            state.learner.observation_stats,
            self.config.rollout.observation_clip,
        )
        _, before = sequence.memory
        inputs = sac_inputs(stats, clip, sequence.observation, sequence.seen, before, sequence.is_first)
        everything = jnp.ones_like(sequence.seen)
        sighted = sac_inputs(stats, clip, sequence.complete, everything, before, sequence.is_first)
        memory = read_window(
            networks.critic, sighted if self.config.sac.sighted else inputs, sequence.is_first, burn_in=0
        )
        control = networks.actor.policy(networks.actor.encoder.encode(inputs), sequence.hidden).mode()
        _, slopes, _ = judge(networks.critic, memory.hiddens, control)
        return targets_from_slopes(networks.critic.core, memory, slopes)

    @property
    def replay_bytes(self) -> int:
        return replay_bytes(jax.eval_shape(self.fresh, jnp.uint32(0)).replay)

    def detach_replay(self, state: SACTrainState) -> tuple[SACTrainState, Replay | None]:
        return _with_replay(state, None), state.replay

    def attach_replay(self, state: SACTrainState, replay: Replay | None) -> SACTrainState:
        return _with_replay(state, replay)


def _with_replay(state: SACTrainState, replay: Replay | None) -> SACTrainState:
    # Not by `dataclasses.replace`, because states can also be made of shapes alone.
    changed: SACTrainState = eqx.tree_at(
        lambda state: state.replay,
        state,
        replay,
        is_leaf=lambda leaf: leaf is None or isinstance(leaf, Replay),
    )
    return changed
