"""A log with damaged lines: intact rows are kept, the others are moved aside, and a warning says so."""

import json
import pathlib
import shutil

import pytest
from cut_off import Breaker, numbers

from costate.cli import main
from costate.config.run_config import RunConfig
from costate.runs.metrics_log import MetricsLog
from costate.runs.metrics_rows import parse_row, parse_rows
from costate.runs.run_directory import Run, create_run, open_run
from costate.training.loop import resume, train

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "format_1"

NO_ROWS = (
    b"{}", b'"x"', b"[]", b"5", b"null", b"#####",
    b'{"env_steps": null}', b'{"env_steps": "4000"}', b'{"env_steps": -1}', b'{"env_steps": 1e400}',
    b'{"env_steps": true}', b'{"env_steps": 4000, "iteration": "1"}',
    b'{"env_steps": 4000, "return": "high"}', b'{"env_steps": 4000, "a": [1]}',
    b'{"env_steps": 4000, "a": 1' + b"0" * 400 + b"}", b'{"env_steps": 4000, "a": 1' + b"0" * 5000 + b"}",
    b"[" * 100_000, b"\xff\xfe", b'{"env_st',
)  # fmt: skip


@pytest.mark.parametrize("line", NO_ROWS, ids=lambda line: line[:24].decode(errors="replace"))
def test_what_is_no_row_of_numbers_is_left_out_wherever_it_stands(line: bytes) -> None:
    rows = [{"iteration": number, "env_steps": 1000 * number, "losses/total": 0.5} for number in (1, 2)]
    first, second = (json.dumps(row).encode() for row in rows)
    assert parse_row(line) is None
    log = parse_rows(b"\n".join([line, first, line, b"", second, b""]))
    assert list(log.rows) == rows
    assert [(damaged.number, damaged.content) for damaged in log.damaged] == [(1, line), (3, line)]
    assert log.complaint == "metrics.jsonl is damaged in lines 1, 3, which are left out"


def test_a_last_line_without_an_end_is_a_row_if_it_is_whole() -> None:
    whole = parse_rows(b'{"env_steps": 1}\n{"env_steps": 2}')
    assert [row["env_steps"] for row in whole.rows] == [1, 2]
    cut = parse_rows(b'{"env_steps": 1}\n{"env_st')
    assert [row["env_steps"] for row in cut.rows] == [1]
    assert (cut.damaged, cut.cut_off, cut.complaint) == ((), b'{"env_st', None)


@pytest.fixture
def run(quick_config: RunConfig, tmp_path: pathlib.Path) -> Run:
    """A run whose log has five iterations of 4,000 steps."""
    run = create_run(tmp_path / "run", quick_config, {}, overwrite=False)
    run.metrics.write_text(
        "".join(json.dumps({"iteration": i, "env_steps": 4000 * i}) + "\n" for i in range(1, 6))
    )
    return run


def log_from(run: Run, iteration: int) -> list[str]:
    """Continue from an iteration, and return the warnings."""
    said: list[str] = []
    MetricsLog(run, iteration, 4000 * iteration, said.append).close()
    return said


def damage(run: Run, line: int, content: str) -> None:
    lines = run.metrics.read_text().splitlines()
    lines[line - 1] = content
    run.metrics.write_text("\n".join(lines) + "\n")


def test_one_damaged_line_costs_no_other_row(run: Run) -> None:
    damage(run, 2, "#####")
    (warning,) = log_from(run, 4)
    assert [row["iteration"] for row in run.read_metrics()] == [1, 3, 4]
    assert run.damaged_metrics.read_text() == "#####\n"
    assert warning.startswith(
        f"{run.metrics} is damaged in line 2: moved to {run.damaged_metrics}. All other rows are kept; "
    )
    # The warning appears once. Lines that were moved stay, and lines damaged later are added.
    assert log_from(run, 4) == []
    damage(run, 1, "{}")
    assert len(log_from(run, 4)) == 1
    assert [row["iteration"] for row in run.read_metrics()] == [3, 4]
    assert run.damaged_metrics.read_text() == "#####\n{}\n"


def test_a_line_that_was_cut_off_by_a_kill_is_no_damage_unless_its_row_is_missing(run: Run) -> None:
    with open(run.metrics, "a") as file:
        file.write('{"iteration": 6, "env_st')
    assert log_from(run, 5) == []
    assert not run.damaged_metrics.exists()
    run.metrics.write_text(run.metrics.read_text()[:-20])
    (warning,) = log_from(run, 5)
    assert "is damaged in its last line: moved to" in warning
    assert [row["iteration"] for row in run.read_metrics()] == [1, 2, 3, 4]


def test_training_that_goes_on_with_a_damaged_log_says_so_and_is_not_disturbed(
    quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    whole = train(quick_config, tmp_path / "whole").run
    shutil.copytree(whole.path, tmp_path / "run")
    run = open_run(tmp_path / "run")
    # As if training had stopped after the second of three iterations.
    shutil.rmtree(run.checkpoints / "step_000000012000")
    damage(run, 1, "{}")
    reporter = Breaker()
    resume(run.path, reporter=reporter)
    assert numbers(run) == numbers(whole)[1:]
    assert [text for text in reporter.said if "metrics.damaged.jsonl" in text] == [
        f"warning: {run.metrics} is damaged in line 1: moved to {run.damaged_metrics}. All other rows are "
        "kept; the iterations on these lines are missing from curves and reports. Training is not affected."
    ]
    # The same for a run that is finished.
    damage(run, 1, '"x"')
    reporter = Breaker()
    resume(run.path, reporter=reporter)
    assert numbers(run) == numbers(whole)[2:]
    assert run.damaged_metrics.read_text() == '{}\n"x"\n'
    assert any("is damaged in line 1" in text for text in reporter.said)


@pytest.mark.parametrize("content", ["{}", '"x"', "#####"])
def test_a_report_of_a_damaged_log_neither_fails_nor_writes(
    content: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "runs" / "run")
    run = open_run(tmp_path / "runs" / "run")
    damage(run, 1, content)
    before = run.metrics.read_bytes()
    assert main(["report", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr().out
    assert "incomplete: run: metrics.jsonl is damaged in line 1, which is left out" in said
    assert "1 run reported" in said
    assert run.metrics.read_bytes() == before
    assert not run.damaged_metrics.exists()


def test_a_sweep_reads_how_far_a_run_is_past_damaged_lines(run: Run) -> None:
    from costate.experiments.sweep import _last_rows

    with open(run.metrics, "a") as file:
        file.write('{"env_steps": "x", "training/sps": "fast"}\n"x"\n{}\n')
    assert [row["env_steps"] for row in _last_rows(run.metrics)] == [4000, 8000, 12000, 16000, 20000]
