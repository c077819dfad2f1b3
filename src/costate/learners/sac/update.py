"""Soft actor-critic (Haarnoja et al. 2018) over replayed windows with a burn-in (Kapturowski et al. 2019), and the co-state loss (Eq. 4.2).

Off-policy the value of an observation is V(ỹ_t) = E_{u∼π} min_i Q_i(h_t, u) − α log π(u), where ỹ and h are the critic's. The last term does not
depend on ỹ, because π has an encoder of its own, so the co-state's target is

    λ̂_t = stop_gradient ∂V/∂ỹ_t = (∂h_t/∂ỹ_t)ᵀ ∂/∂h_t E_{u∼π} min_i Q_i(h_t, u),

with what the core carried before held fixed, exactly as for PPO; the expectation is estimated by the one control that the actor's loss samples.

A critic is only needed while learning, where a simulator knows what the sensors would have shown. One that sees it (`critic="sighted"`; Pinto et al.
2017) needs no memory, and its gradient is that of a value of the state itself: what the actor's memory is pulled to is then the co-state at the true
observation, which the actor cannot see half of the time.
"""

import dataclasses
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Key, PyTree
from costate._base.undecided import UNDECIDED
from costate.learners.averages import Metrics, row_weights, weighted_sum
from costate.learners.sac.replay import Replay, ReplayConfig, Windows, sample
from costate.learners.sharding import ALONE, Shards
from costate.policies.cores import Memory
from costate.policies.cores.memoryless import MemorylessConfig
from costate.policies.costate_loss import costate_distance, targets_from_slopes
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import (
    RecurrentActor,
    RecurrentCritic,
    build_actor,
    build_critic,
    controls_before,
    read_window,
    sac_inputs,
    starting_memories,
)

Part = TypeVar("Part", RecurrentActor, RecurrentCritic)


@dataclasses.dataclass(frozen=True)
class SACConfig:
    """The learner's settings."""

    costate_coef: float = 0.05
    """Weight c₃ of the co-state loss; 0 is plain SAC."""
    costate_memory: Literal["actor", "both"] = "actor"
    """Whose hidden state is pulled towards the co-state: the actor's, or also the critic's own."""
    critic: Literal["sighted", "recurrent"] = UNDECIDED
    """What judges the actor while it learns: a critic that sees through the blackouts and so needs no memory, or one that reads and remembers what
    the actor reads. The actor, and with it the trained policy, is the same. What is not given is decided by the task: sighted where working sensors
    show the whole state."""
    steps_per_update: int = 16
    """Environment steps for each update."""
    warmup_steps: int = 5_000
    """Steps of random controls before learning starts."""
    explorers: int = 0
    """Environments that never stop doing random controls, so that the replay always has some of what the policy does not do."""
    observation_statistics: Literal["running", "frozen"] = "running"
    """What observations are normalised by: the mean and deviation of all steps so far, or those of the warm-up alone. A body that learns to move
    leaves the range of a body that trembles, and what is clipped there cannot be learnt from."""
    head_width: int = 128
    """Units in each of the two hidden layers of a Q head."""
    learning_rate: float = 1e-3
    """Adam's step size for actor, critic and temperature."""
    max_gradient_norm: float = 10.0
    """Gradients of the actor or of the critic that are longer are shortened to it."""
    discount: float = 0.99
    """Discount factor γ."""
    target_rate: float = 0.05
    """Share τ of the critic that the target critic takes over with every update."""
    initial_temperature: float = 0.1
    """Weight α of the entropy at the start."""
    target_entropy: float = -0.5
    """Entropy that the temperature steers to, for each component of the control."""
    replay: ReplayConfig = ReplayConfig()

    @property
    def sighted(self) -> bool:
        """Whether the critic sees through the blackouts; without a task that decides otherwise it does."""
        return self.critic != "recurrent"

    def __post_init__(self) -> None:
        require_finite(self)
        for name in ("steps_per_update", "head_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be at least 1.")
        for name in ("learning_rate", "max_gradient_norm", "initial_temperature"):
            if getattr(self, name) <= 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be a positive number.")
        if not 0.0 <= self.discount <= 1.0 or not 0.0 < self.target_rate <= 1.0:
            raise ConfigError(f"discount is {self.discount} and target_rate is {self.target_rate}, but they are shares of 1, the rate not zero.")
        for name in ("costate_coef", "warmup_steps", "explorers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it cannot be negative.")


class Networks(eqx.Module):
    """What gradients change."""

    actor: RecurrentActor
    critic: RecurrentCritic
    log_temperature: Float[Array, ""]


class SACState(eqx.Module):
    """Everything that learning changes, but for the replay."""

    networks: Networks
    target: RecurrentCritic
    optimiser: PyTree
    observation_stats: RunningStats


def initial_sac_state(config: SACConfig, policy: PolicyConfig, key: Key[Array, ""], stats: RunningStats, action_size: int) -> SACState:
    """Learning before its first update."""
    key_actor, key_critic = jax.random.split(key)
    observation_size = stats.mean.shape[0]
    networks = Networks(
        build_actor(policy, key_actor, observation_size, action_size),
        build_critic(critics_parts(config, policy), config.head_width, key_critic, observation_size, action_size),
        jnp.log(jnp.float32(config.initial_temperature)),
    )
    return SACState(networks, networks.critic, make_sac_optimiser(config).init(networks), stats)


def critics_parts(config: SACConfig, policy: PolicyConfig) -> PolicyConfig:
    """What a critic is made of: the parts of the actor, but no memory where it sees everything."""
    return dataclasses.replace(policy, core=MemorylessConfig()) if config.sighted else policy


def make_sac_optimiser(config: SACConfig) -> optax.GradientTransformation:
    """One Adam for everything; it works component by component, so nothing is shared but the step size."""
    return optax.adam(config.learning_rate)


def clip_parts(gradient: Networks, limit: float) -> Networks:
    """The gradients of actor and critic shortened each by itself: their lengths have nothing to do with each other."""

    def clip(part: Part) -> Part:
        shorter: Part = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, limit / jnp.maximum(optax.tree.norm(part), 1e-12)), part)
        return shorter

    return Networks(clip(gradient.actor), clip(gradient.critic), gradient.log_temperature)


def judge(critic: RecurrentCritic, hidden: Float[Array, "M N H"], action: Float[Array, "M N A"]) -> tuple[Array, Array, Array]:
    """min_i Q_i with its derivatives by the memory and by the control, from one pass through the heads."""
    value, pull_back = jax.vjp(critic.lower, hidden, action)
    by_hidden, by_action = pull_back(jnp.ones_like(value))
    return value, by_hidden, by_action


def loss_weights(usable: Bool[Array, "L N"], burn_in: int) -> Float[Array, "M N"]:
    """Equal weights for the rows that can be learnt from, without the burn-in; they sum to 1, or are all zero if there is none.

    The last row of a window has no outcome and is never among them.
    """
    return row_weights(usable[burn_in:].astype(jnp.float32))


def sac_loss(
    networks: Networks,
    config: SACConfig,
    observation_clip: float | None,
    target: RecurrentCritic,
    stats: RunningStats,
    windows: Windows,
    weight: Float[Array, "M N"],
    noise: Float[Array, "M N A"],
) -> tuple[Float[Array, ""], Metrics]:
    """L_critic + L_actor + L_temperature + c₃ L_co-state. Each network gets the gradient of its own losses only."""
    rows, burn_in = windows.rows, config.replay.burn_in
    actor, critic = networks.actor, networks.critic
    before = controls_before(rows.action, windows.before)
    inputs = sac_inputs(stats, observation_clip, rows.observation, before, rows.is_first)
    judged = inputs if rows.complete is None else sac_inputs(stats, observation_clip, rows.complete, before, rows.is_first)
    of_actor, of_critic = starting_memories(windows.memory, actor.core.state_size)
    actor_memory = read_window(actor, inputs, rows.is_first, burn_in, of_actor)
    critic_memory = read_window(critic, judged, rows.is_first, burn_in, of_critic)
    target_memory = read_window(target, judged, rows.is_first, burn_in, of_critic)

    action, log_prob = actor.policy(actor_memory.features, actor_memory.hiddens).sample(noise)
    frozen, frozen_memory = jax.lax.stop_gradient((critic, critic_memory))
    value, by_hidden, by_action = jax.lax.stop_gradient(judge(frozen, frozen_memory.hiddens, action))
    temperature = jnp.exp(networks.log_temperature)
    fixed_temperature = jax.lax.stop_gradient(temperature)

    # ∂/∂θ min Q(h, u_θ) = ∂Q/∂u · ∂u/∂θ: the derivative by the control is known already, so no second pass through the critic is needed.
    actor_loss = weighted_sum(fixed_temperature * log_prob - (by_action * action).sum(-1), weight)
    backup = soft_backup(config, target, target_memory, rows.reward[burn_in:], rows.discount[burn_in:], action, log_prob, fixed_temperature)
    errors = [q - backup for q in critic.values(critic_memory.hiddens, rows.action[burn_in:])]
    critic_loss = sum(weighted_sum(0.5 * jnp.square(error), weight) for error in errors)
    entropy = -weighted_sum(jax.lax.stop_gradient(log_prob), weight)
    wanted = config.target_entropy * action.shape[-1] * weight.sum()
    # Too little entropy raises α, too much lowers it.
    temperature_loss = networks.log_temperature * (entropy - wanted)

    targets = targets_from_slopes(critic.core, critic_memory, by_hidden)
    costate = weighted_sum(costate_distance(actor_memory.hiddens, targets), weight)
    own = weighted_sum(costate_distance(critic_memory.hiddens, targets), weight)
    loss = actor_loss + critic_loss + temperature_loss
    if config.costate_coef > 0.0:
        loss = loss + config.costate_coef * (costate + own if config.costate_memory == "both" else costate)
    return loss, {
        # What the loss estimates; the loss itself stands for it only in its gradient.
        "losses/policy": weighted_sum(fixed_temperature * log_prob - value, weight),
        "losses/value": jnp.asarray(critic_loss),
        "losses/entropy": entropy,
        "losses/costate": costate,
        "losses/costate_critic": own,
        "losses/q": weighted_sum(value, weight),
        "losses/temperature": temperature_loss,
    }


def soft_backup(
    config: SACConfig,
    target: RecurrentCritic,
    memory: Memory,
    reward: Float[Array, "M N"],
    discount: Float[Array, "M N"],
    action: Float[Array, "M N A"],
    log_prob: Float[Array, "M N"],
    temperature: Float[Array, ""],
) -> Float[Array, "M N"]:
    """r_t + γ γ_t (min_i Q̄_i(h̄_{t+1}, u_{t+1}) − α log π(u_{t+1})), the target critic's view of the next row; meaningless in the last row."""
    after = target.lower(memory.hiddens, action) - temperature * log_prob
    following = jnp.concatenate([after[1:], jnp.zeros_like(after[:1])])
    return jax.lax.stop_gradient(reward + config.discount * discount * following)


def sac_update(
    config: SACConfig, observation_clip: float | None, state: SACState, replay: Replay, key: Key[Array, ""], shards: Shards = ALONE
) -> tuple[SACState, Metrics]:
    """One gradient step on one batch of windows. All shards draw the same windows, and each computes its share of them."""
    key_windows, key_noise = jax.random.split(key)
    settings = config.replay
    windows = sample(replay, key_windows, settings.window, settings.batch)
    weight = loss_weights(windows.usable, settings.burn_in)
    noise = jax.random.normal(key_noise, (*weight.shape, replay.rows.action.shape[-1]))
    over_time, at_start = (windows.rows, windows.usable, weight, noise), (windows.before, windows.memory)
    own_rows, own_usable, own_weight, own_noise = jax.tree.map(lambda array: shards.part(array, axis=1), over_time)
    own_windows = Windows(own_rows, own_usable, *jax.tree.map(lambda array: shards.part(array, axis=0), at_start))
    gradient, metrics = jax.grad(sac_loss, has_aux=True)(
        state.networks, config, observation_clip, state.target, state.observation_stats, own_windows, own_weight, own_noise
    )
    gradient, metrics = shards.total((gradient, metrics))
    clipped = clip_parts(gradient, config.max_gradient_norm)
    changes, optimiser = make_sac_optimiser(config).update(clipped, state.optimiser, state.networks)
    networks = optax.apply_updates(state.networks, changes)
    target = jax.tree.map(lambda old, new: old + config.target_rate * (new - old), state.target, networks.critic)
    metrics |= {"losses/grad_norm": optax.tree.norm(gradient), "training/temperature": jnp.exp(networks.log_temperature)}
    return SACState(networks, target, optimiser, state.observation_stats), metrics
