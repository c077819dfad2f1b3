"""Printed text reaches every kind of standard output: in any encoding, closed, or full."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys

import pytest

from costate._base.streams import HANDLER, plain
from costate.cli.documents import document_on_stdout
from costate.training.console import can_redraw

SOLVE = ["solve", "double-integrator-energy", "--horizon", "2", "--initial-state", "-2", "0"]


def costate(*arguments: str, redirect: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, which can close its streams."""
    line = f'exec "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", line, "bash", sys.executable, "-m", "costate.cli", *arguments],
        capture_output=True,
        encoding="latin-1",
        env=os.environ | variables,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.thorough)])
def test_a_command_that_prints_an_arrow_works_in_any_encoding(encoding, tmp_path):
    result = costate(*SOLVE, "--out", str(tmp_path / "out"), PYTHONIOENCODING=encoding)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0].endswith(f"-> {tmp_path}/out")
    assert result.stderr == ""


@pytest.mark.thorough
def test_help_and_completion_are_shown_in_ascii_too():
    # Fish is the shell that shows descriptions. Both outputs describe ∂V/∂ỹ.
    for arguments in (["train", "--help-all"], ["completion", "fish"]):
        result = costate(*arguments, PYTHONIOENCODING="ascii")
        assert result.returncode == 0, result.stderr
        assert "dV/dy" in result.stdout
        assert result.stderr == ""


@pytest.mark.thorough
def test_the_plain_c_locale_is_no_obstacle(tmp_path):
    result = costate(
        *SOLVE, "--out", str(tmp_path / "out"), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert result.returncode == 0, result.stderr
    assert " -> " in result.stdout


def test_a_document_is_the_same_in_any_encoding(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii", HANDLER))
    with document_on_stdout(True) as give:
        give({"label": "σ → ỹ"})
    sys.stdout.flush()
    assert json.loads(written.getvalue()) == {"label": "σ → ỹ"}


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("→", "->"),
        ("₃", "3"),
        ("²", "2"),
        ("ᵀ", "T"),
        ("ẋ", "x"),
        ("λ", "lambda"),
        ("…", "..."),
        ("\u0303", ""),
        ("猫", "?"),
    ],
)
def test_a_character_has_a_plain_form(character, shown):
    assert plain(character) == shown


def test_a_name_of_a_file_that_is_no_text_is_printed_with_its_own_bytes():
    assert os.fsdecode(b"run\xff").encode("utf-8", HANDLER) == b"run\xff"


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_closed_output_is_no_obstacle_and_nothing_else_gets_its_place(closed, tmp_path):
    result = costate(*SOLVE, "--out", str(tmp_path / "out"), redirect=closed)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert json.loads((tmp_path / "out" / "solution.json").read_text())["converged"] is True


@pytest.mark.thorough
def test_an_error_with_stderr_closed_is_an_exit_code():
    result = costate("evaluate", "nowhere", redirect="2>&-")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "")


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_behind_stdout_is_one_paragraph():
    result = costate("tasks", redirect="> /dev/full")
    assert result.returncode == 1
    assert result.stderr.startswith(
        "error: Some output or file could not be written or read: No space left on device. "
    )
    assert result.stderr.count("\n") == 1


def test_a_program_without_streams_redraws_nothing():
    with contextlib.redirect_stdout(None):
        assert not can_redraw(sys.stdout)
