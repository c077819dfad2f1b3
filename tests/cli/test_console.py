"""Console output of training."""

import io
import math

import pytest
from rich.console import Console

from costate.training.console import (
    LiveReporter,
    PlainReporter,
    Progression,
    duration,
    plain_header,
    plain_line,
)


def progression(steps: int = 640_000, episode_return: float = 123.456) -> Progression:
    row = {
        "env_steps": steps,
        "training/episode_reward": episode_return,
        "losses/costate": 0.4567,
        "losses/approx_kl": 0.0123,
        "losses/explained_variance": 0.9,
        "training/sps": 12345.6,
    }
    return Progression(row, total_steps=1_000_000, seconds_left=3725.0)


def test_a_plain_line_is_aligned_with_its_header():
    assert plain_line(progression()) == "     640,000    123.5     0.457   0.0123     0.90    12,346  1:02:05"
    assert len(plain_line(progression())) == len(plain_header(progression().row))


def test_a_return_that_does_not_exist_yet_is_a_dash():
    line = plain_line(progression(episode_return=math.nan))
    assert line.split()[1] == "–"
    assert len(line) == len(plain_header(progression().row))


def test_plain_lines_come_at_intervals_and_always_at_the_end(capsys):
    reporter = PlainReporter(interval=3600.0)
    for steps in (320_000, 640_000, 1_000_000):
        reporter.progress(progression(steps))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "steps",
        "320,000",
        "1,000,000",
    ]


def test_the_live_bar_shows_steps_return_loss_speed_and_time_left():
    screen = io.StringIO()
    reporter = LiveReporter(Console(file=screen, force_terminal=True, width=80))
    reporter.say("compiled in 5.0 s")
    reporter.progress(progression())
    reporter.close()
    shown = screen.getvalue()
    for text in (
        "compiling",
        "compiled in 5.0 s",
        "0.6/1.0M",
        "return 123",
        "co-state 0.46",
        "12,346 steps/s",
        "1:02:05 left",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0:00"), (59.6, "1:00"), (3599.0, "59:59"), (3600.0, "1:00:00"), (-1.0, "0:00")],
)
def test_durations_read_like_a_clock(seconds, text):
    assert duration(seconds) == text
