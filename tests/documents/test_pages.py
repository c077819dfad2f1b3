"""README and docs work as written: snippets run, command lines are understood, and names exist."""

import contextlib
import functools
import importlib
import importlib.util
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import jax
import pytest
import tyro
from pages import ROOT, Shown, commands, files, inline, links, snippets
from shown_runs import made_run

import costate
from costate import cli
from costate._base.other_names import EXPLANATIONS, OTHER_NAMES, TASK_NAMES
from costate._base.task_files import VARIABLE
from costate.cli.settings import flag_of, settings_of_command
from costate.config.run_config import RunConfig
from costate.deploy import numpy_runtime
from costate.deploy.bundle import pack
from costate.deploy.onnx_graph import onnx_model
from costate.envs.tasks import TASKS
from costate.learners import LEARNERS
from costate.learners.rollout import RolloutConfig
from costate.losses import LOSSES
from costate.policies.cores import CORES
from costate.policies.policy import PolicyConfig
from costate.policies.readouts import READOUTS
from costate.trained import true_costates

# Snippets take the first policy of this folder, and what is written beside it.
PREPARED = {
    "runs/WalkerStand/nc-gru/seed-0": "WalkerStand",
    "runs/walker": "WalkerStand",
    "runs/gym-Pendulum-v1/nc-gru/seed-0": "gym:Pendulum-v1",
}
# Modules of a reader's own which snippets import.
ROBOTS = """
import gymnasium, numpy as np

class Crane(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Box(-1, 1, (1,))
    def __init__(self, cable=1.0): pass
    def reset(self, *, seed=None, options=None): return np.zeros(2, np.float32), {}
    def step(self, action): return np.zeros(2, np.float32), 0.0, False, False, {}
"""
ROBOT = """
readings = iter([[0.0] * 24] * 3)
def read_sensors():
    for reading in readings: return reading
    raise KeyboardInterrupt("no more readings")
def apply(action): assert action.shape == (6,)
"""
# Modules that read the names of parts when they are imported.
CHOICES_ARE_READ_BY = ("costate.cli.commands.train", "costate.cli.choices", "costate.config.presets")
# Snippets that cannot run here, by a part of their text, with the reason. They are reported as skipped.
CANNOT_RUN: dict[str, str] = {}
# Snippets that take seconds.
SLOW = ("README.md", "docs/adjoint.md", "docs/control.md", "docs/own_world.md")


@pytest.fixture
def workplace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A folder to run things in. Parts that they register are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    # As in a new process: the choices of a part are those that exist when the command is loaded.
    for module in CHOICES_ARE_READ_BY:
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "my_robots.py").write_text(ROBOTS)
    (tmp_path / "my_robot.py").write_text(ROBOT)
    for folder in ("examples", "benchmarks"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    registries = (TASKS, CORES, READOUTS, LOSSES, LEARNERS)
    before, modules = [dict(registry._items) for registry in registries], set(sys.modules)
    yield tmp_path
    for module in CHOICES_ARE_READ_BY:
        sys.modules.pop(module, None)
    for registry, items in zip(registries, before, strict=True):
        registry._items.clear()
        registry._items.update(items)
    for name in set(sys.modules) - modules:
        if name.startswith(("costate_tasks_", "my_", "costate_policy")):
            del sys.modules[name]


def small(task: str, **parts) -> RunConfig:
    return RunConfig(task, policy=PolicyConfig(hidden_size=8), rollout=RolloutConfig(environments=4), **parts)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Runs under the names that snippets use, with random weights."""
    folder = tmp_path_factory.mktemp("pages")
    for path, task in PREPARED.items():
        made_run(folder / path, small(task))
    bundle = costate.load(folder / "runs/WalkerStand/nc-gru/seed-0").bundle
    (folder / "policy.costate").write_bytes(pack(bundle))
    (folder / "policy.onnx").write_bytes(onnx_model(bundle))
    shutil.copy(numpy_runtime.__file__, folder / "costate_policy.py")
    return folder


def _snippets() -> list[object]:
    return [
        pytest.param(each, id=each.label, marks=[pytest.mark.thorough] if each.page in SLOW else [])
        for each in snippets()
    ]


@pytest.mark.parametrize("snippet", _snippets())
def test_a_snippet_runs(
    snippet: Shown, runs: pathlib.Path, workplace: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a snippet as its own file, in a folder with the runs that it names.

    Only budgets are smaller: those of training, evaluating and recording.
    """
    for part, reason in CANNOT_RUN.items():
        if part in snippet.text:
            pytest.skip(f"{snippet.label}: {reason}")
    shutil.copytree(runs, workplace, dirs_exist_ok=True)
    tiny = {"steps": 4000, "environments": 4, "hidden_size": 8, "epochs": 1, "minibatches": 1}
    train, evaluate = costate.train, costate.evaluate
    monkeypatch.setattr(costate, "train", lambda task, **options: train(task, **(options | tiny)))
    monkeypatch.setattr(
        costate, "evaluate", lambda run, **options: evaluate(run, **(options | {"episodes": 2}))
    )
    record = true_costates.record_run
    monkeypatch.setattr(true_costates, "record_run", lambda run, **options: record(run, **options, steps=10))
    _write(snippet.page, workplace)
    (workplace / "snippet.py").write_text(snippet.text)
    with contextlib.suppress(KeyboardInterrupt), jax.numpy_rank_promotion("allow"):
        runpy.run_path(str(workplace / "snippet.py"))


def _write(page: str, folder: pathlib.Path) -> None:
    """Return the files that a page shows."""
    for name, text in files(page).items():
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("page", "task", "parts"),
    [
        ("docs/own_world.md", "Cart", ["cart.py"]),
        ("docs/extending.md", "Spring", ["spring.py", "vanilla.py", "bounded.py"]),
    ],
)
def test_parts_of_a_readers_own_are_trained_and_evaluated_as_the_page_says(
    page: str, task: str, parts: list[str], workplace: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Test the page's files as they are written, named by --tasks."""
    _write(page, workplace)
    named = [word for part in parts for word in ("--tasks", part)]
    chosen = ["--core", "vanilla", "--readout", "bounded"] if "vanilla.py" in parts else []
    small = [
        "--environments",
        "2",
        "--hidden-size",
        "4",
        "--epochs",
        "1",
        "--minibatches",
        "1",
        "--rollout-length",
        "100",
        "--steps",
        "200",
    ]
    assert cli.main(["train", task, *named, *chosen, *small, "--out", "run"]) == 0
    assert cli.main(["evaluate", "run", *named, "--episodes", "2"]) == 0
    assert f"{task} at 50% blackout, 2 episodes" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_contract_tests_take_parts_of_a_readers_own(workplace: pathlib.Path) -> None:
    _write("docs/extending.md", workplace)
    own = [str(workplace / name) for name in ("spring.py", "vanilla.py", "bounded.py")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/contracts",
        "-k",
        "Spring or vanilla or bounded",
    ]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {VARIABLE: os.pathsep.join(own)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout
    # 13 tests of a core, 5 of a readout with both of its influences, and one of a task.
    assert "24 passed" in result.stdout


class Understood(BaseException):
    """Raised once a command line has been read to its end, so that nothing is done."""


# Values for the placeholders that pages use.
STANDS_FOR = {
    "RUN": "runs/a", "RUN…": "runs/a", "OTHER": "runs/b", "DIR": "somewhere", "SPEC": "figure2",
    "TASK": "WalkerStand", "TASK…": "WalkerStand",
    "CORE": "lstm", "S": "0", "PROJECT": "mine", "COMMAND": "train", "…": "WalkerStand",
}  # fmt: skip
# Arguments that complete a command that is only mentioned, such as "`costate memory --algorithm sac` says
# so".
COMPLETED = {
    "train": "WalkerStand", "memory": "WalkerStand", "bench": "WalkerStand", "solve": "pendulum",
    "sweep": "figure2", "completion": "bash",
    **dict.fromkeys(
        ("align", "evaluate", "export", "report", "robustness", "verify", "video", "view"), "runs/a"
    ),
}  # fmt: skip


def _commands() -> list[object]:
    """Try the first line of every command every day, and the others before a merge."""
    seen: set[str] = set()
    cases = []
    for each in commands():
        name = each.text.split(" ")[0]
        cases.append(
            pytest.param(
                each, id=f"{each.page}: {each.text}", marks=[pytest.mark.thorough] if name in seen else []
            )
        )
        seen.add(name)
    return cases


@pytest.mark.parametrize("line", _commands())
def test_a_command_line_is_understood(
    line: Shown, workplace: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every flag and value is read; a line that trains also makes its config.

    Nothing is trained, played or written.
    """
    words = [STANDS_FOR.get(word, word) for word in shlex.split(line.text)]
    if any("playground:" in word for word in words) and importlib.util.find_spec("mujoco_playground") is None:
        pytest.skip("MuJoCo Playground is not installed; `make test-playground` installs it")
    _write(line.page, workplace)
    _stop_after_reading(words, monkeypatch)
    code = _read(words)
    said = capsys.readouterr().err
    if code and line.inline and words[0] in COMPLETED:
        code, said = _read([*words, COMPLETED[words[0]]]), capsys.readouterr().err
    assert code == 0, f"`costate {line.text}` of {line.page}, line {line.line}: {said}"


def _stop_after_reading(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **settings: object) -> None:
        raise Understood

    if words[0] != "train":
        read = tyro.cli
        monkeypatch.setattr(tyro, "cli", lambda *arguments, **settings: stop(read(*arguments, **settings)))
        return
    for name in ("train_together", "resume_together"):
        monkeypatch.setattr(f"costate.training.loop.{name}", stop)
    monkeypatch.setattr("costate.show.live.watched", stop)
    if "--resume" in words:
        path = pathlib.Path(words[words.index("--resume") + 1])
        before = set(TASKS.names())
        # The second part of its name is the task, which the line's own file has to register.
        if "--tasks" in words:
            runpy.run_path(words[words.index("--tasks") + 1])
        made_run(path, small(path.parts[1]))
        # The command registers it itself.
        for name in set(TASKS.names()) - before:
            TASKS._items.pop(name)


def _read(words: list[str]) -> int:
    try:
        return cli.main(words)
    except Understood:
        return 0
    except SystemExit as ending:
        # The help was shown.
        return int(ending.code or 0)


def test_every_name_of_the_library_is_reached_by_importing_it_alone() -> None:
    """Resolve `costate.something` in inline code in a fresh Python, importing no more than was asked for."""
    named = {
        match[0]
        for each in inline()
        for match in [re.match(r"costate(?:\.[a-zA-Z_]\w*|\[\"\w+\"\])+", each.text)]
        if match
    }
    groups = {
        match
        for file in (ROOT / "src").rglob("*.py")
        for match in re.findall(r'load_entry_points\("([\w.]+)"\)', file.read_text())
    }
    named = {name for name in named if not name.endswith((".toml", ".py"))} - groups
    assert groups
    assert any(name.startswith("costate.true_costates") for name in named)
    code = f"import sys, costate; assert 'jax' not in sys.modules\nfor name in {sorted(named)!r}: eval(name)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@functools.cache
def _flags() -> frozenset[str]:
    """Return all flags of all commands, for every learner and part, and their names in other libraries."""
    found = {"--debug", "--tasks", "--version", "--help", "--help-all"}
    found |= {flag_of(name) for name in (*OTHER_NAMES, *EXPLANATIONS, *TASK_NAMES)}
    for name in cli.COMMANDS:
        for _, settings in settings_of_command(importlib.import_module(f"costate.cli.commands.{name}")):
            found |= {flag for setting in settings for flag in setting.names}
    return frozenset(found)


# Flags of other programs.
FOREIGN = {"--constraint", "--logdir"}


@pytest.mark.thorough
def test_every_flag_in_inline_code_is_one_of_some_command() -> None:
    unknown = {
        f"{each.page}, line {each.line}: {flag}"
        for each in inline()
        if each.text.startswith("--")
        for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", each.text)
        if flag not in _flags() | FOREIGN
    }
    assert not unknown


def test_every_link_leads_to_a_file() -> None:
    assert not [f"{page.name}: {target}" for page, target in links() if not (page.parent / target).exists()]


def test_every_file_that_is_named_exists() -> None:
    named = {
        (each.page, match[0])
        for each in inline()
        for match in re.finditer(
            r"\b(?:src|tests|docs|examples|benchmarks|tools)/[\w/.]*\w(?![\w*])", each.text
        )
    }
    assert not [f"{page}: {path}" for page, path in named if not (ROOT / path).exists()]
