"""The two networks of soft actor-critic: an actor and a critic, each with an encoder and a core of its own.

They are made of the same encoders, cores and readouts as the paper's policy. Beside the observation they read
whether there was one, and the control before it, because off-policy data must say what was done.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores import AbstractCore, Memory, empty_core_state, read_sequence, step_batch
from costate.policies.cores.memoryless import Memoryless
from costate.policies.distribution import AbstractDistribution
from costate.policies.heads import AbstractHead, HeadConfig
from costate.policies.layer import Layer
from costate.policies.policy import Encoder, PolicyConfig, build_encoder
from costate.policies.readouts import AbstractReadout, over_streams
from costate.policies.running_stats import RunningStats, normalise
from costate.policies.squashed import SquashedGaussian, bounded_log_std


class RecurrentActor(eqx.Module):
    """Inputs → encoder → core → readout, whose control is the mean before squashing.

    The width of exploration depends on the memory.
    """

    encoder: Encoder
    core: AbstractCore
    readout: AbstractReadout
    spread: Layer

    def distribution(
        self, features: Float[Array, "*S F"], hidden: Float[Array, "*S H"]
    ) -> AbstractDistribution:
        """Return π(u | ỹ, h) for any number of streams."""
        return SquashedGaussian(
            over_streams(self.readout.control, features, hidden), bounded_log_std(self.spread.apply(hidden))
        )


class RecurrentCritic(eqx.Module):
    """Inputs → encoder → core → one or several heads, of which the lowest value counts."""

    encoder: Encoder
    core: AbstractCore
    heads: tuple[AbstractHead, ...]

    def values(
        self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"]
    ) -> tuple[Float[Array, "*S"], ...]:
        """Return Q_i(h, u) of every head."""
        return tuple(head.value(head.predict(hidden, action)) for head in self.heads)

    def lowest(self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"]) -> Float[Array, "*S"]:
        """Return min_i Q_i(h, u)."""
        return functools.reduce(jnp.minimum, self.values(hidden, action))

    def losses(
        self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"], backup: Float[Array, "*S"]
    ) -> tuple[Float[Array, "*S"], ...]:
        """Return the loss of every head where its Q(h, u) should be ``backup``."""
        return tuple(head.loss(head.predict(hidden, action), head.target(backup)) for head in self.heads)


def sac_inputs(
    stats: RunningStats,
    clip: float | None,
    observation: Float[Array, "*S O"],
    seen: Bool[Array, "*S"],
    before: Float[Array, "*S A"],
    is_first: Bool[Array, "*S"],
) -> Float[Array, "*S I"]:
    """Return the inputs of both networks: normalised observation, whether there was one, control before it.

    Where nothing is seen and nothing held, zeros stay zero after normalising, which is the mean of what is
    seen. A true reading of zero is normalised like any other, and so is a value that is held in the dark.
    """
    empty = nothing_but_zeros(observation) & ~seen
    shown = jnp.where(empty[..., None], jnp.zeros_like(observation), normalise(stats, observation, clip))
    done = jnp.where(is_first[..., None], jnp.zeros_like(before), before)
    return jnp.concatenate([shown, seen[..., None].astype(observation.dtype), done], axis=-1)


def nothing_but_zeros(observation: Float[Array, "*S O"]) -> Bool[Array, "*S"]:
    """Return whether all readings are zero.

    A deployed policy, which has no simulator to ask, is told of the dark in this way.
    """
    return jnp.all(observation == 0.0, axis=-1)


def input_size(observation_size: int, action_size: int) -> int:
    return observation_size + 1 + action_size


def controls_before(action: Float[Array, "L N A"], before: Float[Array, "N A"]) -> Float[Array, "L N A"]:
    """Return the control before each row of a window; ``before`` is the one before the first row."""
    return jnp.concatenate([before[None], action[:-1]])


def read_window(
    network: RecurrentActor | RecurrentCritic,
    inputs: Float[Array, "L N I"],
    is_first: Bool[Array, "L N"],
    burn_in: int,
    core_state: Float[Array, "N C"] | None = None,
) -> Memory:
    """Return the memory over the rows after the burn-in.

    It starts from ``core_state``, or from nothing. The burn-in fills it or brings it up to date, and no
    gradient flows into it.
    """
    if isinstance(network.core, Memoryless):
        # Nothing to fill.
        inputs, is_first, burn_in = inputs[burn_in:], is_first[burn_in:], 0
    features = network.encoder.encode(inputs)
    if core_state is None:
        core_state = empty_core_state(network.core, inputs.shape[1]).astype(features.dtype)
    if burn_in > 0:
        warm = read_sequence(
            *jax.lax.stop_gradient((network.core, features[:burn_in], core_state)), is_first[:burn_in]
        )
        core_state = jax.lax.stop_gradient(warm.final)
    return read_sequence(network.core, features[burn_in:], core_state, is_first[burn_in:])


def starting_memories(
    memory: Float[Array, "N S"] | None, actor_size: int
) -> tuple[Float[Array, "N C"], Float[Array, "N G"]] | tuple[None, None]:
    """Split what actor and critic remembered; return None for both if nothing was stored."""
    return (None, None) if memory is None else (memory[:, :actor_size], memory[:, actor_size:])


def act_once(
    actor: RecurrentActor,
    inputs: Float[Array, "B I"],
    core_state: Float[Array, "B C"],
    is_first: Bool[Array, " B"],
) -> tuple[AbstractDistribution, Float[Array, "B C"]]:
    """Read one observation of every stream."""
    features = actor.encoder.encode(inputs)
    core_state = step_batch(actor.core, features, core_state, is_first)
    return actor.distribution(features, actor.core.expose(core_state)), core_state


def build_actor(
    config: PolicyConfig, key: Key[Array, ""], observation_size: int, action_size: int
) -> RecurrentActor:
    """Return an actor with fresh weights, initialised as in Appendix E.1."""
    key_encoder, key_core, key_readout = jax.random.split(key, 3)
    width = config.hidden_size
    return RecurrentActor(
        encoder=build_encoder(key_encoder, input_size(observation_size, action_size), width),
        core=config.core.build(key_core, width, width),
        readout=config.readout.build(key_readout, width, action_size),
        # Zero, so that exploration starts the same everywhere.
        spread=Layer(jnp.zeros((width, action_size)), jnp.zeros(action_size)),
    )


def build_critic(
    config: PolicyConfig,
    head: HeadConfig,
    head_width: int,
    key: Key[Array, ""],
    observation_size: int,
    action_size: int,
) -> RecurrentCritic:
    """Return a critic with fresh weights."""
    key_encoder, key_core, *key_heads = jax.random.split(key, 2 + head.count)
    width = config.hidden_size
    return RecurrentCritic(
        encoder=build_encoder(key_encoder, input_size(observation_size, action_size), width),
        core=config.core.build(key_core, width, width),
        heads=tuple(head.build(key_head, width + action_size, head_width) for key_head in key_heads),
    )
