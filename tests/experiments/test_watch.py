"""The display of a sweep in progress."""

import io

import pytest
from rich.console import Console
from sweeping import small_spec

from costate.experiments.sweep import Standing, Status
from costate.experiments.watch import LiveWatch, PlainWatch, plain_line, summary

FIRST, SECOND = small_spec().runs


def stands(planned, status, steps=0, value=None, speed=None, error=None) -> Standing:
    return Standing(planned, status, steps, 160_000, value, speed, error)


def test_the_summary_counts_adds_speeds_and_tells_the_time_left():
    standings = [stands(FIRST, Status.RUNNING, 60_000, 10.0, 500.0), stands(SECOND, Status.WAITING)]
    # (160,000 − 60,000 + 160,000) / 500 = 520 s
    assert summary(standings) == "2 runs: 1 waiting, 1 running, 500 steps/s, 8:40 left"
    assert summary([stands(FIRST, Status.FINISHED, 160_000)]) == "1 runs: 1 finished"


def test_a_failed_run_shows_its_error():
    assert (
        plain_line(stands(FIRST, Status.FAILED, 40_000, 3.0, error="exploded"))
        == "failed      CartpoleSwingup gru seed 0, 25%: exploded"
    )


def test_plain_output_says_what_changes_and_nothing_twice(capsys):
    watch = PlainWatch(interval=1000.0)
    watch.show([stands(FIRST, Status.FINISHED, 160_000), stands(SECOND, Status.WAITING)])
    watch.show([stands(FIRST, Status.FINISHED, 160_000), stands(SECOND, Status.RUNNING, 80_000, 12.3, 100.0)])
    watch.show([stands(FIRST, Status.FINISHED, 160_000), stands(SECOND, Status.RUNNING, 90_000, 12.3, 100.0)])
    assert capsys.readouterr().out.splitlines() == [
        "2 runs: 1 waiting, 1 finished",
        "running     CartpoleSwingup nc-gru seed 0, 50%, return 12",
    ]


@pytest.mark.parametrize("height", [12, 40])
def test_the_live_table_fits_the_terminal_and_counts_what_it_hides(height):
    screen = io.StringIO()
    watch = LiveWatch(Console(file=screen, force_terminal=True, width=80, height=height))
    watch.show(
        [stands(FIRST, Status.FINISHED, 160_000, 50.0)] * 20
        + [stands(SECOND, Status.RUNNING, 80_000, 12.3, 100.0)]
    )
    watch.close()
    text = screen.getvalue()
    assert "21 runs: 1 running, 20 finished" in text
    assert "13:20" in text
    assert text.index("running") < text.index("finished", text.index("seed"))
    assert ("and 15 more" in text) == (height == 12)
