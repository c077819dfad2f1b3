"""Runs that are made longer or shorter, and their recorded history."""

import dataclasses
import hashlib
import json
import pathlib
import shutil

import numpy as np
import pytest
from cut_off import Breaker
from repeating import result_of

from costate import cli
from costate._base.errors import ConfigError, RunDirectoryError, StorageError
from costate.config.run_config import RunConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders, steps_of
from costate.runs.history import Stretch, from_plain, to_plain, went_on
from costate.runs.run_directory import Run, open_run
from costate.training import continuation
from costate.training.continuation import length_change, refusals, schedules
from costate.training.loop import resume, resume_together, train, train_together

ITERATION = 2 * 200


def tiny(iterations: int, learning_rate_decay: str = "none", fault_warmup: float = 0.0) -> RunConfig:
    """PPO on LQR, whose episodes of 200 steps are one iteration."""
    return RunConfig(
        "LQR",
        seed=3,
        steps=iterations * ITERATION,
        checkpoint_every=1,
        policy=PolicyConfig(hidden_size=4),
        rollout=RolloutConfig(environments=2, rollout_length=200, fault_warmup=fault_warmup),
        learner=PPOConfig(epochs=1, minibatches=1, learning_rate_decay=learning_rate_decay),
    )


def off_policy(iterations: int) -> RunConfig:
    """Soft actor-critic with iterations of half an episode, so that a run can end in the middle of one."""
    sac = SACConfig(
        steps_per_update=50,
        warmup_steps=200,
        head_width=8,
        replay=ReplayConfig(capacity=1000, window=8, burn_in=4, batch=4),
    )
    rollout = RolloutConfig(environments=2, rollout_length=100)
    return RunConfig(
        "LQR",
        seed=3,
        steps=iterations * 200,
        checkpoint_every=20,
        policy=PolicyConfig(hidden_size=4),
        rollout=rollout,
        learner=sac,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two iterations with the paper's linear decay. Tests that change it change a copy."""
    return train(tiny(2, "linear"), tmp_path_factory.mktemp("finished") / "run").run


@pytest.fixture
def copy(finished: Run, tmp_path: pathlib.Path) -> Run:
    return open_run(shutil.copytree(finished.path, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("config", "short", "long"),
    [(tiny, 2, 4), (off_policy, 5, 8)],
    ids=["ppo", "sac-in-the-middle-of-an-episode"],
)
def test_a_run_that_was_made_longer_equals_one_that_was_as_long_from_the_start(config, short, long, tmp_path):
    """Without schedules, every number of the log and of the last checkpoint is the same."""
    run = train(config(short), tmp_path / "grown").run
    reporter = Breaker()
    outcome = resume(run.path, steps=config(long).steps, reporter=reporter)
    assert outcome.finished
    whole = train(config(long), tmp_path / "whole").run
    assert len(whole.read_metrics()) == long
    assert result_of(outcome.run) == result_of(whole)
    assert f"made longer: from {config(short).steps:,} to {config(long).steps:,} steps" in reporter.said
    assert open_run(run.path).config == whole.config
    # Of the time before the change, nothing but the length is another.
    assert [stretch.steps for stretch in open_run(run.path).history] == [
        config(short).steps,
        config(long).steps,
    ]


def test_the_learning_rate_goes_on_as_in_a_run_of_the_new_length(copy):
    """2.5e-4 falls linearly to zero: 1, 1/2 of it over two iterations; 1/2, 1/4 from the third of four on."""
    reporter = Breaker()
    run = resume(copy.path, steps=4 * ITERATION, reporter=reporter).run
    rates = [row["training/learning_rate"] for row in run.read_metrics()]
    np.testing.assert_allclose(rates, 2.5e-4 * np.array([1.0, 0.5, 0.5, 0.25]), rtol=1e-5)
    assert (
        "made longer: from 800 to 1,600 steps; from here on as in a run of that length: learning rate "
        "0.000125 instead of 0" in reporter.said
    )
    assert open_run(copy.path).history == (Stretch(0, 800), Stretch(2, 1600))


def test_all_that_depends_on_the_length_is_told():
    """Faults that set in over the first half: half after a quarter, and a quarter in a run twice as long."""
    before = tiny(8, fault_warmup=0.5)
    assert schedules(before, 2) == {"share of the sensor faults": 0.5}
    assert length_change(before, tiny(16, fault_warmup=0.5), 2).endswith(
        "to 6,400 steps; from here on as in a run of that length: share of the sensor faults 0.25 instead "
        "of 0.5"
    )
    assert schedules(tiny(8), 2) == {}
    warm = dataclasses.replace(tiny(8), learner=PPOConfig(epochs=1, minibatches=1, costate_warmup=1.0))
    assert schedules(warm, 4) == {"learning rate": pytest.approx(1.25e-4), "share of the co-state loss": 0.5}
    # Nothing changes for what is never done.
    assert length_change(tiny(8, "linear"), tiny(2, "linear"), 2) == "made shorter: from 3,200 to 800 steps"


def test_a_run_can_be_made_shorter_but_not_than_it_was_trained(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tiny(6), tmp_path / "run", reporter=Breaker(after=3))
    run = open_run(tmp_path / "run")
    # The third iteration was not saved yet.
    assert [steps_of(folder) for folder in folders(run.checkpoints)] == [0, 400, 800]
    with pytest.raises(
        ConfigError,
        match=r"it stands at 800 steps, and 400 were asked for. Use at least 800.*"
        r"steps 0, 400, 800: .*--step 0",
    ):
        resume(run.path, steps=400)
    assert open_run(run.path) == run
    reporter = Breaker()
    outcome = resume(run.path, steps=4 * ITERATION, reporter=reporter)
    assert outcome.finished
    assert "made shorter: from 2,400 to 1,600 steps" in reporter.said
    assert len(outcome.run.read_metrics()) == 4
    assert result_of(outcome.run) == result_of(train(tiny(4), tmp_path / "whole").run)


def test_a_run_that_is_cut_to_where_it_stands_is_finished(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tiny(6), tmp_path / "run", reporter=Breaker(after=3))
    outcome = resume(tmp_path / "run", steps=2 * ITERATION)
    assert outcome.finished
    assert len(outcome.run.read_metrics()) == 2
    assert open_run(tmp_path / "run").config.final_steps == 800


def test_as_many_iterations_as_before_are_no_change(copy):
    """Ask for a budget that no further whole iteration fits into."""
    reporter = Breaker()
    assert resume(copy.path, steps=2 * ITERATION + 399, reporter=reporter).finished
    assert open_run(copy.path) == copy
    assert not [text for text in reporter.said if text.startswith("made")]


def test_other_things_that_may_change(copy):
    resume(copy.path, steps=3 * ITERATION, checkpoint_every=7, evaluate_every=400, diverged="slow-down")
    run = open_run(copy.path)
    assert (run.config.checkpoint_every, run.config.evaluate_every, run.config.diverged) == (
        7,
        400,
        "slow-down",
    )
    assert ["eval/episode_reward" in row for row in run.read_metrics()] == [False, False, True]
    # Weights & Biases knows a run by what it began with.
    assert run.started_as == copy.started_as
    with pytest.raises(ConfigError, match=r"checkpoint_every is 0"):
        resume(copy.path, checkpoint_every=0)
    with pytest.raises(ConfigError, match=r"diverged is 'sometimes'"):
        resume(copy.path, diverged="sometimes")


def test_seeds_are_made_longer_together_also_if_that_was_cut_off(tmp_path, monkeypatch):
    configs = [dataclasses.replace(tiny(1), seed=seed) for seed in (3, 4)]
    paths = [tmp_path / "both" / f"seed-{config.seed}" for config in configs]
    train_together(configs, paths)
    write = continuation.write_config

    def cut_off(run: Run) -> None:
        if run.path == paths[1]:
            raise StorageError("The disk is full.")
        write(run)

    monkeypatch.setattr(continuation, "write_config", cut_off)
    with pytest.raises(StorageError):
        resume_together(paths, steps=2 * ITERATION)
    monkeypatch.undo()
    assert [open_run(path).config.steps for path in paths] == [800, 400]
    with pytest.raises(ConfigError, match=r"different steps \(seed-3: 800, seed-4: 400\).*--steps"):
        resume_together(paths)
    assert cli.main(["train", "--resume", str(tmp_path / "both"), "--steps", "800"]) == 0
    whole = train_together(
        [dataclasses.replace(config, steps=800) for config in configs], [tmp_path / "3", tmp_path / "4"]
    )
    for path, outcome in zip(paths, whole, strict=True):
        assert result_of(open_run(path)) == result_of(outcome.run)


def test_a_config_that_was_written_before_training_went_on_is_that_of_a_valid_run(
    copy, tmp_path, monkeypatch
):
    """After a power failure right then, the run goes on without being asked for its length again."""
    undisturbed = shutil.copytree(copy.path, tmp_path / "undisturbed")
    write = continuation.write_config

    def power_failure(run: Run) -> None:
        write(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(continuation, "write_config", power_failure)
    with pytest.raises(KeyboardInterrupt):
        resume(copy.path, steps=3 * ITERATION)
    monkeypatch.undo()
    document = json.loads((copy.path / "config.json").read_text())
    assert document["history"] == [{"from_iteration": 0, "steps": 800}, {"from_iteration": 2, "steps": 1200}]
    assert resume(copy.path).finished
    assert result_of(open_run(copy.path)) == result_of(resume(undisturbed, steps=3 * ITERATION).run)


def test_steps_that_were_edited_by_hand_are_noticed(copy):
    file = copy.path / "config.json"
    untouched = file.read_text()
    file.write_text(untouched.replace('"steps": 800', '"steps": 8000'))
    with pytest.raises(
        ConfigError,
        match=r"steps was changed in .*config.json from 800 to 8000. Put 800 back.*--resume .* --steps 8000",
    ):
        resume(copy.path)
    file.write_text(untouched)
    resume(copy.path, steps=3 * ITERATION)
    file.write_text(
        file.read_text().replace('"steps": 1200,\n  "checkpoint', '"steps": 8000,\n  "checkpoint')
    )
    with pytest.raises(ConfigError, match=r"from 1200 to 8000"):
        resume(copy.path, steps=4 * ITERATION)


@pytest.mark.parametrize("name", [7, ["LQR"]])
def test_a_checkpoint_whose_config_cannot_be_does_not_stop_the_one_before(copy, name, capsys):
    """Its digest is right, as somebody would make it who means harm."""
    file = sorted(copy.checkpoints.glob("step_*"))[-1] / "checkpoint.json"
    record = json.loads(file.read_text())
    del record["digest"]
    record["config"]["task"] = name
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(record | {"digest": digest}))
    assert cli.main(["train", "--resume", str(copy.path)]) == 0
    said = " ".join(capsys.readouterr())
    assert f"config.task is {name!r}, but it should be str" in said
    assert "Falling back to step_" in said


def test_what_a_run_cannot_go_on_with_is_refused_with_its_reason(copy, capsys):
    refused = [
        "--seed",
        "1",
        "--hidden-size",
        "8",
        "--learning-rate",
        "1e-3",
        "--environments",
        "4",
        "--dropout",
        "0.2",
        "--costate-warmup",
        "0.1",
    ]
    assert cli.main(["train", "--resume", str(copy.path), *refused]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "seed: 3 → 1 (another seed is another run)" in error
    assert "policy.hidden_size: 4 → 8 (the weights would not fit" in error
    assert "learner.learning_rate: 0.00025 → 0.001 (the curve would mix two runs)" in error
    assert "rollout.environments: 2 → 4 (an iteration would have another number of steps" in error
    assert "sensors.dropout: 0.5 → 0.2 (the first part of the curve would be with other sensors" in error
    assert "Only --steps, --checkpoint-every, --evaluate-every and --diverged can change" in error
    assert open_run(copy.path) == copy


def test_nothing_but_what_may_change_can_be_changed():
    """Every setting of a run has a reason, or may change."""
    base = tiny(2)
    assert (
        refusals(base, dataclasses.replace(base, steps=4000, checkpoint_every=3, diverged="slow-down")) == ()
    )
    (text,) = refusals(base, dataclasses.replace(base, task="LQG"))
    assert text == "task: 'LQR' → 'LQG' (a run cannot be started on one task and resumed on another)"


def test_a_finished_run_is_made_longer_from_the_shell(copy, capsys):
    assert cli.main(["train", "--resume", str(copy.path), "--steps", "1_200", "--checkpoint-every", "3"]) == 0
    assert "made longer: from 800 to 1,200 steps; from here on" in capsys.readouterr().out
    assert len(open_run(copy.path).read_metrics()) == 3
    assert open_run(copy.path).config.checkpoint_every == 3


def test_a_history_knows_only_what_still_counts():
    start, longer, slower = Stretch(0, 100), Stretch(5, 200), Stretch(8, 200, slowdowns=1)
    assert went_on((start,), longer) == (start, longer)
    assert went_on((start, longer), slower) == (start, longer, slower)
    # Nothing changes.
    assert went_on((start, longer), Stretch(7, 200)) == (start, longer)
    # Back to before it was made longer, because the checkpoints after that were lost: from there on it has
    # its new length.
    assert went_on((start, longer, slower), Stretch(3, 200)) == (start, Stretch(3, 200))
    assert went_on((start, longer), Stretch(0, 200)) == (Stretch(0, 200),)
    history = (start, dataclasses.replace(slower, elsewhere=("jax was 1 and is 2",)))
    assert from_plain(json.loads(json.dumps(to_plain(history))), "config.json") == history


@pytest.mark.parametrize(
    "altered",
    [
        [],
        {},
        "x",
        [3],
        [{"from_iteration": 1, "steps": 3}],
        [{"from_iteration": 0, "steps": "3"}],
        [{"from_iteration": 0, "steps": True}],
        [{"from_iteration": 0, "steps": 3, "unknown": 1}],
        [{"from_iteration": 0, "steps": 3}, {"from_iteration": 0, "steps": 4}],
        [{"from_iteration": 0, "steps": 3, "elsewhere": [1]}],
    ],
)
def test_a_history_that_was_altered_is_refused(altered):
    with pytest.raises(RunDirectoryError, match=r"config.json was altered: its history"):
        from_plain(altered, "config.json")
