"""Generalised advantage estimation with a discount and a trace decay for each step."""

import jax
import jax.numpy as jnp

from costate._base.types import Array, Float


def generalised_advantages(
    reward: Float[Array, " T"],
    discount: Float[Array, " T"],
    value: Float[Array, " T+1"],
    trace_decay: Float[Array, " T"],
) -> Float[Array, " T"]:
    """Return the advantage estimates of one trajectory.

        Â_t = δ_t + γ_t κ_t Â_{t+1},    δ_t = r_t + γ_t V_{t+1} − V_t

    Termination is γ_t = 0 (no bootstrap). A time limit is κ_t = 0 with γ_t > 0: bootstrap from the value of
    the last observation, but let no credit flow across the reset.
    """
    delta = reward + discount * value[1:] - value[:-1]

    def accumulate(advantage: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = row[0] + row[1] * advantage
        return advantage, advantage

    return jax.lax.scan(accumulate, jnp.zeros_like(delta[0]), (delta, discount * trace_decay), reverse=True)[
        1
    ]
