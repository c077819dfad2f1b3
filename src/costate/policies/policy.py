"""The recurrent actor-critic: a shared encoder, a core, a readout and a critic."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores import AbstractCore, CoreConfig, Memory, read_sequence, step_batch
from costate.policies.cores.ensemble import build_ensemble
from costate.policies.cores.gru import GRUConfig
from costate.policies.critics import AbstractCritic, EnsembleCritic, ensemble_critic, linear_critic
from costate.policies.distribution import AbstractDistribution
from costate.policies.initialisation import orthogonal
from costate.policies.readouts import AbstractReadout, ReadoutConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig
from costate.policies.readouts.mean_hamiltonian import MeanHamiltonianReadout


class Encoder(eqx.Module):
    """ỹ = tanh(W_enc y + b_enc), shared by actor and critic (Appendix E.1)."""

    weights: Float[Array, "O F"]
    bias: Float[Array, " F"]

    def encode(self, observation: Float[Array, "*S O"]) -> Float[Array, "*S F"]:
        product = observation @ self.weights
        return jnp.tanh(product + jnp.broadcast_to(self.bias, product.shape))


def build_encoder(key: Key[Array, ""], inputs: int, features: int) -> Encoder:
    """Return an encoder with fresh weights."""
    return Encoder(orthogonal(key, inputs, features), jnp.zeros(features))


class RecurrentActorCritic(eqx.Module):
    """y → encoder → core → readout, and the critic on the core's hidden state.

    Observations are already normalised.
    """

    encoder: Encoder
    core: AbstractCore
    readout: AbstractReadout
    critic: AbstractCritic
    costate_map: Float[Array, "H F"] | None = None
    """Map of hidden states to features, to compare them with ∂V/∂ỹ; None if they have the same width."""

    def in_features(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S F"]:
        """Return h in the coordinates of features, where it is compared with ∂V/∂ỹ."""
        return hidden if self.costate_map is None else hidden @ self.costate_map


def for_single_steps(policy: RecurrentActorCritic) -> RecurrentActorCritic:
    """Return the policy in the form in which :func:`act` is fastest inside a loop."""
    return dataclasses.replace(policy, core=policy.core.unstacked())


class PolicyStep(eqx.Module):
    """One step of a batch of streams."""

    core_state: Float[Array, "B C"]
    control: AbstractDistribution
    value: Float[Array, " B"]
    member_values: Float[Array, "B M"] | None
    """Value by each critic of an ensemble; None without an ensemble."""


class Unrolled(eqx.Module):
    """All steps of a sequence, as far as losses need them."""

    memory: Memory
    control: AbstractDistribution
    value: Float[Array, "T B"]
    member_values: Float[Array, "T B M"] | None


def act(
    policy: RecurrentActorCritic,
    observation: Float[Array, "B O"],
    core_state: Float[Array, "B C"],
    is_first: Bool[Array, " B"],
) -> PolicyStep:
    """Read one observation (the three lines of Algorithm 1 before sampling)."""
    features = policy.encoder.encode(observation)
    core_state = step_batch(policy.core, features, core_state, is_first)
    hidden = policy.core.expose(core_state)
    return PolicyStep(
        core_state,
        policy.readout.distribution(features, hidden),
        policy.critic.value(hidden),
        _member_values(policy, hidden),
    )


def unroll_policy(
    policy: RecurrentActorCritic,
    observation: Float[Array, "T B O"],
    core_state: Float[Array, "B C"],
    is_first: Bool[Array, "T B"],
) -> Unrolled:
    """Read a whole sequence; equal to ``act`` step by step, and differentiable to its start."""
    memory = read_sequence(policy.core, policy.encoder.encode(observation), core_state, is_first)
    control = policy.readout.distribution(memory.features, memory.hiddens)
    return Unrolled(
        memory, control, policy.critic.value(memory.hiddens), _member_values(policy, memory.hiddens)
    )


def _member_values(policy: RecurrentActorCritic, hidden: Float[Array, "*S H"]) -> Float[Array, "*S M"] | None:
    return policy.critic.values(hidden) if isinstance(policy.critic, EnsembleCritic) else None


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """The parts of a policy."""

    hidden_size: int = 128
    """Width of the hidden state, and of the encoded observation unless feature_size says otherwise, so that
    the cosine of h and ∂V/∂ỹ is defined."""
    core: CoreConfig = GRUConfig()
    readout: ReadoutConfig = QuadraticReadoutConfig()
    feature_size: int | None = None
    """Width of the encoded observation; if it is not that of the hidden state, a learned linear map of h is
    compared with ∂V/∂ỹ."""
    ensemble: int = 1
    """Co-state hypotheses: cores with critics of their own, of which the control minimises the mean
    Hamiltonian (Appendix D)."""

    def __post_init__(self) -> None:
        if self.hidden_size < 1:
            raise ConfigError(
                f"hidden_size is {self.hidden_size}, but a hidden state needs at least one unit. "
                "The paper uses 128."
            )
        if self.ensemble < 1:
            raise ConfigError(
                f"ensemble is {self.ensemble}, but a policy needs at least 1 hypothesis about the co-state. "
                "1 is the paper's policy."
            )
        if self.feature_size is not None and self.feature_size < 1:
            raise ConfigError(
                f"feature_size is {self.feature_size}, but an encoded observation needs at least one number. "
                "None for hidden_size."
            )
        if self.features != self.hidden_size and getattr(self.readout, "influence", "constant") == "observed":
            raise ConfigError(
                f"feature_size is {self.feature_size} and hidden_size {self.hidden_size}, but an influence "
                "that depends on the observation multiplies the two unit by unit. Leave feature_size out, or "
                "use --readout.influence constant."
            )

    @property
    def features(self) -> int:
        """Return the width of the encoded observation."""
        return self.hidden_size if self.feature_size is None else self.feature_size


def build_policy(
    config: PolicyConfig, key: Key[Array, ""], observation_size: int, action_size: int
) -> RecurrentActorCritic:
    """Return a policy with fresh weights (Appendix E.1)."""
    key_encoder, key_core, key_readout, key_critic = jax.random.split(key, 4)
    width, features, count = config.hidden_size, config.features, config.ensemble
    readout = config.readout.build(key_readout, width, action_size)
    return RecurrentActorCritic(
        encoder=build_encoder(key_encoder, observation_size, features),
        core=config.core.build(key_core, features, width)
        if count == 1
        else build_ensemble(config.core, key_core, count, features, width),
        readout=readout if count == 1 else MeanHamiltonianReadout(readout, count),
        critic=linear_critic(key_critic, width) if count == 1 else ensemble_critic(key_critic, count, width),
        # A separate key, so that all other weights are those of a policy without it.
        costate_map=None if features == width else orthogonal(jax.random.fold_in(key, 4), width, features),
    )
