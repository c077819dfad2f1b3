"""Rollouts: environment × policy → trajectory, with physics and policy in one compiled program."""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Int, Key
from costate._base.undecided import UNDECIDED
from costate.envs.base import AbstractEnv, Drawn, EnvState, TimeStep, anything_seen, true_observation
from costate.learners.states import StreamState
from costate.policies.cores import AbstractCore
from costate.policies.policy import RecurrentActorCritic, act, for_single_steps
from costate.policies.running_stats import RunningStats, normalise


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """Settings of the rollouts that collect experience.

    The learner of the ``RunConfig`` has defaults for environments, rollout_length and noise_colour.
    """

    environments: int = UNDECIDED
    """Environments that run side by side (the paper's rollout batch size)."""
    rollout_length: int = UNDECIDED
    """Control steps of each environment in one iteration."""
    observation_clip: float | None = 10.0
    """Bound of a normalised observation; None for no bound, as in the authors' code."""
    random_keys: Literal["separate", "shared"] = "separate"
    """Whether action noise and sensor dropout have separate random keys. The authors' code shares one key."""
    fault_warmup: float = 0.0
    """Share of training over which faults of single steps (dropouts, noise) set in: the probability that an
    observation is exposed to them grows from 0 to 1."""
    noise_colour: float = UNDECIDED
    """Exponent β of the spectrum 1/f^β of the action noise over a rollout: 0 for white noise, 1 for pink
    noise, which keeps to a direction for longer."""

    def __post_init__(self) -> None:
        require_finite(self)
        if self.noise_colour is not UNDECIDED and not 0.0 <= self.noise_colour <= 2.0:
            raise ConfigError(
                f"noise_colour is {self.noise_colour}, but it is an exponent between 0 (white noise) and 2 "
                "(red noise). 1 is pink noise."
            )
        if not 0.0 <= self.fault_warmup <= 1.0:
            raise ConfigError(
                f"fault_warmup is {self.fault_warmup}, but it is a share of training: between 0 and 1. "
                "Use 0 for faults from the start."
            )
        for name, paper in (("environments", 32), ("rollout_length", 1000)):
            if (count := getattr(self, name)) is not UNDECIDED and count < 1:
                raise ConfigError(f"{name} is {count}, but it must be at least 1. The paper uses {paper}.")
        if self.observation_clip is not None and self.observation_clip <= 0.0:
            raise ConfigError(
                f"observation_clip is {self.observation_clip}, but a bound must be positive. Use None for no "
                "bound."
            )

    @property
    def steps_per_iteration(self) -> int:
        return self.environments * self.rollout_length


class RolloutState(StreamState):
    """State of all streams between two iterations; several seeds are the first axis."""

    env_state: EnvState
    timestep: TimeStep
    core_state: Float[Array, "*N B C"]
    episode_return: Float[Array, "*N B"]
    episode_length: Int[Array, "*N B"]
    discounted_return: Float[Array, "*N B"]


class Trajectory(eqx.Module):
    """Rows of a rollout, time-major. Row t holds the observation y_t, the control u_t and the reward r_t.

    A single row has no axis ``T``.
    """

    observation: Float[Array, "*T B O"]
    is_first: Bool[Array, "*T B"]
    valid: Bool[Array, "*T B"]
    """False where y_t is the last of its episode: the action is ignored there, so the row is in no loss."""
    core_state: Float[Array, "*P B C"]
    """State of the core before it reads y_t. Kept for the first step, and wherever streams are cut for
    truncated BPTT."""
    action: Float[Array, "*T B A"]
    """The action as sampled, before it is limited to the actuators' bounds."""
    log_prob: Float[Array, "*T B"]
    value: Float[Array, "*T B"]
    reward: Float[Array, "*T B"]
    discount: Float[Array, "*T B"]
    """0 where the episode terminated with this step."""
    ends: Bool[Array, "*T B"]
    """True where the episode ended with this step, by termination or time limit."""
    episode_return: Float[Array, "*T B"]
    episode_length: Int[Array, "*T B"]
    discounted_return: Float[Array, "*T B"]
    """R_t = γ R_{t−1} + r_t since the episode started, whose variance scales the rewards."""
    member_values: Float[Array, "*T B M"] | None = None
    """Value by each critic of an ensemble; None without an ensemble."""
    complete: Float[Array, "*T B O"] | None = None
    """What working sensors would have shown; None unless a loss needs it."""
    seen: Bool[Array, "*T B"] | None = None
    """True where any sensor gave a reading; None unless a loss needs it."""


class IterationKeys(NamedTuple):
    """The random keys of one iteration, each used once."""

    reset: Key[Array, ""]
    rollout: Key[Array, ""]
    update: Key[Array, ""]
    following: Key[Array, ""]
    """The key from which the next iteration's keys are split."""


def iteration_keys(key: Key[Array, ""]) -> IterationKeys:
    return IterationKeys(*jax.random.split(key, 4))


def begin(env: AbstractEnv, policy: RecurrentActorCritic, key: Key[Array, ""]) -> RolloutState:
    """Start a new episode in every environment, with an empty memory (runs on the host)."""
    env_state, timestep = env.reset(key)
    return _with_empty_memory(env_state, timestep, (env.batch_size, policy.core.state_size))


def begin_seeds(env: AbstractEnv, policies: RecurrentActorCritic, keys: Key[Array, " N"]) -> RolloutState:
    """Do :func:`begin` for every seed, with the seeds as the first axis."""
    env_state, timestep = env.reset_seeds(keys)
    return _with_empty_memory(
        env_state, timestep, (keys.shape[0], env.batch_size, state_size_of(policies.core))
    )


def state_size_of(cores: AbstractCore) -> int:
    """Return the state size of cores whose arrays have the seeds as the first axis.

    A core itself is written for one seed.
    """
    one: AbstractCore = jax.eval_shape(lambda cores: jax.tree.map(lambda leaf: leaf[0], cores), cores)
    return int(one.state_size)


def _with_empty_memory(env_state: EnvState, timestep: TimeStep, shape: tuple[int, ...]) -> RolloutState:
    # Made by NumPy, for the reason given in `first_step`.
    empty = (np.zeros(shape, np.float32), np.zeros(shape[:-1], np.float32), np.zeros(shape[:-1], np.int32))
    core_state, zeros, counts = jax.device_put(empty)
    return RolloutState(env_state, timestep, core_state, zeros, counts, zeros)


class Exploration(NamedTuple):
    """The random numbers of a rollout, drawn before it starts: action noise, and those of the environment."""

    noise: Float[Array, "*T B A"]
    drawn: Drawn
    chance: Float[Array, "*T B"] | None = None
    """Uniform numbers between 0 and 1 that decide which observations are exposed to faults; None if all
    are."""


def explore(env: AbstractEnv, config: RolloutConfig, key: Key[Array, ""]) -> Exploration:
    """Draw the random numbers for T steps of one seed.

    This is a separate program, because random numbers take longer to compile than the rest of a rollout, and
    a program without a simulator can be cached.
    """
    keys = jax.random.split(key, config.rollout_length)
    noise_keys, env_keys = (
        (keys, keys)
        if config.random_keys == "shared"
        else jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    )
    noise = coloured(
        jax.vmap(lambda key: jax.random.normal(key, (env.batch_size, env.action_size)))(noise_keys),
        config.noise_colour or 0.0,
    )
    # Folding in this number gives a key that is none of those split above.
    chance = (
        jax.random.uniform(jax.random.fold_in(key, config.rollout_length), noise.shape[:2])
        if config.fault_warmup > 0.0
        else None
    )
    return Exploration(noise, jax.vmap(env.draw)(env_keys), chance)


def coloured(white: Float[Array, "T B A"], exponent: float) -> Float[Array, "T B A"]:
    """Filter white noise into standard normal noise whose spectrum over time falls like 1/f^β.

    The filter is linear and cyclic over the rollout. It is scaled so that each number is still standard
    normal by itself: with independent ε of variance 1 and the gains g_k of all T frequencies, the variance is
    (1/T) Σ g_k². The mean is filtered like the lowest frequency, so a rollout may lean to one side as a
    whole. Eberhard et al. (2023) found β = 1 to explore well on most control tasks.
    """
    if exponent == 0.0:
        return white
    steps = white.shape[0]
    gains = np.maximum(np.abs(np.fft.fftfreq(steps)), 1.0 / steps) ** (-0.5 * exponent)
    gains = (gains / np.sqrt(np.mean(gains**2)))[: steps // 2 + 1].astype(np.float32)
    return jnp.fft.irfft(jnp.fft.rfft(white, axis=0) * gains[:, None, None], n=steps, axis=0)


def scheduled_fault_share(
    config: RolloutConfig, iterations: int, iteration: Int[Array, ""]
) -> Float[Array, ""] | None:
    """Return the share of observations exposed to faults in an iteration, counted from 0.

    Return None if all observations are exposed from the start.
    """
    return (
        jnp.minimum(1.0, iteration / (config.fault_warmup * iterations)).astype(jnp.float32)
        if config.fault_warmup > 0.0
        else None
    )


def read_in_part(
    timestep: TimeStep, chance: Float[Array, " B"] | None, share: Float[Array, ""] | None
) -> TimeStep:
    """Return a time step in which only a ``share`` of the environments is exposed to faults.

    The others read what working sensors show. A blackout of probability p then has the probability ``share``
    × p. This is for faults of single steps only: a fault with a memory, such as the last value that arrived,
    would remember what was not read.
    """
    if chance is None or share is None or timestep.complete is None:
        return timestep
    faulty = chance < share
    observation = jnp.where(faulty[:, None], timestep.observation, timestep.complete)
    seen = None if timestep.seen is None else timestep.seen | ~faulty
    return dataclasses.replace(timestep, observation=observation, seen=seen)


def collect(
    env: AbstractEnv,
    config: RolloutConfig,
    discount: float,
    policy: RecurrentActorCritic,
    stats: RunningStats,
    state: RolloutState,
    key: Key[Array, ""],
    cut: int | None = None,
    fault_share: Float[Array, ""] | None = None,
) -> tuple[RolloutState, Trajectory, Float[Array, " B"]]:
    """Do :func:`roll` with random numbers from ``key``."""
    return roll(env, config, discount, cut, policy, stats, state, explore(env, config, key), fault_share)


def roll(
    env: AbstractEnv,
    config: RolloutConfig,
    discount: float,
    cut: int | None,
    policy: RecurrentActorCritic,
    stats: RunningStats,
    state: RolloutState,
    exploration: Exploration,
    fault_share: Float[Array, ""] | None = None,
    with_truth: bool = False,
) -> tuple[RolloutState, Trajectory, Float[Array, " B"]]:
    """Make T steps in every environment of one seed.

    The last result is the value of the observation after them, to bootstrap from. Core states are kept at
    every ``cut``-th step, or only at the first if it is None. ``fault_share`` is the share of observations
    exposed to faults while these set in. Rows hold what working sensors would have shown only ``with_truth``.
    """

    policy = for_single_steps(policy)

    def advance(state: RolloutState, now: Exploration) -> tuple[RolloutState, Trajectory]:
        return _advance(env, config, discount, policy, stats, state, now, fault_share, with_truth)

    state, trajectory = jax.lax.scan(advance, state, exploration)
    trajectory = dataclasses.replace(
        trajectory, core_state=trajectory.core_state[:: cut or config.rollout_length]
    )
    observation = normalise(stats, state.timestep.observation, config.observation_clip)
    final_value = act(policy, observation, state.core_state, state.timestep.is_first).value
    return state, trajectory, final_value


def _advance(
    env: AbstractEnv,
    config: RolloutConfig,
    discount: float,
    policy: RecurrentActorCritic,
    stats: RunningStats,
    state: RolloutState,
    exploration: Exploration,
    fault_share: Float[Array, ""] | None,
    with_truth: bool,
) -> tuple[RolloutState, Trajectory]:
    """Read, act and step once in every environment."""
    now = state.timestep
    decision = act(
        policy, normalise(stats, now.observation, config.observation_clip), state.core_state, now.is_first
    )
    action = decision.control.sample(exploration.noise)
    env_state, after = env.advance(
        state.env_state, decision.control.actuate(action, env.action_low, env.action_high), exploration.drawn
    )
    after = read_in_part(after, exploration.chance, fault_share)

    episode_return, episode_length = count_step(now, after, state.episode_return, state.episode_length)
    discounted_return = discount * jnp.where(now.is_first, 0.0, state.discounted_return) + after.reward
    row = Trajectory(
        observation=now.observation,
        is_first=now.is_first,
        valid=~now.is_last,
        core_state=state.core_state,
        action=action,
        log_prob=decision.control.log_prob(action),
        value=decision.value,
        reward=after.reward,
        discount=after.discount,
        ends=after.is_last,
        episode_return=episode_return,
        episode_length=episode_length,
        discounted_return=discounted_return,
        member_values=decision.member_values,
        complete=true_observation(now) if with_truth else None,
        seen=anything_seen(now) if with_truth else None,
    )
    return RolloutState(
        env_state, after, decision.core_state, episode_return, episode_length, discounted_return
    ), row


def count_step(
    now: TimeStep, after: TimeStep, episode_return: Float[Array, " B"], episode_length: Int[Array, " B"]
) -> tuple[Float[Array, " B"], Int[Array, " B"]]:
    """Add a step to the return and length of each stream's episode; both restart with the episode."""
    return jnp.where(now.is_first, 0.0, episode_return) + after.reward, jnp.where(
        now.is_first, 0, episode_length
    ) + 1
