"""`costate verify`: a run's first iterations once more, and what is said where they differ."""

import dataclasses
import json
import math
import pathlib
import shutil

import numpy as np
import pytest

from costate import cli, training
from costate._errors import ConfigError, RunDirectoryError
from costate.checkpoint import Checkpoint, folders, save
from costate.config import RunConfig, to_json
from costate.machine import describe_machine, machine_changes
from costate.run_directory import Run, create_run
from costate.training import train, train_together
from costate.verification import Difference, Verification, compare, verify


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, quick_config: RunConfig) -> list[Run]:
    """Two seeds, trained together."""
    folder = tmp_path_factory.mktemp("verified")
    configs = [dataclasses.replace(quick_config, seed=seed) for seed in (3, 4)]
    return [outcome.run for outcome in train_together(configs, [folder / "seed-3", folder / "seed-4"])]


def test_a_run_is_the_same_again_and_one_altered_number_is_found(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(runs[1].path), "--iterations", "2"]) == 0
    assert "the same, bit for bit: " in capsys.readouterr().out
    # The smallest change of one number of the log.
    rows = runs[1].read_metrics()
    true = rows[1]["losses/policy"]
    rows[1]["losses/policy"] = math.nextafter(true, math.inf)
    runs[1].metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert cli.main(["verify", str(runs[1].path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["same"] is False
    assert document["differences"] == [{"iteration": 2, "metric": "losses/policy", "logged": rows[1]["losses/policy"], "again": true}]


def test_nothing_to_compare_with_is_an_error(quick_config: RunConfig, tmp_path: pathlib.Path) -> None:
    empty = create_run(tmp_path / "run", quick_config, {}, overwrite=False)
    with pytest.raises(RunDirectoryError, match="has logged no iteration yet"):
        verify(empty)
    with pytest.raises(ConfigError, match="iterations is 0"):
        verify(empty, iterations=0)


def saved(run: Run, where: pathlib.Path, iteration: int, slowdowns: int) -> None:
    """A checkpoint of a run, of which only the record matters here."""
    save(where, Checkpoint(iteration, 4000 * iteration, to_json(run.config), (iteration,) * 4, (), slowdowns), {"weight": np.zeros(1)})


def test_a_run_that_slowed_down_is_not_called_a_mismatch(quick_config: RunConfig, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that diverges in its second iteration, goes back to the first and gets through at half its rate."""
    rate = dataclasses.replace(quick_config.ppo, learning_rate=3e-4)
    config = dataclasses.replace(quick_config, steps=8000, checkpoint_every=2, diverged="slow-down", ppo=rate)
    advance, lost = training.advance, iter([False, True])

    def sick(group, programs, position):
        position, rows = advance(group, programs, position)
        return position, [row | {"losses/value": math.nan} if next(lost, False) else row for row in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "advance", sick)
        run = train(config, tmp_path / "run").run
    assert [row["iteration"] for row in run.read_metrics()] == [1, 2]
    with pytest.raises(
        ConfigError, match=r"its learning rate was halved once, and some of the first 2 iterations .* nothing of this run can be verified"
    ):
        verify(run)
    assert cli.main(["verify", str(run.path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {run.path} diverged and slowed down by itself (--diverged slow-down)")


def test_what_came_before_a_slowdown_can_be_verified(quick_config: RunConfig, tmp_path: pathlib.Path) -> None:
    """The slowdown was after the first iteration: that one is done again, the second is not."""
    config = dataclasses.replace(quick_config, steps=8000)
    run = train(config, tmp_path / "run").run
    shutil.rmtree(run.checkpoints)
    shutil.rmtree(run.milestones)
    saved(run, run.milestones, 1, 0)
    saved(run, run.checkpoints, 2, 2)
    with pytest.raises(ConfigError, match=r"halved 2 times.* Only the first 1 are known to be from before: use --iterations 1 or less"):
        verify(run)
    assert verify(run, iterations=1).same
    # A record that cannot be read says nothing.
    (folders(run.checkpoints)[0] / "checkpoint.json").write_text("{}")
    assert verify(run).same


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
    then = now | {"versions": now["versions"] | {"jax": "0.1"}, "cpu_features": ["quantum"], "cores": 96, "platform": "elsewhere"}
    first, second = machine_changes(then, now)
    assert first == f"jax was 0.1 and is {now['versions']['jax']}"
    assert second.startswith("the processor lacks quantum and has ")
    # A record that something has damaged is another machine, and no reason to stop.
    assert machine_changes({"cpu_features": 3, "arithmetic": [], "devices": {}, "versions": "none"}, now)
