"""The command line as a whole: overview, errors, output for scripts, and colours."""

import contextlib
import importlib.metadata
import io
import json
import math
import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from costate._base.errors import ConfigError
from costate._base.progress import among, within
from costate.cli.commands.completion import grammar
from costate.cli.countdown import INTERVAL, LiveCountdown, PlainCountdown
from costate.cli.documents import as_json, document_on_stdout
from costate.cli.main import COMMANDS, EXAMPLES, main
from costate.config.run_config import RunConfig, with_overrides
from costate.policies.cores.lstm import LSTMConfig
from costate.training.console import LiveReporter, Progression, can_redraw

COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])m")


@pytest.fixture(scope="module")
def known():
    """Return everything that can be completed, from the help texts of all commands."""
    return grammar()


# The overview.


def test_costate_alone_is_ten_lines_with_examples_that_exist(known, capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 8 <= len(lines) <= 12
    assert all(len(line) <= 110 for line in lines)
    assert "`costate --help` lists all commands" in lines[-1]
    for command, example, _ in EXAMPLES:
        if command in COMMANDS:
            assert any(line.strip().startswith(example) for line in lines)
            flags = {word for word in example.split() if word.startswith("--")}
            assert flags <= {flag.name for flag in known[command].flags}


def test_python_m_costate_is_the_command():
    shown = subprocess.run(
        [sys.executable, "-m", "costate", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"costate {importlib.metadata.version('costate')}\n"
    refused = subprocess.run(
        [sys.executable, "-m", "costate", "tran"], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stderr[:41]) == (1, "error: Unknown command 'tran'. Did you me")


def test_help_tells_what_works_everywhere(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "--tasks FILE" in out
    assert "--debug" in out


@pytest.mark.parametrize("before", [True, False])
def test_a_task_file_is_named_anywhere_on_the_line(before, tmp_path):
    """Also before the command, as the overview says."""
    file = tmp_path / "mine.py"
    file.write_text("print('mine was loaded')")
    words = ["--tasks", str(file), "tasks"] if before else ["tasks", "--tasks", str(file)]
    shown = subprocess.run(
        [sys.executable, "-m", "costate", *words], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("mine was loaded")


# Errors.


@pytest.fixture
def broken_tasks(monkeypatch):
    """A command with a bug in it."""

    def run(arguments):
        raise RuntimeError("the first line\n  and a second one")

    monkeypatch.setattr("costate.cli.commands.tasks.run", run)


def test_what_nobody_foresaw_is_one_paragraph(broken_tasks, capsys):
    assert main(["tasks"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: RuntimeError: the first line and a second one. ")
    assert captured.err.count("\n") == 1
    assert "--debug" in captured.err


@pytest.mark.parametrize("arguments", [["--debug", "tasks"], ["tasks", "--debug"]])
def test_debug_shows_where_it_happened(broken_tasks, arguments, capsys):
    assert main(arguments) == 1
    assert 'raise RuntimeError("the first line' in capsys.readouterr().err


def test_debug_can_be_set_in_the_environment_and_serves_every_error(monkeypatch, capsys):
    assert main(["evaluate", "nowhere", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("COSTATE_DEBUG", "1")
    assert main(["evaluate", "nowhere"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("COSTATE_DEBUG", "0")
    assert main(["evaluate", "nowhere"]) == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "WalkerStand", "--costate-coff", "1"],
            "There is no setting --costate-coff. Did you mean --costate-coef",
        ),
        (
            ["train", "WalkerStand", "--costate-coff=1"],
            "There is no setting --costate-coff. Did you mean --costate-coef",
        ),
        (["train", "WalkerStand", "--preset", "ncgru"], "--preset is 'ncgru'. Did you mean nc-gru"),
        (
            ["train", "WalkerStand", "--replay.window", "40"],
            "--replay.window is a setting of soft actor-critic, and PPO has no such setting.",
        ),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--clip-epsilon", "1"],
            "--clip-epsilon is a setting of PPO, and soft actor-critic has no",
        ),
        (
            ["train", "LQR", "--algorithm", "sac", "--epochs", "1"],
            "--epochs is a setting of PPO, and soft actor-critic has no such setting. Leave",
        ),
        (
            ["train", "WalkerStand", "--core", "rnn", "--core.damping", "1"],
            "--core.damping is a setting of the core cornn, and another core was",
        ),
        (["train", "WalkerStand", "--seed", "x"], "--seed cannot be parsed: 'x' is not a whole number."),
        (["train", "WalkerStand", "--seed=1.5"], "--seed cannot be parsed: '1.5' is not a whole number."),
        (["train", "WalkerStand", "--dropout", "x"], "--dropout cannot be parsed: 'x' is not a number."),
        (
            ["train", "WalkerStand", "--burst-length", "long"],
            "--burst-length cannot be parsed: 'long' is not a number.",
        ),
        (
            ["solve", "pendulum", "--initial-state", "1", "x"],
            "--initial-state cannot be parsed: ['1', 'x'] has a wrong type.",
        ),
        (["train", "WalkerStand", "--seed"], "--seed needs a value, but none was given."),
        (
            ["train", "WalkerStand", "WalkerRun"],
            "Unexpected argument 'WalkerRun'. Is a flag missing before it?",
        ),
        (["train", "WalkerStand", "a", "b"], "Unexpected arguments 'a', 'b'. Is a flag missing before them?"),
        (["evaluate"], "RUN must be given."),
        (["completion", "fsh"], "SHELL is 'fsh'. Did you mean fish"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_paragraph_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1
    assert f"`costate {arguments[0]} --help-all`" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # In a nested config, in a config inside that one, and in the arguments themselves.
        (["align", "somewhere", "--episodes", "1"], "episodes is 1, but at least 2 are needed"),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--replay.window", "5"],
            "window is 5 and burn_in is 4",
        ),
        (["sweep", "laptop", "--address", "here:1"], "--address names a Ray cluster"),
    ],
)
def test_a_setting_that_cannot_work_comes_out_like_every_other_error(
    arguments, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # so that nothing is left behind if it does work
    assert main(arguments) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_setting_that_a_core_of_ones_own_refuses_is_out_of_range(monkeypatch, capsys, tmp_path):
    """The author of a core raises a ValueError, and not one of our errors."""

    def check(core):
        if core.forget_bias > 1.0:
            raise ValueError(f"forget_bias is {core.forget_bias}, but a gate of mine lies between 0 and 1.")

    monkeypatch.setattr(LSTMConfig, "__post_init__", check)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "LQR", "--core", "lstm", "--core.forget-bias", "1.5"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: A setting is out of range: forget_bias is 1.5, but a gate of mine lies between 0 and 1. "
    )
    with pytest.raises(
        ConfigError, match=r"A setting of config.policy.core is out of range: forget_bias is 1.5"
    ):
        with_overrides(RunConfig("LQR"), {"policy": {"core": {"name": "lstm", "forget_bias": 1.5}}})


def test_without_tyros_hook_a_setting_that_cannot_work_still_comes_out_so(monkeypatch, capsys):
    monkeypatch.delattr("tyro._errors.on_parse_error")
    assert main(["align", "somewhere", "--episodes", "1"]) == 1
    assert "error: episodes is 1" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate"])


# Output for scripts.


def test_a_document_has_stdout_for_itself(capsys):
    with document_on_stdout(True) as give:
        print("for people")
        give(
            {"value": 1.5, "missing": math.nan, "file": pathlib.Path("a/b"), "inner": {"many": (math.inf, 2)}}
        )
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "value": 1.5,
        "missing": None,
        "file": "a/b",
        "inner": {"many": [None, 2]},
    }
    assert captured.err == "for people\n"


def test_without_json_people_have_stdout(capsys):
    with document_on_stdout(False) as give:
        print("for people")
        give({"value": 1.5})
    assert capsys.readouterr() == ("for people\n", "")


def test_what_a_document_cannot_hold_is_an_error_and_not_a_text():
    with pytest.raises(TypeError):
        as_json({"value": object()})


def test_tasks_as_a_document(capsys):
    assert main(["tasks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {task["name"]: task for task in found["tasks"]}
    assert len(by_name) == 51 + 6
    # dm_control's walker: 14 orientations, a height, 9 velocities; 6 joints; 25 ms.
    walker = by_name["WalkerRun"]
    assert [group["size"] for group in walker["observation"]] == [14, 1, 9]
    assert (walker["action_size"], walker["control_timestep"], walker["in_paper"]) == (6, 0.025, True)


@pytest.mark.parametrize(
    "command",
    ["evaluate", "robustness", "align", "sweep", "memory", "report", "tasks", "solve", "bench", "export"],
)
def test_commands_with_a_result_can_give_it_to_a_script(known, command):
    assert "--json" in {flag.name for flag in known[command].flags}


# Progress.


class Clock:
    """A clock that a test moves forward."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_plain_progress_is_silent_for_short_jobs_and_sparse_for_long_ones(capsys):
    clock = Clock()
    shown = PlainCountdown(clock)
    for percent in range(0, 100, 5):
        clock.now = 100.0 + percent
        shown.tell(percent / 100.0, f"part {percent}")
    captured = capsys.readouterr()
    assert captured.out == ""
    # A hundred seconds in total, with a line every twenty.
    assert INTERVAL == 20.0
    assert captured.err.splitlines() == [
        "part 20, 20% done, 1:20 left",
        "part 40, 40% done, 1:00 left",
        "part 60, 60% done, 0:40 left",
        "part 80, 80% done, 0:20 left",
    ]


def test_where_the_end_is_not_known_the_time_so_far_is_shown(capsys):
    clock = Clock()
    shown = PlainCountdown(clock)
    clock.now += 65.0
    shown.tell(None, "solving")
    assert capsys.readouterr().err == "solving, 1:05 so far\n"


def test_the_live_line_counts_down_while_nothing_is_told():
    clock, screen = Clock(), io.StringIO()
    shown = LiveCountdown(Console(file=screen, force_terminal=True, width=80), clock)
    clock.now += 10.0
    shown.tell(0.25, "24 of 96 episodes")
    clock.now += 4.0
    shown._progress.refresh()
    shown.close()
    text = screen.getvalue()
    assert "24 of 96 episodes 0:30 left" in text
    assert "24 of 96 episodes 0:26 left" in text
    assert text.endswith("\x1b[1A\x1b[2K"), "the line is gone in the end"


def test_parts_of_a_job_tell_their_share_of_the_whole():
    told = []
    part = within(among(lambda share, what: told.append((share, what)), 1, 4), 0.5, 1.0)
    part(0.0, "a")
    part(1.0, "b")
    part(None, "c")
    # The second of four quarters; "b" is the second half of it.
    assert told == [(0.375, "a"), (0.5, "b"), (None, "c")]


# Colours.


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_lines_are_redrawn_only_on_a_terminal_that_can(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert can_redraw(Screen())
    assert not can_redraw(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not can_redraw(Screen())
    monkeypatch.delenv("TERM")
    assert not can_redraw(Screen())


@pytest.mark.parametrize("wanted", [True, False])
def test_bars_have_colours_unless_they_are_not_wanted(monkeypatch, wanted):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not wanted:
        monkeypatch.setenv("NO_COLOR", "1")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    for shown in (LiveCountdown(console), LiveReporter(console)):
        with contextlib.closing(shown):
            if isinstance(shown, LiveCountdown):
                shown.tell(0.5, "half")
            else:
                shown.progress(
                    Progression({"env_steps": 5, "training/sps": 1.0}, total_steps=10, seconds_left=5.0)
                )
    assert bool(COLOUR.search(screen.getvalue())) is wanted


def on_a_terminal(arguments, **environment):
    """Run a program on a terminal, and return what it writes there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "costate.cli", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | environment,
    )
    os.close(theirs)
    seen = b""
    # Reading from the terminal fails when no process writes to it any more.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 65536):
            seen += part
    os.close(ours)
    assert process.wait() == 0
    return seen.decode()


def test_help_on_a_terminal_has_no_escape_sequences_where_colours_are_not_wanted():
    plain = on_a_terminal(["tasks", "--help"], TERM="xterm", NO_COLOR="1")
    assert "usage: costate tasks" in plain
    assert "\x1b" not in plain


# Completion; tests/cli/test_completion.py has the scripts themselves.


def test_every_command_is_completed_and_no_other(known):
    assert set(known) == set(COMMANDS)


def test_config_errors_stay_errors_of_a_value():
    """tyro turns any other kind of error into a traceback."""
    assert issubclass(ConfigError, ValueError)
