"""Recurrent soft actor-critic behind the learner contract."""

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Int, Key, UInt
from costate.envs.base import AbstractEnv
from costate.learners.base import AbstractLearner, Collected, Metrics, Sequence
from costate.learners.replay import Replay, ReplayRows, replay_bytes
from costate.learners.rollout import Exploration, scheduled_fault_share
from costate.learners.sac.between_rollouts import (
    SACTrainState,
    fresh_sac,
    learn,
    warming_up,
)
from costate.learners.sac.checks import warmup_iterations
from costate.learners.sac.losses import q_and_gradients
from costate.learners.sac.rollout import Episodes, SACRolloutState, begin_sac, roll_sac
from costate.learners.sac.settings import SACSettings
from costate.learners.sharding import Shards
from costate.learners.states import Acting, Experience
from costate.policies.controllers import SquashedController
from costate.policies.costate_loss import targets_from_slopes
from costate.policies.insight import SquashedInsight
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import RecurrentActor, RecurrentCritic, read_window, sac_inputs


class SACActing(Acting):
    """The actor that collects a rollout, with the number of the iteration.

    The critic is included only if its memory is stored.
    """

    actor: RecurrentActor
    critic: RecurrentCritic | None
    stats: RunningStats
    iteration: Int[Array, "*N"]


class SACExperience(Experience):
    """New rows for the replay, with the returns and lengths of episodes."""

    rows: ReplayRows
    episodes: Episodes

    @property
    def is_first(self) -> Bool[Array, "*N T B"]:
        return self.rows.is_first


class SACLearner(AbstractLearner[SACSettings, SACTrainState, SACRolloutState, SACActing, SACExperience]):
    """Off-policy learner: every iteration adds its rollout to a replay, and learns from windows of it."""

    @property
    def streams(self) -> int:
        return self.settings.replay.batch

    @property
    def worth_a_device(self) -> int:
        # An update is short, and each device holds the whole replay.
        return 4

    @property
    def spreads_products(self) -> bool:
        # A share of a batch of short windows has a few hundred rows. Handing half of a product to another
        # thread takes as long as the product.
        return False

    @property
    def warmup_iterations(self) -> int:
        return warmup_iterations(self.settings, self.config.rollout)

    @property
    def updates_per_iteration(self) -> int:
        return self.config.rollout.steps_per_iteration // self.settings.steps_per_update

    @property
    def cost_of_a_step(self) -> float:
        # An update takes about as long as 48 steps of a walker.
        return 1.0 + 48.0 / self.settings.steps_per_update

    def fresh(self, seed: UInt[Array, ""]) -> SACTrainState:
        config, task = self.config, self.config.task_record
        key, sizes = jax.random.key(seed), (config.observation_size, task.action_size)
        return fresh_sac(self.settings, config.policy, config.rollout, key, *sizes, config.losses)

    def acting(self, state: SACTrainState) -> SACActing:
        actor = state.learner.networks.actor
        critic = self._critic_in_rollout(state)
        return SACActing(actor, critic, state.learner.observation_stats, state.iteration)

    def _critic_in_rollout(self, state: SACTrainState) -> RecurrentCritic | None:
        """Return the critic if rows store its memory, else None."""
        return state.learner.networks.critic if self.settings.replay.start == "stored" else None

    def begin(self, env: AbstractEnv, states: SACTrainState, keys: Key[Array, " N"]) -> SACRolloutState:
        return begin_sac(env, states.learner.networks.actor, self._critic_in_rollout(states), keys)

    def roll(
        self, env: AbstractEnv, acting: SACActing, state: SACRolloutState, exploration: Exploration
    ) -> tuple[SACRolloutState, SACExperience]:
        sac, rollout = self.settings, self.config.rollout
        state, rows, episodes = roll_sac(
            env,
            rollout.observation_clip,
            acting.actor,
            acting.critic,
            acting.stats,
            warming_up(sac, rollout, acting.iteration),
            state,
            exploration,
            sac.sighted or bool(self.config.losses),
            scheduled_fault_share(rollout, self.config.iterations, acting.iteration),
            sac.explorers,
            sac.sighted,
        )
        return state, SACExperience(rows, episodes)

    def collected(self, experience: SACExperience) -> Collected:
        rows = experience.rows
        return Collected(rows.observation, rows.complete, rows.action, rows.reward)

    def learn(
        self, state: SACTrainState, experience: SACExperience, shards: Shards
    ) -> tuple[SACTrainState, Metrics]:
        rows, episodes = experience.rows, experience.episodes
        return learn(
            self.settings, self.config.rollout, state, rows, episodes, shards, self.config.iterations
        )

    def controller(self, state: SACTrainState) -> SquashedController:
        actor, stats = state.learner.networks.actor, state.learner.observation_stats
        return SquashedController(
            actor=actor, stats=stats, observation_clip=self.config.rollout.observation_clip
        )

    def insight(self, state: SACTrainState) -> SquashedInsight:
        return SquashedInsight(self.controller(state), state.learner.networks.critic, self.settings.sighted)

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
            networks.critic, sighted if self.settings.sighted else inputs, sequence.is_first, burn_in=0
        )
        control = networks.actor.distribution(networks.actor.encoder.encode(inputs), sequence.hidden).mode()
        _, slopes, _ = q_and_gradients(networks.critic, memory.hiddens, control)
        return targets_from_slopes(networks.critic.core, memory, slopes)

    @property
    def replay_bytes(self) -> int:
        return replay_bytes(jax.eval_shape(self.fresh, jnp.uint32(0)).replay)

    @property
    def replay_steps(self) -> int:
        return self.settings.replay.capacity

    def detach_replay(self, state: SACTrainState) -> tuple[SACTrainState, Replay | None]:
        return _with_replay(state, None), state.replay

    def attach_replay(self, state: SACTrainState, replay: Replay | None) -> SACTrainState:
        return _with_replay(state, replay)


def _with_replay(state: SACTrainState, replay: Replay | None) -> SACTrainState:
    # Not by `dataclasses.replace`, because leaves of a state can also be shapes without numbers.
    changed: SACTrainState = eqx.tree_at(
        lambda state: state.replay,
        state,
        replay,
        is_leaf=lambda leaf: leaf is None or isinstance(leaf, Replay),
    )
    return changed
