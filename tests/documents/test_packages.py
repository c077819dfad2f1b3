"""The extending guide's parts as an installed third-party package, found by entry points."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from pages import ROOT, files

# The guide's files, the group under which each is declared, and the name that it registers.
PARTS = {
    "vanilla.py": ("costate.cores", "vanilla"),
    "bounded.py": ("costate.readouts", "bounded"),
    "slow.py": ("costate.losses", "slow"),
    "a2c.py": ("costate.learners", "a2c"),
    "spring.py": ("costate.tasks", "Spring"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Write a folder as an installer leaves it: the modules, and the metadata that declares them."""
    folder = tmp_path_factory.mktemp("site-packages")
    shown = files("docs/extending.md")
    for name in PARTS:
        (folder / f"my_{name}").write_text(shown[name])
    about = folder / "my_parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1.0\n")
    declared = [
        f"[{group}]\n{part} = my_{name.removesuffix('.py')}\n" for name, (group, part) in PARTS.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(declared))
    return folder


def run(folder: pathlib.Path, *words: str, cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {name: value for name, value in os.environ.items() if name != "COSTATE_TASKS"} | {
        "PYTHONPATH": path
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_parts_of_a_package_are_choices_like_all_others(installed, tmp_path):
    """Train on its task with its core, its readout and its loss, and evaluate the run."""
    program = (
        "import costate\nrun = costate.train('Spring', 'run', core='vanilla', readout='bounded', "
        "losses=[{'name': 'slow', 'coef': 0.1}], hidden_size=8, environments=4, rollout_length=20, "
        "steps=160, epochs=1, minibatches=2, progress=False)\nprint(run.read_metrics()[-1]['losses/slow'] "
        "> 0.0)\n"
    )
    result = run(installed, "-c", program, cwd=tmp_path)
    assert (result.returncode, result.stdout.strip()) == (0, "True"), result.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (config["task"], config["policy"]["core"]["name"]) == ("Spring", "vanilla")
    words = ("-m", "costate", "evaluate", "run", "--episodes", "4", "--json")
    evaluated = run(installed, *words, cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr


def test_a_learner_of_a_package_trains_resumes_evaluates_and_is_exported(installed, tmp_path):
    """It touches no file of this library: all that is asked of it is asked through the contract."""
    sizes = ("--hidden-size", "8", "--environments", "4", "--rollout-length", "20")
    words = ("-m", "costate", "train", "LQR", "--algorithm", "a2c", *sizes)
    trained = run(
        installed, *words, "--steps", "160", "--learning-rate", "3e-3", "--out", "run", cwd=tmp_path
    )
    assert trained.returncode == 0, trained.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["learner"] == {"name": "a2c", "learning_rate": 3e-3, "discount": 0.99}
    for words in (
        ("train", "--resume", "run", "--steps", "320"),
        ("evaluate", "run", "--episodes", "4"),
        ("verify", "run", "--all"),
        ("export", "run", "--format", "numpy", "--out", "policy"),
    ):
        done = run(installed, "-m", "costate", *words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    help_text = run(
        installed, "-m", "costate", "train", "--algorithm", "a2c", "--help-all", cwd=tmp_path
    ).stdout
    assert "The learner's settings are those of advantage actor-critic" in help_text
    refused = run(
        installed, "-m", "costate", "train", "LQR", "--algorithm", "a2c", "--epochs", "2", cwd=tmp_path
    )
    assert refused.returncode == 2
    assert (
        "--epochs is a setting of PPO, and soft actor-critic and advantage actor-critic have no"
        in refused.stderr.replace("\n", " ")
    )


@pytest.mark.thorough
@pytest.mark.parametrize("part", [name for _, name in PARTS.values()])
def test_the_contract_battery_runs_on_parts_of_a_package(installed, part):
    words = ("-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "tests/contracts", "-k", part)
    result = run(installed, *words)
    assert result.returncode == 0, result.stdout[-2000:]
    assert "passed" in result.stdout


def test_a_package_that_cannot_be_imported_is_named(installed, tmp_path):
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[costate.losses]\nnothing = no_such_module\n")
    result = run(tmp_path, "-m", "costate", "train", "LQR", "--steps", "64000", cwd=tmp_path)
    assert result.returncode == 1
    assert (
        "The entry point 'nothing' (no_such_module) of costate.losses, which the package broken declares"
        in result.stderr
    )
    assert not list(tmp_path.glob("runs*"))
