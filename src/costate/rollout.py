"""Environment × policy → trajectory: one compiled program that holds the physics and the policy together."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._errors import ConfigError
from costate._types import Array, Bool, Float, Int, Key
from costate.cores import initial_hidden
from costate.envs.base import AbstractEnv, EnvState, TimeStep
from costate.policy import RecurrentActorCritic, act
from costate.running_stats import RunningStats, normalise


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """How experience is collected."""

    environments: int = 32
    """Environments that run side by side (the paper's rollout batch size)."""
    rollout_length: int = 1000
    """Control steps of every environment in one iteration."""
    observation_clip: float | None = 10.0
    """Bound of a normalised observation; None for no bound, as in the authors' code."""
    random_keys: Literal["separate", "shared"] = "separate"
    """Whether action noise and sensor dropout have keys of their own; the authors' code feeds one key to both."""

    def __post_init__(self) -> None:
        if self.environments < 1 or self.rollout_length < 1:
            raise ConfigError(
                f"environments is {self.environments} and rollout_length is {self.rollout_length}, but both must be at least 1. "
                "The paper uses 32 and 1000."
            )
        if self.observation_clip is not None and self.observation_clip <= 0.0:
            raise ConfigError(f"observation_clip is {self.observation_clip}, but a bound must be positive. Use None for no bound.")

    @property
    def steps_per_iteration(self) -> int:
        return self.environments * self.rollout_length


class RolloutState(eqx.Module):
    """Where every stream stands between two iterations."""

    env_state: EnvState
    timestep: TimeStep
    hidden: Float[Array, "B H"]
    episode_return: Float[Array, " B"]
    episode_length: Int[Array, " B"]
    discounted_return: Float[Array, " B"]


class Trajectory(eqx.Module):
    """What happened, time-major. Row t: the policy saw y_t, did u_t, and got r_t. A single row has no axis ``T``."""

    observation: Float[Array, "*T B O"]
    is_first: Bool[Array, "*T B"]
    valid: Bool[Array, "*T B"]
    """False where y_t is the last of its episode: the action is ignored there, so the row belongs in no loss."""
    hidden: Float[Array, "*T B H"]
    """The hidden state before y_t was read."""
    action: Float[Array, "*T B A"]
    """As sampled, before it was clipped to the bounds of the environment."""
    log_prob: Float[Array, "*T B"]
    value: Float[Array, "*T B"]
    reward: Float[Array, "*T B"]
    discount: Float[Array, "*T B"]
    """0 where the episode terminated with this step."""
    ends: Bool[Array, "*T B"]
    """Whether the episode ended with this step, by termination or time limit."""
    episode_return: Float[Array, "*T B"]
    episode_length: Int[Array, "*T B"]
    discounted_return: Float[Array, "*T B"]
    """R_t = γ R_{t−1} + r_t since the episode started, whose variance scales the rewards."""


def begin(env: AbstractEnv, policy: RecurrentActorCritic, key: Key[Array, ""]) -> RolloutState:
    """Start a new episode in every environment, with nothing in memory (runs on the host)."""
    env_state, timestep = env.reset(key)
    zeros = jnp.zeros(env.batch_size)
    hidden = initial_hidden(policy.core, env.batch_size)
    return RolloutState(env_state, timestep, hidden, zeros, jnp.zeros(env.batch_size, jnp.int32), zeros)


def collect(
    env: AbstractEnv,
    config: RolloutConfig,
    discount: float,
    policy: RecurrentActorCritic,
    stats: RunningStats,
    state: RolloutState,
    key: Key[Array, ""],
) -> tuple[RolloutState, Trajectory, Float[Array, " B"]]:
    """T steps of every environment; returns also the value of the observation after the last of them, to bootstrap from."""

    def advance(state: RolloutState, key: Key[Array, ""]) -> tuple[RolloutState, Trajectory]:
        return _advance(env, config, discount, policy, stats, state, key)

    state, trajectory = jax.lax.scan(advance, state, jax.random.split(key, config.rollout_length))
    observation = normalise(stats, state.timestep.observation, config.observation_clip)
    final_value = act(policy, observation, state.hidden, state.timestep.is_first).value
    return state, trajectory, final_value


def _advance(
    env: AbstractEnv,
    config: RolloutConfig,
    discount: float,
    policy: RecurrentActorCritic,
    stats: RunningStats,
    state: RolloutState,
    key: Key[Array, ""],
) -> tuple[RolloutState, Trajectory]:
    """One row: read, act, step."""
    key_noise, key_env = (key, key) if config.random_keys == "shared" else jax.random.split(key)
    now = state.timestep
    decision = act(policy, normalise(stats, now.observation, config.observation_clip), state.hidden, now.is_first)
    action = decision.control.sample(jax.random.normal(key_noise, decision.control.mean.shape))
    env_state, after = env.step(state.env_state, clip_action(env, action), key_env)

    episode_return = jnp.where(now.is_first, 0.0, state.episode_return) + after.reward
    episode_length = jnp.where(now.is_first, 0, state.episode_length) + 1
    discounted_return = discount * jnp.where(now.is_first, 0.0, state.discounted_return) + after.reward
    row = Trajectory(
        observation=now.observation,
        is_first=now.is_first,
        valid=~now.is_last,
        hidden=state.hidden,
        action=action,
        log_prob=decision.control.log_prob(action),
        value=decision.value,
        reward=after.reward,
        discount=after.discount,
        ends=after.is_last,
        episode_return=episode_return,
        episode_length=episode_length,
        discounted_return=discounted_return,
    )
    return RolloutState(env_state, after, decision.hidden, episode_return, episode_length, discounted_return), row


def clip_action(env: AbstractEnv, action: Float[Array, "B A"]) -> Float[Array, "B A"]:
    """What the actuators do with a control outside their bounds (Appendix E.2)."""
    return jnp.clip(action, jnp.broadcast_to(env.action_low, action.shape), jnp.broadcast_to(env.action_high, action.shape))
