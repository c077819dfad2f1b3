"""Train on a world of your own, written in JAX: a point on a line whose position sensor often drops out."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float, Key
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AbstractWorld, AnalyticEnv
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.update import initial_state, update
from costate.learners.rollout import RolloutConfig, begin, collect, iteration_keys
from costate.policies.policy import PolicyConfig, build_policy


class Point(eqx.Module):
    position: Float[Array, ""]
    velocity: Float[Array, ""]


class DoubleIntegrator(AbstractWorld):
    """x'' = u, with the largest reward at rest at the origin."""

    observation_size = 1
    action_size = 1
    episode_steps = 100

    def initial(self, key: Key[Array, ""]) -> Point:
        return Point(jax.random.uniform(key, (), minval=-1.0, maxval=1.0), jnp.zeros(()))

    def observe(self, state: Point, key: Key[Array, ""]) -> Float[Array, " O"]:
        return state.position[None]

    def advance(
        self, state: Point, action: Float[Array, " A"], key: Key[Array, ""]
    ) -> tuple[Point, Float[Array, ""], Bool[Array, ""]]:
        velocity = state.velocity + 0.1 * action[0]
        position = state.position + 0.1 * velocity
        return (
            Point(position, velocity),
            jnp.exp(-jnp.square(position) - 0.1 * jnp.square(velocity)),
            jnp.zeros((), bool),
        )


def main(iterations: int = 150) -> list[float]:
    """Train, and return the mean episode return of each iteration."""
    rollout = RolloutConfig(environments=16, rollout_length=100)
    ppo = PPOConfig(learning_rate=3e-3)
    env = SensorEnv(AnalyticEnv(DoubleIntegrator(), rollout.environments), SensorConfig(0.5))
    policy = build_policy(
        PolicyConfig(hidden_size=32), jax.random.key(0), env.observation_size, env.action_size
    )
    state = initial_state(ppo, policy, jax.random.key(1), env.observation_size)
    collect_program = jax.jit(functools.partial(collect, env, rollout, ppo.discount))
    update_program = jax.jit(functools.partial(update, ppo, rollout, iterations))
    returns = []
    for iteration in range(iterations):
        keys = iteration_keys(state.key)
        start = begin(env, state.policy, keys.reset)
        _, trajectory, final_value = collect_program(
            state.policy, state.observation_stats, start, keys.rollout
        )
        state, metrics = update_program(state, trajectory, final_value)
        returns.append(float(metrics["training/episode_reward"]))
        if iteration % 25 == 0 or iteration == iterations - 1:
            print(
                f"iteration {iteration:4d}  return {returns[-1]:6.1f}  co-state loss "
                f"{float(metrics['losses/costate']):.3f}"
            )
    return returns


if __name__ == "__main__":
    main()
