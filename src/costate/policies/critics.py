"""Critics: the value of a hidden state, whose gradient is the co-state's target."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.policies.initialisation import orthogonal


class AbstractCritic(eqx.Module):
    """V(h). It predicts reward, so ∇V is −λ of the cost problem; the learned readout absorbs the sign."""

    @abc.abstractmethod
    def value(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S"]:
        """Return the value of a hidden state; of an ensemble the mean."""

    @abc.abstractmethod
    def slopes(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S H"]:
        """Return ∂V/∂h; of an ensemble ∂V_i/∂h_i of every critic by its own part of the hidden state."""


class LinearCritic(AbstractCritic):
    """V = wᵀh + b on the core's new hidden state."""

    weights: Float[Array, " H"]
    bias: Float[Array, ""]

    def value(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S"]:
        return hidden @ self.weights + self.bias

    def slopes(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S H"]:
        return jnp.broadcast_to(self.weights, hidden.shape)


class EnsembleCritic(AbstractCritic):
    """V_i = w_iᵀ h_i + b_i, each on the hidden state of its own core. The value is their mean."""

    weights: Float[Array, "M K"]
    bias: Float[Array, " M"]

    def values(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S M"]:
        """Return the value by each critic."""
        parts = hidden.reshape(*hidden.shape[:-1], *self.weights.shape)
        return (parts * jnp.broadcast_to(self.weights, parts.shape)).sum(-1) + jnp.broadcast_to(
            self.bias, parts.shape[:-1]
        )

    def value(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S"]:
        return self.values(hidden).mean(-1)

    def slopes(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S H"]:
        return jnp.broadcast_to(self.weights.reshape(-1), hidden.shape)


def linear_critic(key: Key[Array, ""], hidden_size: int) -> LinearCritic:
    """Return a critic with fresh weights of unit length and no bias."""
    return LinearCritic(orthogonal(key, hidden_size, 1)[:, 0], jnp.zeros(()))


def ensemble_critic(key: Key[Array, ""], count: int, hidden_size: int) -> EnsembleCritic:
    """Return critics with fresh weights, each drawn separately."""
    each = jax.vmap(lambda key: linear_critic(key, hidden_size))(jax.random.split(key, count))
    return EnsembleCritic(each.weights, each.bias)
