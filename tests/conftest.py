"""Settings shared by all tests."""

import os

# Two workers share two cores: pools that pin their threads would sit on each other.
os.environ.setdefault("MUJOCO_GL", "disable")

import jax
import pytest

from costate.config import RunConfig
from costate.policy import PolicyConfig
from costate.ppo import PPOConfig
from costate.rollout import RolloutConfig

# Silent broadcasting of arrays of different rank hides shape errors.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def small_config() -> RunConfig:
    """A run of three iterations that takes seconds."""
    return RunConfig(
        task="CartpoleSwingup",
        steps=3 * 4 * 1000,
        checkpoint_every=1,
        policy=PolicyConfig(hidden_size=16),
        rollout=RolloutConfig(environments=4),
        ppo=PPOConfig(epochs=2, minibatches=2),
    )
