"""Help texts of every command, and the settings behind them."""

import contextlib
import dataclasses
import importlib
import io
import os
import pathlib
import re
import subprocess
import sys
from typing import Annotated, Literal

import pytest
import tyro

from costate.cli import COMMANDS, main
from costate.cli.commands import train
from costate.cli.help_text import HelpLayout, help_text
from costate.cli.settings import settings_of
from costate.config.presets import PRESETS
from costate.policies.cores import CORES

WIDTH, SCREEN = 100, 45
# Type names that only tyro would write.
TYPE_NOISE = (
    "{None}",
    "[[",
    "...",
    "(default: '')",
    "(default: )",
    "(default: ())",
    "MISSING",
    "None|",
    "<class",
)


def shown(*arguments: str) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        # The environment of the tests may set another width.
        patch.setenv("COLUMNS", str(WIDTH))
        with pytest.raises(SystemExit, match="0"):
            main(list(arguments))
    return out.getvalue()


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    """How much."""
    mode: Literal["slow", "fast"] = "slow"


@dataclasses.dataclass(frozen=True)
class Base:
    out: pathlib.Path | None = None
    """Where
    it goes."""


@dataclasses.dataclass(frozen=True)
class Example(Base):
    """Do something.

    And more."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """Of whom."""
    values: tuple[float, ...] = ()
    quick: bool = False
    check: bool = True
    part: Annotated[Inner, tyro.conf.arg(name="")] = Inner()
    inner: Inner = Inner()
    given: int | None = 3


def test_settings_are_read_from_fields_types_and_the_sentences_below_them():
    found = {setting.place: setting for setting in settings_of(Example)}
    assert [(place, each.names, each.value) for place, each in found.items()] == [
        ("out", ("--out",), "PATH"),
        ("name", (), "NAME"),
        ("values", ("--values",), "FLOAT …"),
        ("quick", ("--quick", "--no-quick"), ""),
        ("check", ("--check", "--no-check"), ""),
        ("part.rate", ("--rate",), "FLOAT"),
        ("part.mode", ("--mode",), "slow|fast"),
        ("inner.rate", ("--inner.rate",), "FLOAT"),
        ("inner.mode", ("--inner.mode",), "slow|fast"),
        ("given", ("--given",), "INT"),
    ]
    assert (found["out"].description, found["out"].paths, found["name"].description) == (
        "Where it goes.",
        True,
        "Of whom.",
    )
    assert found["inner.mode"].choices == ("slow", "fast")
    # A switch is shown as the flag that changes its default.
    assert (found["quick"].flag, found["check"].flag) == ("--quick", "--no-check")
    # The defaults of an instance are its own.
    other = Example(inner=Inner(rate=0.25))
    assert [setting.default for setting in settings_of(other) if setting.place.endswith("rate")] == [
        0.5,
        0.25,
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_settings_are_those_that_the_parser_takes(command):
    """tyro's own help, which is drawn from its parser, has the same flags."""
    module = importlib.import_module(f"costate.cli.commands.{command}")
    shape = train.arguments_for([]) if command == "train" else module.ARGUMENTS
    kind = shape if isinstance(shape, type) else type(shape)
    default = {} if isinstance(shape, type) else {"default": shape}
    drawn = io.StringIO()
    with contextlib.redirect_stdout(drawn), contextlib.suppress(SystemExit):
        tyro.cli(kind, args=["--help"], **default)
    flags = set(re.findall(r"^\W? ?(--[a-z][\w.-]*)", drawn.getvalue(), re.MULTILINE)) | set(
        re.findall(r", (--no-[\w.-]+)", drawn.getvalue())
    )
    assert {name for setting in settings_of(shape) for name in setting.names} == flags - {"--help"}


@pytest.mark.parametrize("everything", ["--help", "--help-all"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_shows_how_types_are_written(command, everything):
    text = shown(command, everything)
    assert text.startswith(f"usage: costate {command}")
    assert not [noise for noise in TYPE_NOISE if noise in text]
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("command", COMMANDS)
def test_every_setting_is_described(command):
    module = importlib.import_module(f"costate.cli.commands.{command}")
    shape = train.arguments_for([]) if command == "train" else module.ARGUMENTS
    assert [setting.place for setting in settings_of(shape) if not setting.description] == []


@pytest.mark.parametrize("learner", [[], ["--algorithm", "sac"]])
def test_train_help_is_one_screen_with_examples_first_and_groups(learner):
    lines = shown("train", *learner, "--help").splitlines()
    assert len(lines) <= SCREEN
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Examples:", "Run:", "Task and sensors:", "Learner:", "Policy:", "Logging:"]
    text = "\n".join(lines)
    usual = (
        "--steps",
        "--seed",
        "--out",
        "--resume",
        "--dropout",
        "--costate-coef",
        "--learning-rate",
        "--core",
        *CORES.names(),
        *PRESETS,
    )
    assert [word for word in usual if word not in text] == []
    assert "--help-all" in lines[-1]


def test_help_all_shows_every_setting_of_train_once():
    for learner in ([], ["--algorithm", "sac"]):
        text = shown("train", *learner, "--help-all")
        flags = re.findall(r"^  (--[\w.-]+)", text, re.MULTILINE)
        settings = settings_of(train.arguments_for(learner))
        assert sorted(flags) == sorted(setting.flag for setting in settings if setting.names)
        assert len(flags) > 60


def test_what_is_on_the_first_screen_exists_for_some_learner():
    places = {
        setting.place
        for learner in ([], ["--algorithm", "sac"])
        for setting in settings_of(train.arguments_for(learner))
    }
    assert set(train.LAYOUT.usual) <= places
    named = {place for group in train.LAYOUT.groups.values() for place in group}
    assert named <= places | {place.split(".")[0] for place in places}


def test_the_examples_of_train_can_be_read(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(
        "costate.training.loop.train_together",
        lambda configs, outs, **_: seen.append(configs[0].task) or (_ for _ in ()).throw(KeyboardInterrupt),
    )
    for example, _ in train.LAYOUT.examples:
        words = example.split()[1:]
        if "--resume" not in words:
            assert main(words) == 130
    assert seen == ["CartpoleSwingup", "WalkerStand"]


def test_a_narrow_terminal_gets_narrow_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    text = help_text("example", Example, HelpLayout(), everything=True)
    assert max(map(len, text.splitlines())) <= 72
    assert "  --no-check" in text
    assert "--no-quick" not in text


def test_help_of_a_command_that_shows_everything_anyway_is_the_same():
    assert shown("evaluate", "-h") == shown("evaluate", "--help") == shown("evaluate", "--help-all")
    # The sensors are those of training, whatever the defaults of the class are.
    assert "--dropout FLOAT             Probability that the whole observation blacks out.\n" in shown(
        "evaluate", "--help"
    )


def test_help_imports_no_engine():
    program = (
        "import sys; from costate.cli import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass\n"
    )
    engines = {"envpool", "dm_control", "matplotlib", "scipy.optimize", "ray", "viser"}
    program += f"print(sorted({engines} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.splitlines()[-1] == "[]"
