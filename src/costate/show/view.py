"""The live view: step the robots in real time, draw them, and free all resources when it ends."""

import time
from collections.abc import Callable, Sequence

from costate._base.counted import counted
from costate._base.errors import CheckpointError, ConfigError
from costate.runs.run_directory import Run
from costate.show.pace import Pace
from costate.show.page import Page
from costate.show.performance import Performance
from costate.show.player import Player
from costate.show.settings import ViewConfig
from costate.trained.trained import shown_steps
from costate.training.startup import prepare_jax

# Plots are redrawn this many times less often than the robot.
FRAMES_PER_PLOT = 6.0
SECONDS_BETWEEN_LOOKS = 5.0


def open_performance(runs: Sequence[Run], config: ViewConfig, warn: Callable[[str], None]) -> Performance:
    """Load the policies of one or two runs into their robots."""
    if not 1 <= len(runs) <= 2:
        raise ConfigError(
            f"{counted(len(runs), 'run')} were given, but one or two can be viewed. For example: costate "
            f"view runs/…"
        )
    for run in runs:
        if not shown_steps(run):
            raise CheckpointError(
                f"{run.path} has no checkpoint yet, so there is no policy to show. Train it, or wait for its "
                f"first checkpoint."
            )
    prepare_jax()
    players = [
        Player(run, config.step, warn, title) for run, title in zip(runs, titles_of(runs), strict=True)
    ]
    return Performance(players, config.episode.blackouts(runs[0].config.sensors), config.episode.seed)


def view(
    runs: Sequence[Run],
    config: ViewConfig,
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Serve the page until ``stopped`` returns true, or until Ctrl-C."""
    performance = open_performance(runs, config, lambda warning: say(f"warning: {warning}"))
    page = None
    try:
        page = Page(performance, config.host, config.port, newest=config.step is None)
        if page.port != config.port and config.port:
            say(f"port {config.port} is in use; serving on {page.port} instead")
        say(f"open http://{config.host}:{page.port}")
        _play(page, config.fps, stopped)
    finally:
        if page is not None:
            page.close()
        performance.close()


def titles_of(runs: Sequence[Run]) -> list[str]:
    """Return a short, unique name for every run."""
    names = [run.variant for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name}, seed {run.config.seed}" for name, run in zip(names, runs, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} ({'AB'[i]})" for i, name in enumerate(names)]
    return names


def _play(page: Page, rate: float, stopped: Callable[[], bool]) -> None:
    performance = page.performance
    now = time.monotonic()
    pace, meter = Pace(performance.timestep, now), Meter(performance.timestep, now)
    next_frame = next_plot = next_look = now
    while not stopped():
        now = time.monotonic()
        page.process_commands(now)
        if not page.watched:
            # No browser is connected, so neither physics nor policy runs.
            pace.skip(now)
            meter.skip(now)
            time.sleep(0.1)
            continue
        steps = pace.due(now, page.speed) if page.playing else page.steps_asked
        page.steps_asked = 0
        if not page.playing:
            pace.skip(now)
            meter.skip(now)
        for _ in range(steps):
            performance.advance()
        meter.count(steps)
        now = time.monotonic()
        if now >= next_frame:
            page.update_scene()
            next_frame = now + 1.0 / rate
        if now >= next_plot:
            page.update_plots()
            page.update_status(meter.factor(now))
            next_plot = now + FRAMES_PER_PLOT / rate
        if now >= next_look:
            page.update_training()
            _take_newest(page)
            next_look = now + SECONDS_BETWEEN_LOOKS
        time.sleep(max(0.0, min(performance.timestep / max(page.speed, 0.1), next_frame - time.monotonic())))


def _take_newest(page: Page) -> None:
    """Give robots the newest policy of a run that is still training."""
    for i, player in enumerate(page.performance.players):
        steps = shown_steps(player.run)
        if page.newest[i] and steps and steps[-1] > player.env_steps:
            page.load_policy(i, None)


class Meter:
    """Measures the speed relative to real time over the last second or so."""

    WINDOW = 1.0

    def __init__(self, timestep: float, now: float) -> None:
        self._timestep = timestep
        self._since, self._steps, self._factor = now, 0, 0.0

    def count(self, steps: int) -> None:
        self._steps += steps

    def skip(self, now: float) -> None:
        self._since, self._steps = now, 0

    def factor(self, now: float) -> float:
        """Return the seconds of robot time per second of clock time."""
        if now - self._since >= self.WINDOW:
            self._factor = self._steps * self._timestep / (now - self._since)
            self._since, self._steps = now, 0
        return self._factor
