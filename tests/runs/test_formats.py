"""Files of every past format stay readable. The fixtures are never regenerated."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from fixtures.make import observations

import costate
from costate._base.errors import CheckpointError
from costate.runs.checkpoint import FORMAT
from costate.runs.run_directory import open_run
from costate.trained.trained import load_controller, load_insight, load_state, shown_steps
from costate.training.loop import resume

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
RUNS = sorted(path.parent for path in FIXTURES.glob("format_*/*/config.json"))


def test_there_is_a_fixture_of_todays_format() -> None:
    assert FIXTURES / f"format_{FORMAT}" / "ppo" in RUNS
    assert FIXTURES / f"format_{FORMAT}" / "sac" in RUNS


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_old_run_acts_as_it_did(folder: pathlib.Path) -> None:
    run = open_run(folder)
    expected = json.loads((folder / "expected.json").read_text())["actions"]
    checkpoint, _ = load_state(run, None, pytest.fail)
    assert checkpoint.env_steps == shown_steps(run)[-1]
    for policy in (costate.load(run), costate.load(folder / "policy.costate")):
        np.testing.assert_allclose(
            [policy.step(observation) for observation in observations()], expected, atol=1e-5
        )
    for step in shown_steps(run):
        assert load_insight(run, step, pytest.fail)[0].env_steps == step


@pytest.mark.quick("ppo")
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_an_old_run_goes_on(name: str, tmp_path: pathlib.Path) -> None:
    """Continue from the checkpoint before the last. The numbers agree up to differences between machines."""
    shutil.copytree(FIXTURES / "format_1" / name, tmp_path / "run")
    run = open_run(tmp_path / "run")
    logged = run.read_metrics()
    saved = sorted(run.checkpoints.glob("step_*"))
    shutil.rmtree(saved[-1])
    resume(run.path)
    again = run.read_metrics()
    assert [row["iteration"] for row in again] == [row["iteration"] for row in logged]
    for name, value in logged[-1].items():
        if not name.startswith(("time/", "training/sps")):
            np.testing.assert_allclose(again[-1][name], value, rtol=1e-2, atol=1e-3, err_msg=name)


def test_a_format_of_the_future_is_refused(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "format_1" / "ppo", tmp_path / "run")
    run = open_run(tmp_path / "run")
    from costate.runs.checkpoint import _digest

    for path in run.checkpoints.glob("*/checkpoint.json"):
        record = json.loads(path.read_text())
        record.pop("digest")
        record["format"] = FORMAT + 1
        path.write_text(json.dumps(record | {"digest": _digest(record)}))
    with pytest.raises(CheckpointError, match="written by another version of costate"):
        load_controller(run, None, lambda _: None)
