"""Learning on the real simulator and on tasks with a known optimum. Minutes each, so not in `make test`."""

import pytest

from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.trained.evaluation import evaluate, regret
from costate.training.loop import train

pytestmark = pytest.mark.slow


def test_nc_gru_swings_the_half_blind_cart_pole_up(tmp_path):
    """Reach the paper's return within 3.2 M steps. A policy that does nothing stands near 30."""
    import dataclasses

    config = dataclasses.replace(preset("nc-gru", "CartpoleSwingup"), steps=3_200_000)
    rows = train(config, tmp_path / "run").run.read_metrics()
    best = max(row["training/episode_reward"] for row in rows)
    assert best >= 400.0
    # The alignment is learnt too; without the loss it stays near 1.
    assert rows[-1]["losses/costate"] < 0.6


def test_nc_gru_comes_within_five_percent_of_the_optimum_of_the_half_blind_regulator(tmp_path):
    """The Kalman filter with Riccati gains earns −14.1, the best memoryless linear feedback a third less."""
    config = RunConfig(
        "LQR",
        steps=5_120_000,
        policy=PolicyConfig(hidden_size=32),
        rollout=RolloutConfig(environments=64, rollout_length=200),
        learner=PPOConfig(learning_rate=1e-3, discount=0.98),
    )
    result, _ = evaluate(train(config, tmp_path / "run").run, episodes=3200)
    found = regret(result)
    # Enough episodes for an error of the mean of about 0.6 %, well below the bounds.
    assert found.standard_error < 0.01
    # A negative regret would mean that the optimum is wrong.
    assert -4.0 * found.standard_error < found.share < 0.05
