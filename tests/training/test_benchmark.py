"""The benchmark counts what it claims to count."""

import dataclasses
import json

import pytest

from costate.cli import main
from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.learners.ppo.config import PPOConfig
from costate.policies.policy import PolicyConfig
from costate.training.benchmark import Benchmark, measure_starts, table


def of_a_step(config: RunConfig) -> float:
    return config.learner.flops_per_env_step(config)


def test_flops_are_those_of_a_hand_count():
    """CartpoleSwingup has 5 observations and 1 action; hidden is 128; a product of m×k by k×n takes 2mkn."""
    square = 2 * 128 * 128
    forward = 2 * 5 * 128 + 6 * square + 2 * 128 * 2
    backward = 2 * 5 * 128 + 12 * square + 2 * 2 * 128 * 2
    assert of_a_step(preset("nc-gru", "CartpoleSwingup")) == forward + 4 * (forward + backward + 4 * square)
    ctrnn_forward = 2 * 5 * 128 + 2 * square + 2 * 128 * 2
    ctrnn_backward = 2 * 5 * 128 + 4 * square + 2 * 2 * 128 * 2
    assert of_a_step(preset("nc-ctrnn", "CartpoleSwingup")) == ctrnn_forward + 4 * (
        ctrnn_forward + ctrnn_backward + square
    )


def test_flops_grow_with_the_square_of_the_width_and_with_epochs():
    config = preset("nc-gru", "CartpoleSwingup")
    wide = dataclasses.replace(config, policy=PolicyConfig(hidden_size=1280))
    assert of_a_step(wide) / of_a_step(config) == pytest.approx(100.0, rel=0.01)
    one, two, four = (
        of_a_step(dataclasses.replace(config, learner=PPOConfig(epochs=epochs))) for epochs in (1, 2, 4)
    )
    assert four - two == pytest.approx(2 * (two - one))
    # The baseline needs no co-state target: four products less of 128 × 128 in each epoch.
    assert of_a_step(config) - of_a_step(preset("gru", "CartpoleSwingup")) == 4 * 4 * 2 * 128 * 128


RESULT = Benchmark(
    "WalkerStand",
    "nc-gru",
    1,
    2,
    7,
    10_000.0,
    100.0,
    1e6,
    9_000.0,
    30_000.0,
    16.0,
    8_000.0,
    9_090.9,
    5.0,
    1.4,
    14.0,
    6.0,
    "in C (made)",
)


def test_the_table_shows_the_fraction_of_the_limit():
    assert RESULT.fraction == pytest.approx(0.88, abs=1e-4)
    text = table(RESULT)
    assert "0.88 of the limit" in text
    assert "14.0 s" in text
    assert "first iteration" not in table(dataclasses.replace(RESULT, cold_start_seconds=None))


@pytest.mark.thorough
def test_the_command_measures_and_its_limit_is_the_formula(capsys):
    assert main(["bench", "CartpoleSwingup", "--repeats", "1", "--no-starts", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    limit = 1.0 / (1.0 / result["raw_engine"] + result["flops_per_step"] / (result["peak_gflops"] * 1e9))
    assert result["limit"] == pytest.approx(limit, rel=1e-6)
    assert result["end_to_end"] == pytest.approx(
        1.0 / (1.0 / result["collect"] + 1.0 / result["learner_only"]), rel=1e-6
    )
    assert 0.0 < result["fraction_of_limit"] < 1.0
    assert 0.1 < result["peak_memory_gb"] < 8.0


@pytest.mark.thorough
def test_the_command_measures_soft_actor_critic(capsys):
    assert (
        main(["bench", "CartpoleSwingup", "--algorithm", "sac", "--repeats", "1", "--no-starts", "--json"])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["preset"] == "nc-sac-gru"
    # One update for every 16 steps.
    assert result["updates"] == pytest.approx(result["learner_only"] / 16, rel=1e-6)
    assert result["flops_per_step"] == of_a_step(preset("nc-sac-gru", "CartpoleSwingup"))
    assert 0.0 < result["fraction_of_limit"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "Walker"], "Unknown task"),
        (["bench", "--seeds", "0"], "seeds is 0"),
        (["bench", "--repeats", "0"], "repeats is 0"),
        (["bench", "--algorithm", "sac", "--preset", "gru"], "The preset gru is one of ppo"),
    ],
)
def test_bad_input_is_refused_at_once(arguments, message, capsys):
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.thorough
def test_starts_are_timed_until_the_first_iteration(tmp_path):
    cold, warm = measure_starts("LQR", "nc-gru")
    # Both import JAX and compile; the second finds its programs compiled.
    assert 1.0 < warm < cold < 300.0


def test_a_process_that_ends_before_its_first_iteration_is_told_with_its_error(tmp_path):
    with pytest.raises(
        RuntimeError, match=r"(?s)NoSuchTask ended before its first iteration: .*Unknown task"
    ):
        measure_starts("NoSuchTask", "nc-gru")
