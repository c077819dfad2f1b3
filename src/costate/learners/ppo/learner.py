"""Proximal policy optimisation as in the paper, behind the common interface."""

from typing import Any

import jax

from costate._base.types import Array, Float, Key, UInt
from costate.envs.base import AbstractEnv
from costate.learners.base import AbstractAlgorithm, Collected, Experience, Metrics, Sequence
from costate.learners.ppo.config import streams_per_minibatch
from costate.learners.ppo.update import TrainState, initial_state, update
from costate.learners.replay import Replay
from costate.learners.rollout import Exploration, RolloutState, begin_seeds, roll, share_of_faults
from costate.learners.sharding import Shards
from costate.losses import build_losses
from costate.policies.controllers import PolicyController
from costate.policies.cores import empty_core_state
from costate.policies.costate_loss import costate_targets
from costate.policies.insight import PolicyInsight
from costate.policies.policy import build_policy, unroll_policy
from costate.policies.running_stats import normalise


class OnPolicy(AbstractAlgorithm):
    """Every iteration learns from its own rollout alone."""

    @property
    def streams(self) -> int:
        return streams_per_minibatch(self.config.rollout, self.config.ppo)

    @property
    def worth_a_device(self) -> int:
        return 1

    @property
    def spreads_products(self) -> bool:
        return True

    @property
    def warmup_iterations(self) -> int:
        return 0

    @property
    def updates_per_iteration(self) -> int:
        return self.config.ppo.epochs * self.config.ppo.minibatches

    @property
    def cost_of_a_step(self) -> float:
        # Learning adds a fifth where physics is slow, and doubles it or more where it is fast.
        return 1.0

    def fresh(self, seed: UInt[Array, ""]) -> TrainState:
        key_policy, key_training = jax.random.split(jax.random.key(seed))
        observation_size, action_size = self.config.observation_size, self.config.task_record.action_size
        policy = build_policy(self.config.policy, key_policy, observation_size, action_size)
        # From a key of its own, so that all other weights are those of a run without such losses.
        key_losses, shape = jax.random.fold_in(key_policy, 5), self.config.policy
        losses = build_losses(
            self.config.losses, key_losses, shape.hidden_size, shape.features, observation_size
        )
        return initial_state(self.config.ppo, policy, key_training, observation_size, losses)

    def acting(self, state: TrainState) -> Any:
        return state.policy, state.observation_stats, state.iteration

    def begin(self, env: AbstractEnv, states: TrainState, keys: Key[Array, " N"]) -> RolloutState:
        return begin_seeds(env, states.policy, keys)

    def roll(
        self, env: AbstractEnv, acting: Any, state: RolloutState, exploration: Exploration
    ) -> tuple[RolloutState, Experience]:
        ppo = self.config.ppo
        policy, stats, iteration = acting
        faults = share_of_faults(self.config.rollout, self.config.iterations, iteration)
        rollout, with_truth = self.config.rollout, bool(self.config.losses)
        state, trajectory, final_value = roll(
            env, rollout, ppo.discount, ppo.bptt_length, policy, stats, state, exploration, faults, with_truth
        )
        return state, Experience((trajectory, final_value), trajectory.is_first)

    def collected(self, experience: Experience) -> Collected:
        trajectory, _ = experience.rows
        return Collected(trajectory.observation, None, trajectory.action, trajectory.reward)

    def learn(self, state: TrainState, experience: Experience, shards: Shards) -> tuple[TrainState, Metrics]:
        trajectory, final_value = experience.rows
        return update(
            self.config.ppo,
            self.config.rollout,
            self.config.iterations,
            state,
            trajectory,
            final_value,
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

    @property
    def replay_bytes(self) -> int:
        return 0

    def detach_replay(self, state: TrainState) -> tuple[TrainState, None]:
        return state, None

    def attach_replay(self, state: TrainState, replay: Replay | None) -> TrainState:
        return state
