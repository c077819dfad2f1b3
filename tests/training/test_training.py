"""The host loop: resume is exact, stops are clean, nothing is lost when something breaks."""

import dataclasses
import json
import math
import shutil
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from cut_off import Breaker, numbers

from costate._base.errors import ConfigError, CostateError, DivergedError, RunDirectoryError, StorageError
from costate.config.presets import PRESETS, preset
from costate.config.run_config import RunConfig
from costate.learners.rollout import RolloutConfig
from costate.runs.checkpoint import folders
from costate.runs.run_directory import open_run
from costate.training import bookkeeping
from costate.training.console import Progression
from costate.training.course import restarts_within
from costate.training.loop import resume, train

ON_POLICY_PRESETS = [name for name in PRESETS if preset(name, "FingerTurnHard").learner_name == "ppo"]


def two_iterations(name: str, **learner: Any) -> RunConfig:
    """A preset that is over in seconds: two iterations of 100 steps in two environments."""
    config = preset(name, "FingerTurnHard")
    policy, rollout = (
        dataclasses.replace(config.policy, hidden_size=8),
        dataclasses.replace(config.rollout, environments=2, rollout_length=100),
    )
    return dataclasses.replace(config, steps=400, policy=policy, rollout=rollout, **learner)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, small_config):
    """An undisturbed run of three iterations, and what was said while it trained.

    Tests that change a run change a copy.
    """
    reporter = Breaker()
    outcome = train(small_config, tmp_path_factory.mktemp("training") / "whole", reporter=reporter)
    assert outcome.finished
    return outcome.run, reporter


@pytest.fixture
def copy(whole, tmp_path):
    return open_run(shutil.copytree(whole[0].path, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("length", "iterations", "cut", "adaptive"),
    [
        pytest.param(1000, 4, 3, False, marks=pytest.mark.slow),
        pytest.param(500, 6, 5, False, marks=pytest.mark.thorough),
        # With all that an iteration leaves for the next one, and that depends on how far the run has come.
        (500, 6, 5, True),
    ],
)
def test_a_run_that_was_cut_off_and_resumed_equals_one_that_was_not(
    tmp_path, small_config, length, iterations, cut, adaptive
):
    """With 500 steps an iteration, episodes span two iterations, so the cut falls into the middle of one."""
    rollout = RolloutConfig(environments=4, rollout_length=length, fault_warmup=0.8 if adaptive else 0.0)
    config = dataclasses.replace(
        small_config, steps=iterations * 4 * length, checkpoint_every=2, rollout=rollout
    )
    if adaptive:
        config = dataclasses.replace(
            config,
            learner=dataclasses.replace(
                config.learner, epochs=2, learning_rate_decay="adaptive", target_kl=1e-3
            ),
        )
    whole = train(config, tmp_path / "whole").run
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Breaker(after=cut))
    assert len(numbers(open_run(tmp_path / "cut"))) == cut
    outcome = resume(tmp_path / "cut")
    assert outcome.finished
    assert numbers(outcome.run) == numbers(whole)
    left, right = (folders(run.checkpoints)[-1] / "state.safetensors" for run in (whole, outcome.run))
    assert left.read_bytes() == right.read_bytes()


@pytest.mark.parametrize(("seconds", "pictures"), [(math.inf, [3]), (0.0, [1, 2, 3])])
def test_a_picture_is_drawn_once_a_minute_and_at_the_end(
    tmp_path, quick_config, monkeypatch, seconds, pictures
):
    """At the first checkpoint no time is known yet, and at the others it can wait."""
    drawn: list[int] = []
    monkeypatch.setattr(bookkeeping, "SECONDS_BETWEEN_PICTURES", seconds)
    monkeypatch.setattr(
        bookkeeping, "draw_learning_curve", lambda run, title: drawn.append(len(run.read_metrics()))
    )
    train(quick_config, tmp_path / "run")
    assert drawn == pictures


def test_a_run_directory_describes_itself(whole, small_config):
    trained, reporter = whole
    run = open_run(trained.path)
    assert run.config == small_config
    assert {path.name for path in run.path.iterdir() if not path.name.startswith("events")} == {
        "config.json",
        "machine.json",
        "metrics.jsonl",
        "checkpoints",
        "learning_curve.png",
        "milestones",
        "run.lock",
    }
    assert list(run.path.glob("events.out.tfevents.*"))
    assert run.learning_curve.read_bytes().startswith(b"\x89PNG")
    machine = json.loads((run.path / "machine.json").read_text())
    assert machine["versions"]["jax"]
    assert machine["cpu_features"]
    assert reporter.said[0].startswith(
        "nc-gru+environments=4+epochs=2+hidden-size=16+minibatches=2 on CartpoleSwingup: 12,000 steps (3 "
        "iterations), 50% blackout"
    )
    assert str(run.path) in reporter.said[0]
    assert reporter.said[1].startswith("compiled in ")


def test_metrics_have_the_names_people_look_for(whole):
    rows = whole[0].read_metrics()
    assert [row["env_steps"] for row in rows] == [4000, 8000, 12000]
    wanted = {
        "losses/approx_kl",
        "losses/clip_fraction",
        "losses/explained_variance",
        "losses/entropy",
        "losses/grad_norm",
        "costate/cosine",
    }
    wanted |= {
        "training/sps",
        "training/episode_reward",
        "losses/costate",
        "losses/policy",
        "losses/value",
        "training/learning_rate",
    }
    assert wanted <= rows[0].keys()
    np.testing.assert_allclose(
        [row["training/learning_rate"] for row in rows], [2.5e-4, 2.5e-4 * 2 / 3, 2.5e-4 / 3], rtol=1e-5
    )
    assert all(0.0 <= row["training/episode_reward"] <= 1000.0 for row in rows)
    # One dimension of unit deviation: ½ log 2πe.
    np.testing.assert_allclose(rows[0]["losses/entropy"], 1.4189, atol=0.02)


def test_a_run_that_diverges_stops_and_keeps_the_last_good_checkpoint(tmp_path, small_config):
    wild = dataclasses.replace(
        small_config, learner=dataclasses.replace(small_config.learner, learning_rate=1e30)
    )
    with pytest.raises(
        DivergedError,
        match=r"diverged in iteration \d.*losses/.* not finite.*step_000000000000.*--learning-rate",
    ):
        train(wild, tmp_path / "run")
    assert [folder.name for folder in folders(open_run(tmp_path / "run").checkpoints)] == [
        "step_000000000000"
    ]


@pytest.mark.thorough
def test_a_full_disk_stops_the_run_and_it_resumes_to_the_same_numbers(
    whole, tmp_path, small_config, monkeypatch
):
    class FullDisk(Breaker):
        def progress(self, progression: Progression) -> None:
            if progression.row["iteration"] == 2:

                def full(descriptor: int) -> None:
                    raise OSError(28, "No space left on device")

                monkeypatch.setattr("os.fsync", full)

    with pytest.raises(StorageError, match="No space left on device"):
        train(small_config, tmp_path / "run", reporter=FullDisk())
    monkeypatch.undo()
    run = open_run(tmp_path / "run")
    assert [folder.name for folder in folders(run.checkpoints)] == ["step_000000000000", "step_000000004000"]
    assert numbers(resume(run.path).run) == numbers(whole[0])


def test_an_existing_run_is_not_touched_unless_asked_and_another_seed_is_another_run(copy, small_config):
    before = numbers(copy)
    with pytest.raises(RunDirectoryError, match=r"already holds a run.*--resume.*--out.*--overwrite"):
        train(small_config, copy.path)
    assert numbers(copy) == before
    train(dataclasses.replace(small_config, seed=5, steps=4000), copy.path, overwrite=True)
    assert open_run(copy.path).config.seed == 5
    assert numbers(copy)[0]["training/episode_reward"] != before[0]["training/episode_reward"]


def test_a_folder_that_is_no_run_is_never_overwritten(tmp_path, small_config):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunDirectoryError, match="is not a run directory, so nothing is written there"):
        train(small_config, tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_finished_run_can_be_resumed_without_effect(copy):
    before = numbers(copy)
    assert resume(copy.path).finished
    assert numbers(copy) == before


def test_a_run_that_goes_on_elsewhere_says_what_changed(copy):
    """A finished one too: the warning comes before anything is done."""
    reporter = Breaker()
    resume(copy.path, reporter=reporter)
    assert not [text for text in reporter.said if text.startswith("warning")]
    card = json.loads((copy.path / "machine.json").read_text())
    card["arithmetic"]["loops over time"] = "gru-of-another-machine"
    (copy.path / "machine.json").write_text(json.dumps(card))
    resume(copy.path, reporter=reporter)
    (warning,) = [text for text in reporter.said if text.startswith("warning")]
    assert warning.startswith(
        "warning: since this run began, loops over time was gru-of-another-machine and is "
    )


def test_a_config_that_was_edited_is_noticed(copy):
    file = copy.path / "config.json"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ConfigError, match=r"Changed: seed: 0 → 1. Undo the change in config.json"):
        resume(copy.path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no config.json"), ("{", "truncated or was altered"), ("[]", "truncated or was altered")],
)
def test_what_is_not_a_run_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CostateError, match=message):
        resume(tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError, match="There is no run directory"):
        resume(tmp_path / "nowhere")


def test_restarts_are_counted_once():
    # Stream 0 starts by itself at row 2 and again after the rollout; row 0 was counted when the rollout
    # began. Stream 1 never does.
    is_first = jnp.array([[True, True], [False, False], [True, False]])
    np.testing.assert_array_equal(restarts_within(is_first[None], jnp.array([[True, False]])), [2, 0])
    # With two seeds, one after the other.
    both = restarts_within(
        jnp.stack([is_first, is_first[:, ::-1]]), jnp.array([[True, False], [False, True]])
    )
    np.testing.assert_array_equal(both, [2, 0, 0, 2])


@pytest.mark.quick("nc-gru-25", "nc-ctrnn-None")
@pytest.mark.parametrize(
    ("name", "bptt_length"), [*((name, None) for name in ON_POLICY_PRESETS), ("nc-gru", 25)]
)
def test_every_preset_trains_and_so_do_truncated_gradients(tmp_path, name, bptt_length):
    ppo = dataclasses.replace(
        preset(name, "FingerTurnHard").learner, epochs=2, minibatches=2, bptt_length=bptt_length
    )
    config = two_iterations(name, learner=ppo)
    rows = train(config, tmp_path / "run").run.read_metrics()
    assert len(rows) == 2
    assert 0.0 <= rows[-1]["losses/costate"] <= 2.0
    # No episode of 1000 steps has ended, so there is no return to show.
    assert "training/episode_reward" not in rows[-1]
