"""Environment × policy → trajectory: one compiled program that holds the physics and the policy together."""

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
    """How experience is collected.

    What is not given of the environments, the length and the colour is what the learner of the ``RunConfig`` needs.
    """

    environments: int = UNDECIDED
    """Environments that run side by side (the paper's rollout batch size)."""
    rollout_length: int = UNDECIDED
    """Control steps of every environment in one iteration."""
    observation_clip: float | None = 10.0
    """Bound of a normalised observation; None for no bound, as in the authors' code."""
    random_keys: Literal["separate", "shared"] = "separate"
    """Whether action noise and sensor dropout have keys of their own; the authors' code feeds one key to both."""
    fault_warmup: float = 0.0
    """Share of training in which faults of single steps (dropouts, noise) set in: an observation meets them with a chance that grows from 0."""
    noise_colour: float = UNDECIDED
    """Exponent β of the spectrum 1/f^β of the action noise over a rollout: 0 for white noise, 1 for pink, which tries a direction for longer."""

    def __post_init__(self) -> None:
        require_finite(self)
        if self.noise_colour is not UNDECIDED and not 0.0 <= self.noise_colour <= 2.0:
            raise ConfigError(
                f"noise_colour is {self.noise_colour}, but it is an exponent between 0 (white noise) and 2 (red noise). 1 is pink noise."
            )
        if not 0.0 <= self.fault_warmup <= 1.0:
            raise ConfigError(
                f"fault_warmup is {self.fault_warmup}, but it is a share of training: between 0 and 1. 0 for faults from the start."
            )
        for name, paper in (("environments", 32), ("rollout_length", 1000)):
            if (count := getattr(self, name)) is not UNDECIDED and count < 1:
                raise ConfigError(f"{name} is {count}, but it must be at least 1. The paper uses {paper}.")
        if self.observation_clip is not None and self.observation_clip <= 0.0:
            raise ConfigError(
                f"observation_clip is {self.observation_clip}, but a bound must be positive. Use None for no bound."
            )

    @property
    def steps_per_iteration(self) -> int:
        return self.environments * self.rollout_length


class RolloutState(StreamState):
    """The place of every stream between two iterations; several seeds are the first axis."""

    env_state: EnvState
    timestep: TimeStep
    core_state: Float[Array, "*N B C"]
    episode_return: Float[Array, "*N B"]
    episode_length: Int[Array, "*N B"]
    discounted_return: Float[Array, "*N B"]


class Trajectory(eqx.Module):
    """What happened, time-major. Row t: the policy saw y_t, did u_t, and got r_t. A single row has no axis ``T``."""

    observation: Float[Array, "*T B O"]
    is_first: Bool[Array, "*T B"]
    valid: Bool[Array, "*T B"]
    """False where y_t is the last of its episode: the action is ignored there, so the row belongs in no loss."""
    core_state: Float[Array, "*P B C"]
    """What the core carried before y_t was read; over time kept only where streams are cut for truncated BPTT, at least for the first step."""
    action: Float[Array, "*T B A"]
    """As sampled, before the actuators made of it what their bounds allow."""
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
    member_values: Float[Array, "*T B M"] | None = None
    """What each critic of an ensemble says; None where there is none."""
    complete: Float[Array, "*T B O"] | None = None
    """What working sensors would have shown; None where no loss asks for it."""
    seen: Bool[Array, "*T B"] | None = None
    """Whether anything was seen; None where no loss asks for it."""


class IterationKeys(NamedTuple):
    """The random keys of one iteration, each with one consumer."""

    reset: Key[Array, ""]
    rollout: Key[Array, ""]
    update: Key[Array, ""]
    following: Key[Array, ""]
    """What the next iteration's keys are made of."""


def iteration_keys(key: Key[Array, ""]) -> IterationKeys:
    return IterationKeys(*jax.random.split(key, 4))


def begin(env: AbstractEnv, policy: RecurrentActorCritic, key: Key[Array, ""]) -> RolloutState:
    """Start a new episode in every environment, with nothing in memory (runs on the host)."""
    env_state, timestep = env.reset(key)
    return _with_empty_memory(env_state, timestep, (env.batch_size, policy.core.state_size))


def begin_seeds(env: AbstractEnv, policies: RecurrentActorCritic, keys: Key[Array, " N"]) -> RolloutState:
    """The same for every seed, with the seeds as the first axis."""
    env_state, timestep = env.reset_seeds(keys)
    return _with_empty_memory(
        env_state, timestep, (keys.shape[0], env.batch_size, state_size_of(policies.core))
    )


def state_size_of(cores: AbstractCore) -> int:
    """Width of what is carried by cores that have the seeds as the first axis of their arrays; a core itself knows one seed only."""
    one: AbstractCore = jax.eval_shape(lambda cores: jax.tree.map(lambda leaf: leaf[0], cores), cores)
    return int(one.state_size)


def _with_empty_memory(env_state: EnvState, timestep: TimeStep, shape: tuple[int, ...]) -> RolloutState:
    # Made by NumPy, for the reason given in `first_step`.
    empty = (np.zeros(shape, np.float32), np.zeros(shape[:-1], np.float32), np.zeros(shape[:-1], np.int32))
    core_state, zeros, counts = jax.device_put(empty)
    return RolloutState(env_state, timestep, core_state, zeros, counts, zeros)


class Exploration(NamedTuple):
    """The random numbers of a rollout, drawn before it starts: action noise, and what the environment draws."""

    noise: Float[Array, "*T B A"]
    drawn: Drawn
    chance: Float[Array, "*T B"] | None = None
    """Uniform between 0 and 1, to decide whether an observation is read through the faults; None where all are."""


def explore(env: AbstractEnv, config: RolloutConfig, key: Key[Array, ""]) -> Exploration:
    """Random numbers for T steps of one seed.

    A program of its own: random numbers take longer to compile than the rest of a rollout, and a program without a simulator in it can be kept for
    the next time.
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
    # The number of a key that the split above does not give.
    chance = (
        jax.random.uniform(jax.random.fold_in(key, config.rollout_length), noise.shape[:2])
        if config.fault_warmup > 0.0
        else None
    )
    return Exploration(noise, jax.vmap(env.draw)(env_keys), chance)


def coloured(white: Float[Array, "T B A"], exponent: float) -> Float[Array, "T B A"]:
    """Standard normal noise whose spectrum over time falls like 1/f^β, from white noise.

    A linear filter that is cyclic over the rollout, scaled so that each number is still standard normal by itself: with independent ε of variance 1
    and the gains g_k of all T frequencies the variance is (1/T) Σ g_k². The mean is filtered like the lowest frequency, so a rollout may lean to
    one side as a whole. Eberhard et al. (2023) found β = 1 to explore well on most control tasks.
    """
    if exponent == 0.0:
        return white
    steps = white.shape[0]
    gains = np.maximum(np.abs(np.fft.fftfreq(steps)), 1.0 / steps) ** (-0.5 * exponent)
    gains = (gains / np.sqrt(np.mean(gains**2)))[: steps // 2 + 1].astype(np.float32)
    return jnp.fft.irfft(jnp.fft.rfft(white, axis=0) * gains[:, None, None], n=steps, axis=0)


def share_of_faults(
    config: RolloutConfig, iterations: int, iteration: Int[Array, ""]
) -> Float[Array, ""] | None:
    """How large a share of the observations is read through the faults in an iteration, counted from 0; None where all are from the start."""
    return (
        jnp.minimum(1.0, iteration / (config.fault_warmup * iterations)).astype(jnp.float32)
        if config.fault_warmup > 0.0
        else None
    )


def read_in_part(
    timestep: TimeStep, chance: Float[Array, " B"] | None, share: Float[Array, ""] | None
) -> TimeStep:
    """A time step of which only that share of the environments is read through the faults, and the others as working sensors show them.

    Blackouts with probability p thereby have the probability ``share`` × p. For faults of single steps only: what a fault remembers, such as the
    last value that arrived, would not be what was read.
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
    faults: Float[Array, ""] | None = None,
) -> tuple[RolloutState, Trajectory, Float[Array, " B"]]:
    """:func:`roll` with random numbers from ``key``."""
    return roll(env, config, discount, cut, policy, stats, state, explore(env, config, key), faults)


def roll(
    env: AbstractEnv,
    config: RolloutConfig,
    discount: float,
    cut: int | None,
    policy: RecurrentActorCritic,
    stats: RunningStats,
    state: RolloutState,
    exploration: Exploration,
    faults: Float[Array, ""] | None = None,
    with_truth: bool = False,
) -> tuple[RolloutState, Trajectory, Float[Array, " B"]]:
    """T steps of every environment of one seed; returns also the value of the observation after the last of them, to bootstrap from.

    Core states are kept at every ``cut``-th step; only at the first if that is None. ``faults`` is the share of the observations that is read through
    them, while they set in. Rows hold what working sensors would have shown only ``with_truth``.
    """

    policy = for_single_steps(policy)

    def advance(state: RolloutState, now: Exploration) -> tuple[RolloutState, Trajectory]:
        return _advance(env, config, discount, policy, stats, state, now, faults, with_truth)

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
    faults: Float[Array, ""] | None,
    with_truth: bool,
) -> tuple[RolloutState, Trajectory]:
    """One row: read, act, step."""
    now = state.timestep
    decision = act(
        policy, normalise(stats, now.observation, config.observation_clip), state.core_state, now.is_first
    )
    action = decision.control.sample(exploration.noise)
    env_state, after = env.advance(
        state.env_state, decision.control.actuate(action, env.action_low, env.action_high), exploration.drawn
    )
    after = read_in_part(after, exploration.chance, faults)

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
    """Return and length of each stream's episode so far, after one more step; both start anew where the episode does."""
    return jnp.where(now.is_first, 0.0, episode_return) + after.reward, jnp.where(
        now.is_first, 0, episode_length
    ) + 1
