"""A world in JAX as an episode with exact states, differentiated by JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from costate._base.types import Array, Float, Key
from costate.control.linearisation import Linearisation, Linearised
from costate.envs.stage import AbstractStage, Outcome
from costate.envs.worlds.analytic import AbstractWorld, AnalyticEnv


class WorldStage(AbstractStage):
    """One stream of a world.

    The seed fixes its random numbers, so disturbances and noise are held constant in all derivatives.
    """

    def __init__(self, world: AbstractWorld, seed: int) -> None:
        self._world = world
        self.robot = AnalyticEnv(world, batch_size=1)
        self._key = jax.random.key(seed)
        with jax.enable_x64(True):
            start, self._unravel = ravel_pytree(
                jax.tree.map(_double, world.initial(jax.random.fold_in(self._key, 0)))
            )
            self._advance, self._show = jax.jit(self._next), jax.jit(self._observed)
            self._states, self._observation = [start], self._show(start, 0)
        self.state_names = world.state_names or tuple(f"x{i}" for i in range(len(start)))

    def observe(self) -> Float[np.ndarray, " O"]:
        return np.asarray(self._observation)

    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        with jax.enable_x64(True):
            state, reward, terminated = self._advance(
                self._states[-1], jnp.asarray(control), len(self._states)
            )
            self._observation = self._show(state, len(self._states))
            self._states.append(state)
        return Outcome(float(reward), bool(terminated))

    def states(self) -> Float[np.ndarray, "S N"]:
        return np.stack(self._states)

    def linearise(self, controls: Float[np.ndarray, "T U"], threads: int | None = None) -> Linearised:
        """Linearise with JAX, exactly on the smooth piece that a state is on. ``threads`` is ignored."""
        with jax.enable_x64(True):
            rows = (jnp.stack(self._states[:-1]), jnp.asarray(controls), jnp.arange(len(controls)))
            steps = Linearisation(*map(np.asarray, jax.jit(jax.vmap(self._linearise_one))(*rows)))
            return Linearised(steps, steps)

    def _linearise_one(self, state: Array, control: Array, time: Array) -> tuple[Array, ...]:
        def outcome(state: Array, control: Array) -> tuple[Array, Array, Array]:
            after, reward, _ = self._next(state, control, time + 1)
            return after, -reward, self._observed(after, time + 1)

        (a, b), (cost_x, cost_u), (next_x, next_u) = jax.jacfwd(outcome, argnums=(0, 1))(state, control)
        return a, b, cost_x, cost_u, jax.jacfwd(self._observed)(state, time), next_x, next_u

    def _next(
        self, state: Float[Array, " N"], control: Float[Array, " U"], time: Array
    ) -> tuple[Array, Array, Array]:
        after, reward, terminated = self._world.advance(self._unravel(state), control, self._draws(time, 0))
        return ravel_pytree(after)[0], reward, terminated

    def _observed(self, state: Float[Array, " N"], time: Array) -> Float[Array, " O"]:
        return self._world.observe(self._unravel(state), self._draws(time, 1))

    def _draws(self, time: Array, which: int) -> Key[Array, ""]:
        # Draw 0 is that of the initial state.
        return jax.random.fold_in(jax.random.fold_in(self._key, 1 + which), time)


def _double(leaf: Array) -> Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
