"""The influence G of controls on what the co-state measures (Definition 3.2).

Its weights are constant, or depend on the observation.
"""

from typing import Literal

import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.policies.initialisation import orthogonal

Influence = Literal["constant", "observed"]

# Small, so that the first controls are centred on zero (Appendix E.1).
ACTOR_SCALE = 0.01


def switching_function(
    weights: Float[Array, "H A"],
    bias: Float[Array, " A"],
    modulation: Float[Array, "F H"] | None,
    feature: Float[Array, " F"],
    hidden: Float[Array, " H"],
) -> Float[Array, " A"]:
    """Return σ = −G(ỹ) h up to a bias.

    G(ỹ) = −Wᵀ diag(1 + Mᵀỹ), or G = −Wᵀ without a modulation M. The sign is that of the paper's switching
    function: the learned W absorbs it. With one actuator M makes every entry of G an arbitrary affine
    function of the encoded observation. Several actuators share the modulation of each component of h.
    """
    seen = hidden if modulation is None else hidden * (1.0 + feature @ modulation)
    return seen @ weights + bias


def fresh_influence(
    key: Key[Array, ""], kind: Influence, hidden_size: int, action_size: int
) -> tuple[Float[Array, "H A"], Float[Array, " A"], Float[Array, "F H"] | None]:
    """Return output weights, bias, and a modulation that is zero at first, so that G starts constant."""
    modulation = jnp.zeros((hidden_size, hidden_size)) if kind == "observed" else None
    return orthogonal(key, hidden_size, action_size, ACTOR_SCALE), jnp.zeros(action_size), modulation
