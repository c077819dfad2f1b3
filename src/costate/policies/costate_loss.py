"""The co-state loss: hidden states are pulled towards the direction of the critic's gradient.

It is the same for every learner. An ensemble has m hypotheses about the co-state, each with a target of its
own. The axis M counts them, and a policy without an ensemble has one.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Float, Int
from costate.policies.cores import AbstractCore, Memory, feature_gradients, state_gradients
from costate.policies.cores.ensemble import EnsembleCore
from costate.policies.critics import AbstractCritic

EPSILON = 1e-8


@dataclasses.dataclass(frozen=True)
class CostateConfig:
    """Settings of the co-state loss that all learners share. The settings of a learner extend them."""

    costate_coef: float = 0.05
    """Weight c₃ of the co-state loss; 0 leaves it out."""
    costate_hidden: Literal["after", "before"] = "after"
    """Hidden state in the cosine: h_t after reading y_t (the paper's text), or h_{t−1} before it (the
    authors' code)."""
    costate_warmup: float = 0.0
    """Share of training over which the weight of the co-state loss grows linearly from 0."""


def check_costate(config: Any, *further: str) -> None:
    """Raise unless the settings of the loss make sense, and have an effect.

    ``further`` names settings that a learner has beside those of :class:`CostateConfig`.
    """
    if config.costate_coef < 0.0:
        raise ConfigError(
            f"costate_coef is {config.costate_coef}, but a loss weight cannot be negative. Use 0 to leave "
            "the loss out."
        )
    if not 0.0 <= config.costate_warmup <= 1.0:
        raise ConfigError(f"costate_warmup is {config.costate_warmup}, but it is a share: between 0 and 1.")
    idle = [
        f"{name} is {getattr(config, name)}"
        for name in ("costate_warmup", *further)
        if getattr(config, name) != getattr(type(config), name)
    ]
    if config.costate_coef == 0.0 and idle:
        raise ConfigError(
            f"costate_coef is 0, but {' and '.join(idle)}, which would have no effect. Give --costate-coef "
            f"{CostateConfig.costate_coef}, or leave it out."
        )


def costate_scale(
    config: CostateConfig, iterations: int, iteration: Int[Array, ""]
) -> Float[Array, ""] | float:
    """Return the share of the weight of the co-state loss that is reached in an iteration, counted from 0."""
    if config.costate_warmup == 0.0:
        return 1.0
    return jnp.minimum(1.0, iteration / (config.costate_warmup * iterations))


def compared_hidden(config: CostateConfig, core: AbstractCore, memory: Memory) -> Float[Array, "T B H"]:
    """Return the hidden states in the cosine: after reading an observation, or before."""
    return memory.hiddens if config.costate_hidden == "after" else core.expose(memory.previous)


def costate_loss(
    config: CostateConfig,
    core: AbstractCore,
    memory: Memory,
    aims: Float[Array, "T B M F"],
    weight: Float[Array, "T B"],
    in_features: Callable[[Array], Array] = lambda hidden: hidden,
) -> Float[Array, ""]:
    """Return L_co-state = E_t[1 − cos(h_t, λ̂_t)] (Eq. 4.2), the mean over the hypotheses, for any learner.

    ``in_features`` maps hidden states to the width of their ``aims``.
    """
    hidden = by_member(core, compared_hidden(config, core, memory))
    distance = costate_distance(in_features(hidden), aims)
    return (distance.mean(-1) * weight).sum()


class Targets(eqx.Module):
    """Targets of the hidden states of all hypotheses."""

    by_feature: Float[Array, "T B M F"]
    """λ̂ = ∂V/∂ỹ_t."""
    by_memory: Float[Array, "T B M H"] | None = None
    """∂V/∂h_{t−1}; None where only the paper's target is asked for."""


def costate_targets(core: AbstractCore, critic: AbstractCritic, memory: Memory) -> Float[Array, "T B F"]:
    """Return λ̂_t = stop_gradient ∂V(ỹ_t, h_t)/∂ỹ_t through the core's step (Section 4.2).

    What the core carried before is held fixed. The critic sees the observation only through the core's
    newest state, so this is (∂h_t/∂ỹ_t)ᵀ ∇V(h_t). For an ensemble it is the mean over the hypotheses,
    because its value is.
    """
    return member_targets(core, critic, memory).mean(-2)


def member_targets(core: AbstractCore, critic: AbstractCritic, memory: Memory) -> Float[Array, "T B M F"]:
    """Return λ̂ of every hypothesis: the gradient of its own critic's value."""
    slopes = critic.slopes(memory.hiddens)
    if isinstance(core, EnsembleCore):
        frozen, memory, slopes = jax.lax.stop_gradient((core, memory, slopes))
        return frozen.member_gradients(memory, slopes)
    return targets_from_slopes(core, memory, slopes)[..., None, :]


def targets_from_slopes(
    core: AbstractCore, memory: Memory, slopes: Float[Array, "T B H"]
) -> Float[Array, "T B F"]:
    """Return λ̂_t = (∂h_t/∂ỹ_t)ᵀ ∂V/∂h_t through one step of the critic's core.

    The critic may be any whose slopes ∂V/∂h_t are known.
    """
    # Frozen: the co-state loss shapes the core, and letting it move V would make the target chase the state
    # it is compared with.
    return feature_gradients(*jax.lax.stop_gradient((core, memory, slopes)))


def hidden_targets(core: AbstractCore, critic: AbstractCritic, memory: Memory) -> Float[Array, "T B M H"]:
    """Return stop_gradient ∂V/∂h_{t−1}, the gradient by what was remembered instead of by what was read.

    It is defined for cores whose hidden state is all that they carry.
    """
    gradients = state_gradients(*jax.lax.stop_gradient((core, memory, critic.slopes(memory.hiddens))))
    return by_member(core, gradients)


def by_member(core: AbstractCore, hidden: Float[Array, "*S H"]) -> Float[Array, "*S M K"]:
    """Return the hidden state of every hypothesis."""
    count = core.count if isinstance(core, EnsembleCore) else 1
    return hidden.reshape(*hidden.shape[:-1], count, -1)


def epistemic_spread(targets: Float[Array, "*S M F"]) -> Float[Array, "*S"]:
    """Return √((1/m) Σ_i |λ̂_i − λ̄|²), the spread of the hypotheses about the co-state."""
    return jnp.sqrt(jnp.square(targets - targets.mean(-2, keepdims=True)).sum(-1).mean(-1))


def cosine(left: Float[Array, "*S H"], right: Float[Array, "*S H"]) -> Float[Array, "*S"]:
    """Return the cosine of the angle between vectors along the last axis.

    ε sits inside each root, so that the gradient is finite at h = 0, where every episode starts if h_{t−1}
    is compared.
    """
    length = jnp.sqrt(jnp.square(left).sum(-1) + EPSILON) * jnp.sqrt(jnp.square(right).sum(-1) + EPSILON)
    # A product with ones: XLA's CPU backend takes ten times as long to reduce a product of two arrays as to
    # reduce one.
    return jnp.matmul(left * right, jnp.ones(left.shape[-1], left.dtype), precision="highest") / length


def costate_distance(hidden: Float[Array, "*S H"], target: Float[Array, "*S H"]) -> Float[Array, "*S"]:
    """Return 1 − cos(h_t, λ̂_t) for every step (Eq. 4.2 before the mean)."""
    return 1.0 - cosine(hidden, target)


def terminal_distance(hidden: Float[Array, "T B H"], gradient: Float[Array, "T B H"]) -> Float[Array, "T B"]:
    """Return |h − ∇Φ|² / H for every step; the caller selects those where h(t_f) = ∇Φ (Definition 3.2).

    A distance and not an angle: ∇Φ = 0, where there is no terminal cost, has no direction.
    """
    return jnp.square(hidden - gradient).mean(-1)
