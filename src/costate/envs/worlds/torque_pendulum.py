"""A pendulum whose motor is too weak to lift it directly: swing up and balance at a quadratic torque cost."""

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key
from costate.control.costs import QuadraticCost
from costate.control.systems import Pendulum
from costate.envs.worlds.analytic import AbstractWorld

TIMESTEP = 0.05
# Integrator steps per control step.
SUBSTEPS = 4
TORQUE_WEIGHT = 0.01
SPEED_WEIGHT = 0.1
# Standard deviations of the initial angle from hanging, and of the initial angular velocity.
START_DEVIATION = 0.1


class TorquePendulumWorld(AbstractWorld):
    """The reward is −(2(1 − cos θ) + 0.1 θ̇² + 0.01 u²), where θ is the angle from upright and begins near π.

    Near upright 2(1 − cos θ) ≈ θ². The observation is cos θ, sin θ and θ̇. The first two are never both zero,
    so a policy can recognise a blackout.
    """

    observation_size = 3
    action_size = 1
    episode_steps = 200
    state_names = ("angle", "velocity")
    # Half of the torque that holds the pendulum horizontally.
    action_limit = 5.0

    def __init__(self) -> None:
        self._system = Pendulum()
        self._control_cost = QuadraticCost(jnp.asarray([[TORQUE_WEIGHT]]))

    def initial(self, key: Key[Array, ""]) -> Float[Array, " X"]:
        return jnp.asarray([jnp.pi, 0.0]) + START_DEVIATION * jax.random.normal(key, (2,))

    def observe(self, state: Float[Array, " X"], key: Key[Array, ""]) -> Float[Array, " O"]:
        angle, speed = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])

    def advance(
        self, state: Float[Array, " X"], action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " X"], Float[Array, ""], Bool[Array, ""]]:
        angle, speed = state
        cost = 2.0 * (1.0 - jnp.cos(angle)) + SPEED_WEIGHT * speed**2 + self._control_cost.value(action)
        after = jax.lax.fori_loop(0, SUBSTEPS, lambda _, now: self._integrate(now, action), state)
        return after, -cost, jnp.zeros((), bool)

    def _integrate(self, state: Float[Array, " X"], action: Float[Array, " A"]) -> Float[Array, " X"]:
        """Take one step of the classical Runge-Kutta method."""

        def velocity(state: Float[Array, " X"]) -> Float[Array, " X"]:
            return self._system.drift(state) + self._system.influence(state) @ action

        step = TIMESTEP / SUBSTEPS
        k1 = velocity(state)
        k2 = velocity(state + 0.5 * step * k1)
        k3 = velocity(state + 0.5 * step * k2)
        k4 = velocity(state + step * k3)
        return state + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
