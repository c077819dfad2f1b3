"""Sensor faults: what stands between the true observation and the one the policy reads. They live in the environment, so that training and
evaluation see the same process."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from costate._errors import ConfigError
from costate._types import Array, Float, Key
from costate.envs.base import AbstractEnv, EnvState, TimeStep


@dataclasses.dataclass(frozen=True)
class BlackoutConfig:
    """Whole observations go dark, each step independently (Section 5)."""

    dropout: float = 0.5
    """Probability that an observation is replaced by zeros."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.dropout <= 1.0:
            raise ConfigError(f"dropout is {self.dropout}, but a probability lies between 0 and 1. The paper trains with 0.5 and tests with 0.75.")


def blackout(key: Key[Array, ""], observation: Float[Array, "B O"], dropout: float) -> Float[Array, "B O"]:
    """ỹ_t = m_t y_t with one m_t ~ Bernoulli(1 − p) for each environment, so that all its sensors fail together."""
    seen = jax.random.bernoulli(key, 1.0 - dropout, observation.shape[:1])
    return jnp.where(seen[:, None], observation, jnp.zeros_like(observation))


class BlackoutEnv(AbstractEnv):
    """Another environment seen through failing sensors."""

    def __init__(self, env: AbstractEnv, config: BlackoutConfig) -> None:
        self._env = env
        self._dropout = config.dropout
        self.batch_size = env.batch_size
        self.observation_size = env.observation_size
        self.action_size = env.action_size
        self.episode_steps = env.episode_steps
        self.action_low = env.action_low
        self.action_high = env.action_high
        # Compiled whole, because resets run outside of the compiled programs, where each operation would be compiled by itself.
        self._masked_seeds = jax.jit(jax.vmap(self._masked))

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, TimeStep]:
        key_env, key_dropout = jax.random.split(key)
        state, timestep = self._env.reset(key_env)
        return state, self._masked(timestep, key_dropout)

    @property
    def seed_axis(self) -> int | None:
        return self._env.seed_axis

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[EnvState, TimeStep]:
        env_keys, dropout_keys = _split_each(keys)
        state, timestep = self._env.reset_seeds(env_keys)
        return state, self._masked_seeds(timestep, dropout_keys)

    def step(self, state: EnvState, action: Float[Array, "B A"], key: Key[Array, ""]) -> tuple[EnvState, TimeStep]:
        key_env, key_dropout = jax.random.split(key)
        state, timestep = self._env.step(state, action, key_env)
        return state, self._masked(timestep, key_dropout)

    def skip_resets(self, counts: np.ndarray) -> None:
        self._env.skip_resets(counts)

    def close(self) -> None:
        self._env.close()

    def _masked(self, timestep: TimeStep, key: Key[Array, ""]) -> TimeStep:
        return dataclasses.replace(timestep, observation=blackout(key, timestep.observation, self._dropout), complete=timestep.observation)


@jax.jit
def _split_each(keys: Key[Array, " N"]) -> tuple[Key[Array, " N"], Key[Array, " N"]]:
    """Two keys from each."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]
