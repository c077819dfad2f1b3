"""Control-affine systems ẋ = f(x) + g(x)u with few parameters, as sources of reference solutions."""

import abc

import equinox as eqx
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Float

GRAVITY = 9.81


class AbstractSystem(eqx.Module):
    """The dynamics of a system, without costs."""

    @abc.abstractmethod
    def drift(self, state: Float[Array, " X"]) -> Float[Array, " X"]:
        """Return f(x)."""

    @abc.abstractmethod
    def influence(self, state: Float[Array, " X"]) -> Float[Array, "X U"]:
        """Return g(x)."""


class LinearSystem(AbstractSystem):
    """ẋ = Ax + Bu."""

    a: Float[Array, "X X"]
    b: Float[Array, "X U"]

    def __check_init__(self) -> None:
        if self.a.ndim != 2 or self.a.shape[0] != self.a.shape[1]:
            raise ConfigError(f"A has shape {self.a.shape}, but it must be a square matrix.")
        if self.b.ndim != 2 or self.b.shape[0] != self.a.shape[0]:
            raise ConfigError(
                f"B has shape {self.b.shape}, but with A of shape {self.a.shape} it must have "
                f"{self.a.shape[0]} rows."
            )

    def drift(self, state: Float[Array, " X"]) -> Float[Array, " X"]:
        return self.a.astype(state.dtype) @ state

    def influence(self, state: Float[Array, " X"]) -> Float[Array, "X U"]:
        return self.b.astype(state.dtype)


def double_integrator() -> LinearSystem:
    """Return a unit mass on a line, driven by a force: x = (position, velocity)."""
    return LinearSystem(jnp.asarray([[0.0, 1.0], [0.0, 0.0]]), jnp.asarray([[0.0], [1.0]]))


class Pendulum(AbstractSystem):
    """A point mass on a rod with a torque at the pivot: x = (angle from upright, angular velocity)."""

    mass: float = 1.0
    length: float = 1.0
    damping: float = 0.1

    def drift(self, state: Float[Array, " X"]) -> Float[Array, " X"]:
        angle, speed = state
        inertia = self.mass * self.length**2
        return jnp.stack([speed, GRAVITY / self.length * jnp.sin(angle) - self.damping / inertia * speed])

    def influence(self, state: Float[Array, " X"]) -> Float[Array, "X U"]:
        return jnp.asarray([[0.0], [1.0 / (self.mass * self.length**2)]], state.dtype)


class CartPole(AbstractSystem):
    """A cart on a rail, driven by a force, with a point mass on a massless pole.

    The state is x = (position, angle from upright, and their velocities).
    """

    cart_mass: float = 1.0
    pole_mass: float = 0.1
    length: float = 0.5

    def drift(self, state: Float[Array, " X"]) -> Float[Array, " X"]:
        _, angle, speed, spin = state
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        inertia = self.cart_mass + self.pole_mass * sine**2
        # The two coupled equations of motion, solved for the accelerations.
        acceleration = self.pole_mass * sine * (self.length * spin**2 - GRAVITY * cosine) / inertia
        turning = (GRAVITY * sine - acceleration * cosine) / self.length
        return jnp.stack([speed, spin, acceleration, turning])

    def influence(self, state: Float[Array, " X"]) -> Float[Array, "X U"]:
        _, angle, _, _ = state
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = 1.0 / (self.cart_mass + self.pole_mass * sine**2)
        return jnp.stack([jnp.zeros_like(push), jnp.zeros_like(push), push, -push * cosine / self.length])[
            :, None
        ]
