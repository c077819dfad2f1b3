"""PPO as in the paper, behind the learner contract."""

import jax

from costate._base.types import Array, Bool, Float, Int, Key, UInt
from costate.envs.base import AbstractEnv
from costate.learners.base import AbstractLearner, Collected, Metrics, Sequence
from costate.learners.ppo.checks import streams_per_minibatch
from costate.learners.ppo.settings import PPOSettings
from costate.learners.ppo.update import TrainState, initial_state, update
from costate.learners.rollout import (
    Exploration,
    RolloutState,
    Trajectory,
    begin_seeds,
    roll,
    scheduled_fault_share,
)
from costate.learners.sharding import Shards
from costate.learners.states import Acting, Experience
from costate.losses import build_losses
from costate.policies.controllers import PolicyController
from costate.policies.cores import empty_core_state
from costate.policies.costate_loss import costate_targets
from costate.policies.insight import PolicyInsight
from costate.policies.policy import RecurrentActorCritic, build_policy, unroll_policy
from costate.policies.running_stats import RunningStats, normalise


class PPOActing(Acting):
    """The policy that collects a rollout, with the number of the iteration."""

    policy: RecurrentActorCritic
    stats: RunningStats
    iteration: Int[Array, "*N"]


class PPOExperience(Experience):
    """A rollout, and the value of the observation after it."""

    trajectory: Trajectory
    final_value: Float[Array, "*N B"]

    @property
    def is_first(self) -> Bool[Array, "*N T B"]:
        return self.trajectory.is_first


class PPOLearner(AbstractLearner[PPOSettings, TrainState, RolloutState, PPOActing, PPOExperience]):
    """On-policy learner: every iteration learns from its own rollout only."""

    @property
    def streams(self) -> int:
        return streams_per_minibatch(self.config.rollout, self.settings)

    @property
    def worth_a_device(self) -> int:
        return 1

    @property
    def spreads_products(self) -> bool:
        return True

    @property
    def updates_per_iteration(self) -> int:
        return self.settings.epochs * self.settings.minibatches

    @property
    def cost_of_a_step(self) -> float:
        # Learning adds a fifth to the time if physics is slow, and at least doubles it if physics is fast.
        return 1.0

    def fresh(self, seed: UInt[Array, ""]) -> TrainState:
        key_policy, key_training = jax.random.split(jax.random.key(seed))
        observation_size, action_size = self.config.observation_size, self.config.task_record.action_size
        policy = build_policy(self.config.policy, key_policy, observation_size, action_size)
        # A separate key, so that all other weights are those of a run without auxiliary losses.
        key_losses, shape = jax.random.fold_in(key_policy, 5), self.config.policy
        losses = build_losses(
            self.config.losses, key_losses, shape.hidden_size, shape.features, observation_size
        )
        return initial_state(self.settings, policy, key_training, observation_size, losses)

    def acting(self, state: TrainState) -> PPOActing:
        return PPOActing(state.policy, state.observation_stats, state.iteration)

    def begin(self, env: AbstractEnv, states: TrainState, keys: Key[Array, " N"]) -> RolloutState:
        return begin_seeds(env, states.policy, keys)

    def roll(
        self, env: AbstractEnv, acting: PPOActing, state: RolloutState, exploration: Exploration
    ) -> tuple[RolloutState, PPOExperience]:
        ppo, rollout = self.settings, self.config.rollout
        fault_share = scheduled_fault_share(rollout, self.config.iterations, acting.iteration)
        state, trajectory, final_value = roll(
            env,
            rollout,
            ppo.discount,
            ppo.bptt_length,
            acting.policy,
            acting.stats,
            state,
            exploration,
            fault_share,
            with_truth=bool(self.config.losses),
        )
        return state, PPOExperience(trajectory, final_value)

    def collected(self, experience: PPOExperience) -> Collected:
        rows = experience.trajectory
        return Collected(rows.observation, rows.complete, rows.action, rows.reward)

    def learn(
        self, state: TrainState, experience: PPOExperience, shards: Shards
    ) -> tuple[TrainState, Metrics]:
        return update(
            self.settings,
            self.config.rollout,
            self.config.iterations,
            state,
            experience.trajectory,
            experience.final_value,
            shards,
        )

    def controller(self, state: TrainState) -> PolicyController:
        clip = self.config.rollout.observation_clip
        return PolicyController(policy=state.policy, stats=state.observation_stats, observation_clip=clip)

    def insight(self, state: TrainState) -> PolicyInsight:
        return PolicyInsight(self.controller(state))

    def critic_costates(self, state: TrainState, sequence: Sequence) -> Float[Array, "T B F"]:
        observation = normalise(
            state.observation_stats, sequence.observation, self.config.rollout.observation_clip
        )
        start = empty_core_state(state.policy.core, sequence.is_first.shape[1])
        unrolled = unroll_policy(state.policy, observation, start, sequence.is_first)
        return costate_targets(state.policy.core, state.policy.critic, unrolled.memory)
