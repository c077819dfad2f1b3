"""Trained runs outside the library: loaded, exported, and run on the real dm_control."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import costate
from costate._base.errors import CostateError
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.deploy.parity import Step
from costate.deploy.runners import onnx_step
from costate.envs.base import AbstractActuators, TimeStep
from costate.envs.tasks import TASKS
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.trained.evaluation import evaluate
from costate.trained.trained import load_controller
from costate.training.loop import train

TASK = "CartpoleSwingup"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    parts = {
        "policy": PolicyConfig(hidden_size=8),
        "rollout": RolloutConfig(environments=4),
        "learner": PPOConfig(epochs=1, minibatches=1),
    }
    return train(RunConfig(TASK, steps=4000, **parts), tmp_path_factory.mktemp("exporting") / "run").run


def play(step: Step, state_size: int, seed: int, dropout: float, steps: int) -> float:
    """The return of one episode in the real dm_control, half of whose observations are dark."""
    stage, seen = TASKS[TASK].stage(seed), np.random.default_rng(seed).random(steps) >= dropout
    state, total = np.zeros((1, state_size), np.float32), 0.0
    for t in range(steps):
        observation = np.float32(stage.observe() * seen[t])[None]
        action, state = step(observation, state, np.asarray([t == 0]))
        total += stage.step(np.float64(action[0])).reward
    return total


class Bounds(AbstractActuators):
    batch_size, action_size = 3, 1
    action_low, action_high = np.asarray([-1.0]), np.asarray([1.0])


def test_a_loaded_run_acts_as_it_does_in_evaluation(run):
    policy, (_, controller) = costate.load(run), load_controller(run, None, print)
    memory, rng = controller.empty_memory(Bounds()), np.random.default_rng(0)
    policy.reset(3)
    for _ in range(5):
        observation, first = rng.standard_normal((3, 5)).astype(np.float32), rng.random(3) < 0.2
        now = TimeStep(
            *map(
                jnp.asarray,
                (observation, np.zeros(3, np.float32), np.ones(3, np.float32), first, np.zeros(3, bool)),
            )
        )
        action, memory = controller.decide(Bounds(), now, memory)
        np.testing.assert_allclose(policy.step(observation, first), action, atol=1e-6)
    assert policy.observation_layout == (("position", 3), ("velocity", 2))
    assert policy.provenance["env_steps"] == 4000
    assert costate.load(run.path, step=0).provenance["env_steps"] == 0
    assert "gru 8 for CartpoleSwingup, step 4,000" in repr(policy)


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ("bundle", ["policy.costate"]),
        ("numpy", ["README.md", "costate_policy.py", "policy.costate"]),
        ("stablehlo", ["policy.stablehlo"]),
    ],
)
def test_the_command_says_how_the_exported_policy_compares(run, form, files, capsys, tmp_path):
    out = tmp_path if form == "numpy" else tmp_path / files[0]
    assert main(["export", str(run.path), "--format", form, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "parity: 1,000 steps × 4 streams" in printed
    assert "µs (median)" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == files


@pytest.mark.parametrize(
    ("form", "name"),
    [("bundle", "policy.costate"), ("onnx", "policy.onnx"), ("stablehlo", "policy.stablehlo")],
)
def test_an_export_goes_into_a_folder_that_is_given_and_leaves_what_is_there(
    run, form, name, tmp_path, monkeypatch
):
    (tmp_path / "thesis.tex").write_text("years of work")
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run.path), "--format", form, "--out", "."]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_an_export_refuses_what_it_would_have_to_replace_before_it_computes_anything(run, tmp_path, capsys):
    (tmp_path / "policy.costate").mkdir()
    (tmp_path / "file").write_text("years of work")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for form, out, message in (
        ("bundle", tmp_path, "policy.costate: it is a folder, and a file never replaces a folder"),
        ("numpy", tmp_path, "policy.costate: it is a folder"),
        (
            "numpy",
            tmp_path / "file",
            "file is a file, but the format numpy is a folder of policy.costate, costate_policy.py, "
            "README.md",
        ),
        ("onnx", tmp_path / "link", "it is a symbolic link to"),
    ):
        assert main(["export", str(run.path), "--format", form, "--out", str(out)]) == 1
        captured = capsys.readouterr()
        assert message in captured.err
        assert "parity" not in captured.out
    assert list((tmp_path / "policy.costate").iterdir()) == []
    assert (tmp_path / "file").read_text() == "years of work"


def test_an_export_replaces_its_own_readme_and_nobody_elses(run, tmp_path, capsys):
    readme, command = (
        tmp_path / "README.md",
        ["export", str(run.path), "--format", "numpy", "--out", str(tmp_path)],
    )
    readme.write_text("# My robot")
    assert main(command) == 1
    captured = capsys.readouterr()
    assert "README.md: costate did not write the file that is there" in captured.err
    assert "parity" not in captured.out
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert readme.read_text() == "# My robot"
    readme.unlink()
    assert [main(command), main(command)] == [0, 0]


def test_a_script_gets_the_comparison_as_one_document(run, capsys, tmp_path):
    assert main(["export", str(run.path), "--out", str(tmp_path / "policy.costate"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parity"]["steps"] == 1000
    assert 0.0 <= found["parity"]["action"] <= 1e-5
    assert found["written"] == [str(tmp_path / "policy.costate")]


def test_a_bundle_cannot_be_asked_for_another_step(run, tmp_path):
    costate.export(run, "bundle", tmp_path / "policy.costate")
    assert costate.load(tmp_path / "policy.costate").provenance == costate.load(run).provenance
    with pytest.raises(CostateError, match="holds one policy only"):
        costate.load(tmp_path / "policy.costate", step=0)


def test_onnx_runtime_drives_dm_control_like_the_policy_itself(run, capsys):
    assert main(["export", str(run.path), "--format", "onnx"]) == 0
    policy, step = costate.load(run), onnx_step((run.path / "export" / "policy.onnx").read_bytes())
    for seed in (0, 1):
        mine, theirs = (play(each, policy.state_size, seed, 0.5, 250) for each in (policy.predict, step))
        # Differences of 1e-7 in a control grow while the pole swings; over a quarter of an episode they stay
        # far below this.
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)


@pytest.mark.slow
def test_onnx_runtime_on_dm_control_has_the_returns_of_evaluate(run):
    """Compare 40 returns with 100 of `costate evaluate` by the two-sample Kolmogorov–Smirnov test."""
    costate.export(run, "onnx")
    policy, step = costate.load(run), onnx_step((run.path / "export" / "policy.onnx").read_bytes())
    found = [play(step, policy.state_size, seed, 0.5, 1000) for seed in range(40)]
    assert scipy.stats.ks_2samp(found, evaluate(run, dropout=0.5, episodes=100)[0].returns).pvalue > 0.01
