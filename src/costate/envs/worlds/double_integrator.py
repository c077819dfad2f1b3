"""A unit mass on a line that must come to rest at the origin, at a cost of time and fuel (Appendix C)."""

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool, Float, Key
from costate.control.costs import AbstractControlCost
from costate.envs.worlds.analytic import AbstractWorld

TIMESTEP = 0.05
# Position and velocity below which the mass counts as at rest at the origin. One step of control changes the
# velocity by at most half of it.
TOLERANCE = 0.1
START = 1.0
"""Bound on the absolute initial positions and velocities."""


class ReachRestWorld(AbstractWorld):
    """ẍ = u with |u| ≤ 1, held for a step, until the mass rests, which ends the episode.

    The reward is −(1 + c(u)).

    The observation is position, velocity, and a signal that is 1 unless the observation is blacked out.
    """

    observation_size = 3
    action_size = 1
    episode_steps = 200
    state_names = ("position", "velocity")

    def __init__(self, control_cost: AbstractControlCost) -> None:
        self._control_cost = control_cost

    def initial(self, key: Key[Array, ""]) -> Float[Array, " X"]:
        return jax.random.uniform(key, (2,), minval=-START, maxval=START)

    def observe(self, state: Float[Array, " X"], key: Key[Array, ""]) -> Float[Array, " O"]:
        return jnp.append(state, 1.0)

    def advance(
        self, state: Float[Array, " X"], action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " X"], Float[Array, ""], Bool[Array, ""]]:
        position, velocity = state
        push = action[0] * TIMESTEP
        after = jnp.stack([position + (velocity + 0.5 * push) * TIMESTEP, velocity + push])
        return after, -(1.0 + self._control_cost.value(action)), jnp.abs(after).max() <= TOLERANCE


def least_time(
    position: Float[np.ndarray, "*S"], velocity: Float[np.ndarray, "*S"]
) -> Float[np.ndarray, "*S"]:
    """Return the least time to rest exactly at the origin if the control may switch between ±1 at any time.

    T = σv + 2 √(σx + ½v²) with the side σ = sign(x + ½v|v|).
    """
    side = np.where(position + 0.5 * velocity * np.abs(velocity) >= 0.0, 1.0, -1.0)
    seconds: np.ndarray = side * velocity + 2.0 * np.sqrt(side * position + 0.5 * velocity**2)
    return seconds
