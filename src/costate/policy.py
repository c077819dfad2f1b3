"""The recurrent actor-critic: a shared encoder, a core, a readout and a critic."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._errors import ConfigError
from costate._types import Array, Bool, Float, Key
from costate.cores import AbstractCore, CoreConfig, Memory, read_sequence, step_batch
from costate.cores.gru import GRUConfig
from costate.critics import LinearCritic, linear_critic
from costate.initialisation import orthogonal
from costate.readouts import AbstractDistribution, AbstractReadout, ReadoutConfig
from costate.readouts.linear import QuadraticReadoutConfig


class Encoder(eqx.Module):
    """ỹ = tanh(W_enc y + b_enc), shared by actor and critic (Appendix E.1)."""

    weights: Float[Array, "O F"]
    bias: Float[Array, " F"]

    def encode(self, observation: Float[Array, "*S O"]) -> Float[Array, "*S F"]:
        product = observation @ self.weights
        return jnp.tanh(product + jnp.broadcast_to(self.bias, product.shape))


def build_encoder(key: Key[Array, ""], inputs: int, features: int) -> Encoder:
    """An encoder with fresh weights."""
    return Encoder(orthogonal(key, inputs, features), jnp.zeros(features))


class RecurrentActorCritic(eqx.Module):
    """y → encoder → core → readout, and the critic on the core's hidden state. Observations are already normalised."""

    encoder: Encoder
    core: AbstractCore
    readout: AbstractReadout
    critic: LinearCritic


class PolicyStep(eqx.Module):
    """What one observation does to a batch of streams."""

    core_state: Float[Array, "B C"]
    control: AbstractDistribution
    value: Float[Array, " B"]


class Unrolled(eqx.Module):
    """What a sequence of observations does, kept as far as losses need it."""

    memory: Memory
    control: AbstractDistribution
    value: Float[Array, "T B"]


def act(policy: RecurrentActorCritic, observation: Float[Array, "B O"], core_state: Float[Array, "B C"], is_first: Bool[Array, " B"]) -> PolicyStep:
    """Read one observation (the three lines of Algorithm 1 before sampling)."""
    features = policy.encoder.encode(observation)
    core_state = step_batch(policy.core, features, core_state, is_first)
    hidden = policy.core.expose(core_state)
    return PolicyStep(core_state, policy.readout.distribution(features, hidden), policy.critic.value(hidden))


def unroll_policy(
    policy: RecurrentActorCritic, observation: Float[Array, "T B O"], core_state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
) -> Unrolled:
    """Read a whole sequence; equal to ``act`` step by step, and differentiable to its start."""
    memory = read_sequence(policy.core, policy.encoder.encode(observation), core_state, is_first)
    return Unrolled(memory, policy.readout.distribution(memory.features, memory.hiddens), policy.critic.value(memory.hiddens))


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """The parts of a policy."""

    hidden_size: int = 128
    """Width of the hidden state and of the encoded observation; they are equal, so that the cosine between h and ∂V/∂ỹ is defined."""
    core: CoreConfig = GRUConfig()
    readout: ReadoutConfig = QuadraticReadoutConfig()

    def __post_init__(self) -> None:
        if self.hidden_size < 1:
            raise ConfigError(f"hidden_size is {self.hidden_size}, but a hidden state needs at least one unit. The paper uses 128.")


def build_policy(config: PolicyConfig, key: Key[Array, ""], observation_size: int, action_size: int) -> RecurrentActorCritic:
    """A policy with fresh weights (Appendix E.1)."""
    key_encoder, key_core, key_readout, key_critic = jax.random.split(key, 4)
    width = config.hidden_size
    return RecurrentActorCritic(
        encoder=build_encoder(key_encoder, observation_size, width),
        core=config.core.build(key_core, width, width),
        readout=config.readout.build(key_readout, width, action_size),
        critic=linear_critic(key_critic, width),
    )
