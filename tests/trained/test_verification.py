"""`costate verify`: train iterations of a run again, and say what was compared and what was not."""

import dataclasses
import hashlib
import json
import math
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
from cut_off import Breaker

from costate import cli
from costate._base.errors import ConfigError, RunDirectoryError
from costate.config.run_config import RunConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders
from costate.runs.history import Stretch
from costate.runs.machine import describe_machine, machine_changes
from costate.runs.run_directory import Run, create_run, open_run
from costate.trained.verification import Difference, Verification, compare, verify
from costate.training import loop as training
from costate.training.loop import resume, train, train_together


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, quick_config: RunConfig) -> list[Run]:
    """Two seeds, trained together."""
    folder = tmp_path_factory.mktemp("verified")
    configs = [dataclasses.replace(quick_config, seed=seed) for seed in (3, 4)]
    return [outcome.run for outcome in train_together(configs, [folder / "seed-3", folder / "seed-4"])]


@pytest.fixture
def copy(runs: list[Run], tmp_path: pathlib.Path) -> Run:
    """The second seed, to be altered: three iterations, with a checkpoint and a milestone after each."""
    return open_run(shutil.copytree(runs[1].path, tmp_path / "copy"))


def alter_row(run: Run, iteration: int, metric: str) -> tuple[float, float]:
    """Make the smallest possible change of one number of the log; return the new and the old number."""
    rows = run.read_metrics()
    true = rows[iteration - 1][metric]
    rows[iteration - 1][metric] = math.nextafter(true, math.inf)
    run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return rows[iteration - 1][metric], true


def alter_weight(folder: pathlib.Path) -> str:
    """Flip the last bit of one weight and correct all digests; return the name of the array."""
    file, record = folder / "state.safetensors", folder / "checkpoint.json"
    tensors = safetensors.numpy.load_file(file)
    name = next(name for name in sorted(tensors) if "policy" in name and tensors[name].dtype == np.float32)
    tensors[name].reshape(-1).view(np.int32)[0] ^= 1
    content = safetensors.numpy.save(tensors)
    file.write_bytes(content)
    document = json.loads(record.read_text()) | {"sha256": hashlib.sha256(content).hexdigest()}
    del document["digest"]
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    record.write_text(json.dumps(document | {"digest": digest}))
    return name


def test_a_run_is_the_same_again_and_exactly_what_was_compared_is_said(
    copy: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", str(copy.path)]) == 0
    verdict, rest = capsys.readouterr().out.splitlines()
    assert verdict.startswith("the same, bit for bit: iterations 1 to 2 of 3, all ")
    assert "; milestones at steps 0, 4,000 and 8,000; checkpoints at steps 4,000 and 8,000 (" in verdict
    assert (
        rest == "not compared: iteration 3; milestone at step 12,000; checkpoint at step 12,000 "
        "(--all trains all of the log again)"
    )
    # One altered number is found, and told with what it was.
    altered, true = alter_row(copy, 2, "losses/policy")
    assert cli.main(["verify", str(copy.path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["same"], document["iterations"], document["logged"]) == (False, 2, 3)
    assert document["differences"] == [
        {"iteration": 2, "metric": "losses/policy", "logged": altered, "again": true}
    ]
    assert document["unseen"] == [
        {"env_steps": 12000, "kind": "checkpoint"},
        {"env_steps": 12000, "kind": "milestone"},
    ]


def test_what_was_not_done_again_is_not_vouched_for(copy: Run, capsys: pytest.CaptureFixture[str]) -> None:
    alter_row(copy, 3, "losses/policy")
    array = alter_weight(copy.milestones / "step_000000012000")
    assert cli.main(["verify", str(copy.path)]) == 0
    assert "not compared: iteration 3; milestone at step 12,000" in capsys.readouterr().out
    assert cli.main(["verify", str(copy.path), "--all"]) == 1
    number, weight, verdict = capsys.readouterr().out.splitlines()
    assert number.startswith("iteration 3, losses/policy: ")
    assert weight.startswith("milestone at step 12,000: 1 of ")
    assert weight.endswith(f" arrays differ when trained again: {array}")
    assert verdict.startswith("not the same: in iterations 1 to 3 of 3, 1 of ")
    assert verdict.endswith(" and 1 of 7 saved states differs")


@pytest.mark.thorough
def test_every_weight_is_compared_whatever_was_saved(copy: Run) -> None:
    """Alter one bit of a checkpoint and a count in another, and truncate a milestone."""
    alter_weight(copy.checkpoints / "step_000000004000")
    record = copy.checkpoints / "step_000000008000" / "checkpoint.json"
    document = json.loads(record.read_text())
    document["restarts"][0] += 1
    del document["digest"]
    record.write_text(
        json.dumps(
            document | {"digest": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()}
        )
    )
    (copy.milestones / "step_000000000000" / "state.safetensors").write_bytes(b"x")
    result = verify(copy)
    assert not result.differences
    found = {(each.saved.env_steps, each.saved.kind): each.what for each in result.altered}
    assert found.keys() == {(4000, "checkpoint"), (8000, "checkpoint"), (0, "milestone")}
    assert found[8000, "checkpoint"] == "its counts of started episodes differ when trained again"
    assert "truncated or was altered" in found[0, "milestone"]


def test_a_row_that_is_missing_is_found(copy: Run) -> None:
    lines = copy.metrics.read_text().splitlines(keepends=True)
    copy.metrics.write_text(lines[0] + lines[2])
    result = verify(copy)
    assert {difference.iteration for difference in result.differences} == {2}
    copy.metrics.write_text(lines[0] + lines[0])
    with pytest.raises(
        RunDirectoryError,
        match=r"Row 2 of .*metrics.jsonl is that of iteration 1, but rows have the iterations "
        r"1, 2, 3, … once",
    ):
        verify(copy)


def test_rows_that_are_missing_at_the_end_are_found(copy: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The saved states show how far the run had come."""
    lines = copy.metrics.read_text().splitlines(keepends=True)
    copy.metrics.write_text("".join(lines[:2]))
    assert cli.main(["verify", str(copy.path)]) == 0
    verdict, rest = capsys.readouterr().out.splitlines()
    assert verdict.startswith("the same, bit for bit: iterations 1 to 2 of 3, all ")
    assert rest.startswith("not compared: iteration 3; milestone at step 12,000; checkpoint at step 12,000")
    result = verify(copy, iterations=None)
    assert {difference.iteration for difference in result.differences} == {3}
    assert not result.altered
    assert not result.unseen


def test_nothing_to_compare_with_is_an_error(quick_config: RunConfig, tmp_path: pathlib.Path) -> None:
    empty = create_run(tmp_path / "run", quick_config, {}, overwrite=False)
    with pytest.raises(RunDirectoryError, match="has logged no iteration yet"):
        verify(empty)
    with pytest.raises(ConfigError, match="iterations is 0"):
        verify(empty, iterations=0)


def short(learner: str = "ppo") -> RunConfig:
    """Two iterations of LQR's episodes."""
    policy, rollout = PolicyConfig(hidden_size=4), RolloutConfig(environments=2, rollout_length=200)
    if learner == "sac":
        sac = SACConfig(
            steps_per_update=100,
            warmup_steps=400,
            head_width=8,
            replay=ReplayConfig(capacity=800, window=8, burn_in=4, batch=4),
        )
        return RunConfig("LQR", steps=800, checkpoint_every=1, policy=policy, rollout=rollout, learner=sac)
    return RunConfig(
        "LQR",
        steps=800,
        checkpoint_every=1,
        policy=policy,
        rollout=rollout,
        learner=PPOConfig(epochs=1, minibatches=1),
    )


def test_a_run_that_slowed_down_is_followed(tmp_path: pathlib.Path) -> None:
    """The run diverges in its second iteration and goes on from the first at half its learning rate."""
    config = dataclasses.replace(short(), diverged="slow-down")
    advance, lost = training.advance, iter([False, True])

    def diverging(group, programs, position):
        position, rows = advance(group, programs, position)
        return position, [row | {"losses/value": math.nan} if next(lost, False) else row for row in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "advance", diverging)
        run = train(config, tmp_path / "run").run
    run = open_run(run.path)
    assert run.history == (Stretch(0, 800), Stretch(1, 800, slowdowns=1))
    np.testing.assert_allclose(
        [row["training/learning_rate"] for row in run.read_metrics()], [2.5e-4, 2.5e-4 / 2 / 2], rtol=1e-5
    )
    result = verify(run, iterations=None)
    assert result.same
    assert [saved.env_steps for saved in result.saved if saved.kind == "checkpoint"] == [0, 400, 800]


@pytest.mark.parametrize("learner", ["ppo", "sac"])
def test_a_run_that_was_made_longer_is_followed(
    learner: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PPO's last learning rates are those of the longer run; SAC's whole replay is compared too."""
    run = train(short(learner), tmp_path / "run").run
    resume(run.path, steps=1600, evaluate_every=800)
    assert cli.main(["verify", str(run.path), "--all"]) == 0
    output = capsys.readouterr().out
    assert "the same, bit for bit: iterations 1 to 4 of 4, all " in output
    assert (
        "milestones at steps 0, 400, 800, 1,200 and 1,600; checkpoints at steps 800, 1,200 and 1,600; best "
        "policy at step 1,600 (" in output
    )
    assert "not compared: 2 numbers of eval/*" in output
    # The history is what makes them the same.
    config = run.path / "config.json"
    document = json.loads(config.read_text())
    document["history"][1]["from_iteration"] = 3
    config.write_text(json.dumps(document))
    assert verify(open_run(run.path), iterations=None).same == (learner == "sac")


def test_what_was_trained_elsewhere_is_left_out(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first iteration of a run that began on another machine can be compared.

    Later ones would differ without being wrong.
    """
    config = short()
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", reporter=Breaker(after=2))
    machine = tmp_path / "run" / "machine.json"
    card = json.loads(machine.read_text())
    here = card["processor"]
    machine.write_text(json.dumps(card | {"processor": "abacus"}))
    resume(tmp_path / "run")
    machine.write_text(json.dumps(card))
    assert cli.main(["verify", str(tmp_path / "run")]) == 0
    verdict, rest, why = capsys.readouterr().out.splitlines()
    assert verdict.startswith("the same, bit for bit: iteration 1 of 2, all ")
    assert rest == "not compared: iteration 2; milestone at step 800; checkpoint at step 800"
    assert why == (
        "stopped after iteration 1: after iteration 1 it was continued on another setup "
        f"(processor was abacus and is {here}), which changes the last bits"
    )


def test_a_slowdown_of_which_nothing_was_noted_ends_it(tmp_path: pathlib.Path) -> None:
    """As in runs of earlier versions: what was saved before it is compared, what came later is not."""
    run = train(short(), tmp_path / "run").run
    newest = folders(run.checkpoints)[-1] / "checkpoint.json"
    document = json.loads(newest.read_text()) | {"slowdowns": 2}
    del document["digest"]
    newest.write_text(
        json.dumps(
            document | {"digest": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()}
        )
    )
    shutil.rmtree(folders(run.milestones)[-1])
    result = verify(run)
    assert (result.same, result.iterations) == (True, 1)
    assert (
        result.stopped
        == "it diverged and slowed down after iteration 1 or later, but when exactly was not recorded"
    )
    for folder in (*folders(run.checkpoints)[1:2], *folders(run.milestones)[1:]):
        shutil.rmtree(folder)
    with pytest.raises(ConfigError, match=r"Nothing of .* can be verified: it diverged"):
        verify(run)


def test_clocks_are_left_out_and_missing_numbers_count() -> None:
    logged = [{"iteration": 1, "a": 1.0, "b": math.nan, "time/update": 3.0, "training/sps": 5.0}]
    again = [{"iteration": 1, "a": 1.0, "b": math.nan, "time/update": 4.0, "training/sps": 6.0}]
    assert compare(logged, again) == (3, ())
    numbers, differences = compare(logged, [{"iteration": 1, "a": 2.0, "time/update": 4.0}])
    assert numbers == 3
    assert [difference.metric for difference in differences] == ["a", "b"]


def test_the_largest_difference_is_relative() -> None:
    result = Verification(1, 2, (Difference(1, "a", 100.0, 101.0), Difference(1, "b", 1e-6, 2e-6)), ())
    assert result.largest == pytest.approx(0.5)
    assert Verification(1, 1, (Difference(1, "a", 1.0, math.nan),), ()).largest == math.inf
    assert Verification(1, 1, (), ()).same


def test_another_machine_is_told_by_what_decides_about_arithmetic() -> None:
    now = describe_machine()
    assert machine_changes(now, now) == ()
    assert machine_changes({}, now) == ()
    # A feature that no processor has, whichever this one is.
    then = now | {
        "versions": now["versions"] | {"jax": "0.1"},
        "cpu_features": ["quantum"],
        "cores": 96,
        "platform": "elsewhere",
    }
    first, second = machine_changes(then, now)
    assert first == f"jax was 0.1 and is {now['versions']['jax']}"
    assert second.startswith("compared with the processor of the run, this one lacks quantum and adds ")
    # A record that something has damaged is another machine, and no reason to stop.
    assert machine_changes({"cpu_features": 3, "arithmetic": [], "devices": {}, "versions": "none"}, now)
