"""Evaluation while a run trains: when, on which episodes, and which policy is kept as the best."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from cut_off import Breaker, numbers

import costate
from costate._base.errors import CheckpointError, ConfigError
from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.envs.factory import make_env
from costate.runs.checkpoint import folders, steps_of
from costate.runs.closing_words import closing_words
from costate.runs.evaluation_log import TrainingEvaluation, best_of, best_step, log_file, read_log, write_log
from costate.runs.run_directory import open_run
from costate.trained.evaluation import evaluate
from costate.trained.trained import load_controller
from costate.training.console import Progression, plain_header, plain_line
from costate.training.loop import resume, train, train_together
from costate.training.periodic_evaluation import EPISODES, KEY_DOMAIN, SEED_OFFSET, interval, is_due


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, quick_config):
    """A run of three iterations that is evaluated after each."""
    config = dataclasses.replace(quick_config, evaluate_every=4000)
    return train(config, tmp_path_factory.mktemp("evaluated") / "run").run


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        # Ten episodes of 1000 steps are 2 % of 500,000.
        (preset("nc-gru", "WalkerStand"), 500_000),
        # An update takes as long as 48 steps and comes every 16, so that a step costs four times as much as
        # one that is only played.
        (preset("sac-gru", "WalkerStand"), 125_000),
        # Shorter than one interval.
        (dataclasses.replace(preset("nc-gru", "WalkerStand"), steps=320_000), None),
        (dataclasses.replace(preset("nc-gru", "WalkerStand"), evaluate_every=0), None),
        (dataclasses.replace(preset("nc-gru", "WalkerStand"), evaluate_every=7), 7),
    ],
)
def test_two_percent_of_the_time_go_into_evaluation_unless_another_interval_is_given(config, steps):
    assert interval(config) == steps


def test_a_run_is_evaluated_after_the_iteration_that_passes_each_interval_and_at_its_end(quick_config):
    config = dataclasses.replace(quick_config, steps=9 * 4000, evaluate_every=10_000)
    # After 12,000, 20,000 and 32,000 steps, the first multiples of 4,000 at or beyond 10,000, 20,000 and
    # 30,000; and after 36,000, the last.
    assert [i for i in range(10) if is_due(config, i)] == [3, 5, 8, 9]


def test_a_negative_interval_is_refused():
    with pytest.raises(
        ConfigError, match="evaluate_every is -1, but it must be a number of environment steps, or 0"
    ):
        RunConfig("LQR", evaluate_every=-1)


def test_the_logged_return_is_that_of_the_policy_without_noise(evaluated):
    """The last policy, played step by step outside of any compiled loop, on the episodes that come third."""
    config, last = evaluated.config, read_log(evaluated)[-1]
    _, controller = load_controller(evaluated, None, pytest.fail)
    env = make_env(config.task, EPISODES, [config.seed + SEED_OFFSET], config.sensors)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), KEY_DOMAIN), last.iteration)
    key_reset, key_steps = jax.random.split(key)
    state, now = env.reset(key_reset)
    decide, step = jax.jit(lambda now, memory: controller.decide(env, now, memory)), jax.jit(env.step)
    memory, total = controller.empty_memory(env), np.zeros(EPISODES)
    for key_step in jax.random.split(key_steps, config.task_record.episode_steps):
        control, memory = decide(now, memory)
        state, now = step(state, control, key_step)
        total += np.asarray(now.reward)
    # The order of sums differs from that of the compiled loop.
    np.testing.assert_allclose(last.returns, total, rtol=1e-4)
    row = evaluated.read_metrics()[-1]
    assert row["eval/episode_reward"] == pytest.approx(np.mean(last.returns))
    assert row["eval/episode_reward_std"] == pytest.approx(np.std(last.returns))


def test_training_is_the_same_with_and_without_evaluation(evaluated, tmp_path):
    plain = train(dataclasses.replace(evaluated.config, evaluate_every=0), tmp_path / "run").run
    with_evaluation = [
        {name: value for name, value in row.items() if not name.startswith("eval/")}
        for row in numbers(evaluated)
    ]
    assert numbers(plain) == with_evaluation
    assert not log_file(plain).exists()


def test_every_evaluation_plays_other_episodes(evaluated):
    returns = np.array([each.returns for each in read_log(evaluated)])
    assert returns.shape == (3, EPISODES)
    assert len(np.unique(returns)) == returns.size


def test_the_policy_with_the_highest_mean_is_kept_as_the_best(evaluated):
    means = {each.env_steps: np.mean(each.returns) for each in read_log(evaluated)}
    expected = max(means, key=means.__getitem__)
    assert [steps_of(folder) for folder in folders(evaluated.best)] == [expected]
    assert best_step(evaluated) == expected
    # The last three checkpoints are still there, so the same policy can be had from one of them.
    _, best = load_controller(evaluated, "best", pytest.fail)
    _, same = load_controller(evaluated, expected, pytest.fail)
    assert jax.tree.all(jax.tree.map(np.array_equal, best, same))


@pytest.mark.parametrize("task", ["LQR", pytest.param("CartpoleSwingup", marks=pytest.mark.thorough)])
def test_a_resumed_run_is_evaluated_as_one_that_was_not_interrupted(task, quick_config, tmp_path):
    """Also in a simulator that cannot be rewound: its environments for evaluation are restored."""
    config = dataclasses.replace(
        quick_config, task=task, steps=5 * 4000, checkpoint_every=2, evaluate_every=4000
    )
    whole = train(config, tmp_path / "whole").run
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Breaker(after=3))
    cut = open_run(tmp_path / "cut")
    # One evaluation more than the checkpoint knows of, which is made again.
    assert len(read_log(cut)) > steps_of(folders(cut.checkpoints)[-1]) // 4000
    resume(cut.path)
    assert log_file(cut).read_bytes() == log_file(whole).read_bytes()
    assert numbers(cut) == numbers(whole)
    assert [folder.name for folder in folders(cut.best)] == [folder.name for folder in folders(whole.best)]
    weights = [next(run.best.glob("*/state.safetensors")).read_bytes() for run in (cut, whole)]
    assert weights[0] == weights[1]


def test_seeds_that_train_together_are_evaluated_as_each_would_be_alone(quick_config, tmp_path):
    configs = [
        dataclasses.replace(quick_config, seed=seed, steps=4000, evaluate_every=4000) for seed in (0, 1)
    ]
    together = [outcome.run for outcome in train_together(configs, [tmp_path / "a", tmp_path / "b"])]
    alone = train(configs[1], tmp_path / "alone").run
    # Up to the order of sums in training and in the products of acting.
    np.testing.assert_allclose(read_log(together[1])[0].returns, read_log(alone)[0].returns, rtol=1e-3)
    assert read_log(together[0])[0].returns != read_log(together[1])[0].returns
    weights, expected = (
        next(run.best.glob("*/state.safetensors")).stat().st_size for run in (together[1], alone)
    )
    assert weights == expected


def test_off_policy_runs_are_evaluated_too(tmp_path):
    config = costate.preset("sac-gru", "LQR")
    config = dataclasses.replace(
        config,
        steps=3200,
        evaluate_every=1600,
        policy=dataclasses.replace(config.policy, hidden_size=8),
        rollout=dataclasses.replace(config.rollout, environments=4, rollout_length=100),
        learner=dataclasses.replace(
            config.learner,
            steps_per_update=100,
            warmup_steps=400,
            replay=dataclasses.replace(config.learner.replay, capacity=4000),
        ),
    )
    run = train(config, tmp_path / "run").run
    assert [each.env_steps for each in read_log(run)] == [1600, 3200]
    result, _ = evaluate(run, step="best", episodes=2)
    assert result.env_steps == best_step(run)


def test_the_best_can_be_named_wherever_a_step_can(evaluated):
    step = best_step(evaluated)
    assert costate.load(evaluated, step="best").provenance["env_steps"] == step
    assert evaluate(evaluated, step="best", episodes=2)[0].env_steps == step


def test_a_run_that_was_never_evaluated_has_no_best(quick_config, tmp_path):
    run = train(dataclasses.replace(quick_config, steps=4000), tmp_path / "run").run
    with pytest.raises(
        CheckpointError, match="has no best policy, because it was not evaluated during training"
    ):
        load_controller(run, "best", pytest.fail)
    (line,) = closing_words(run)
    assert "with exploration noise" in line
    assert "costate evaluate" in line


def test_of_equal_evaluations_the_first_is_the_best():
    log = [
        TrainingEvaluation(i, 100 * i, returns, (1, 1))
        for i, returns in ((1, (0.0, 2.0)), (2, (3.0, 1.0)), (3, (2.0, 2.0)))
    ]
    best = best_of(log)
    assert best is not None
    assert (best.iteration, best.mean) == (2, 2.0)
    # Deviations of −1 and 1 from the mean.
    assert log[0].deviation == 1.0
    assert best_of([]) is None


def test_a_damaged_log_of_evaluations_is_named_with_its_line(evaluated, tmp_path):
    run = dataclasses.replace(evaluated, path=tmp_path)
    write_log(run, read_log(evaluated))
    lines = log_file(run).read_text().splitlines()
    for damage in (
        "{",
        "[]",
        '{"iteration": 1}',
        lines[1].replace('"iteration": 2', '"iteration": "2"'),
        lines[1].replace("[", "[NaN, ", 1),
    ):
        log_file(run).write_text("\n".join([lines[0], damage, lines[2]]))
        with pytest.raises(
            CheckpointError, match=r"in_training\.jsonl is damaged: line 2 is not an evaluation"
        ):
            read_log(run)


def test_the_end_of_training_says_what_is_trained_and_what_is_evaluated(evaluated, tmp_path):
    run = dataclasses.replace(evaluated, path=tmp_path)
    run.metrics.write_text(
        json.dumps({"iteration": 2, "env_steps": 8000, "training/episode_reward": 49.0}) + "\n"
    )
    write_log(
        run,
        [TrainingEvaluation(1, 4000, (2.5, 1.5), (1, 1)), TrainingEvaluation(2, 8000, (1.0, 1.0), (1, 1))],
    )
    first, second = closing_words(run)
    assert first == "return in training, with exploration noise: 49.0; without noise: 1.0 (2 episodes)"
    assert second == f"best without noise: 2.0 after 4,000 steps: costate evaluate {tmp_path} --step best"


def test_the_console_shows_both_returns():
    row = {
        "env_steps": 1000,
        "training/episode_reward": 49.0,
        "eval/episode_reward": 1.9,
        "training/sps": 10.0,
    }
    assert plain_header(row).split()[:3] == ["steps", "return", "evaluated"]
    assert plain_line(Progression(row, 2000, 1.0)).split()[:3] == ["1,000", "49.0", "1.9"]
