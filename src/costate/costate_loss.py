"""The co-state loss: hidden states are pulled towards the direction of the critic's gradient. Nothing here knows about PPO."""

import jax
import jax.numpy as jnp

from costate._types import Array, Float
from costate.cores import AbstractCore, Memory, feature_gradients
from costate.critics import LinearCritic

EPSILON = 1e-8


def costate_targets(core: AbstractCore, critic: LinearCritic, memory: Memory) -> Float[Array, "T B F"]:
    """λ̂_t = stop_gradient ∂V(ỹ_t, h_t)/∂ỹ_t through the core's step, with what it carried before held fixed (Section 4.2).

    The critic sees the observation only through the core's newest state, so this is (∂h_t/∂ỹ_t)ᵀ ∇V(h_t).
    """
    slopes: Float[Array, "T B H"] = jax.vmap(jax.vmap(jax.grad(critic.value)))(memory.hiddens)
    return targets_from_slopes(core, memory, slopes)


def targets_from_slopes(core: AbstractCore, memory: Memory, slopes: Float[Array, "T B H"]) -> Float[Array, "T B F"]:
    """λ̂_t = (∂h_t/∂ỹ_t)ᵀ ∂V/∂h_t through one step of the critic's core, for any critic whose slopes ∂V/∂h_t are known."""
    # Frozen: the co-state loss shapes the core, and letting it move V would make the target chase the state it is compared with.
    return feature_gradients(*jax.lax.stop_gradient((core, memory, slopes)))


def cosine(left: Float[Array, "*S H"], right: Float[Array, "*S H"]) -> Float[Array, "*S"]:
    """Cosine of the angle between vectors along the last axis.

    ε sits inside each root, so that the gradient is finite at h = 0, where every episode starts if h_{t−1} is compared.
    """
    length = jnp.sqrt(jnp.square(left).sum(-1) + EPSILON) * jnp.sqrt(jnp.square(right).sum(-1) + EPSILON)
    return (left * right).sum(-1) / length


def costate_distance(hidden: Float[Array, "T B H"], target: Float[Array, "T B H"]) -> Float[Array, "T B"]:
    """1 − cos(h_t, λ̂_t) for every step (Eq. 4.2 before the mean)."""
    return 1.0 - cosine(hidden, target)


def terminal_distance(hidden: Float[Array, "T B H"], gradient: Float[Array, "T B H"]) -> Float[Array, "T B"]:
    """|h − ∇Φ|² / H for every step, for those at which h(t_f) = ∇Φ should hold (Definition 3.2).

    A distance and not an angle: ∇Φ = 0, where there is no terminal cost, has no direction.
    """
    return jnp.square(hidden - gradient).mean(-1)
