"""Settings of a view and of a film, which are also the options of their commands."""

import dataclasses
import math
from typing import Annotated, Literal

import tyro

from costate._base.errors import ConfigError
from costate.config.run_config import check_seed
from costate.envs.sensors import SensorConfig
from costate.show.sensors import Blackouts

LARGEST_SIDE = 4096
PORT = 8080


@dataclasses.dataclass(frozen=True)
class EpisodeConfig:
    """The episodes of the robots."""

    dropout: float | None = None
    """Probability of blackouts, as an initial value in a view; that of training if not given."""
    burst_length: float | None = None
    """Mean length of blackouts in steps, 0 to draw each step independently; that of training if not given."""
    seed: int = 0
    """Seed of the first episode."""

    def __post_init__(self) -> None:
        if self.dropout is not None and not 0.0 <= self.dropout <= 1.0:
            raise ConfigError(f"dropout is {self.dropout}, but a probability lies between 0 and 1.")
        if self.burst_length is not None and not 0.0 <= self.burst_length < math.inf:
            raise ConfigError(
                f"burst_length is {self.burst_length}, but it must be a finite mean number of steps. Use 0 "
                f"to draw every step independently."
            )
        check_seed(self.seed)

    def blackouts(self, trained: SensorConfig) -> Blackouts:
        """Return the blackouts for a policy that was trained with these sensors."""
        burst = trained.burst_length if self.burst_length is None else self.burst_length
        return Blackouts(trained.dropout if self.dropout is None else self.dropout, burst or None)


@dataclasses.dataclass(frozen=True)
class ViewConfig:
    """Settings of the view."""

    episode: Annotated[EpisodeConfig, tyro.conf.arg(name="")] = EpisodeConfig()
    step: int | Literal["best"] | None = None
    """Training steps of the initial policy, or `best`; None for the newest."""
    host: str = "127.0.0.1"
    """Address to serve on; with any but the default, everyone who can reach that address can watch."""
    port: int = PORT
    """Port to serve on, or the first free one after it."""
    fps: float = 30.0
    """Largest number of frames per second."""

    def __post_init__(self) -> None:
        check_port(self.port)
        if not 0.0 < self.fps <= 100.0:
            raise ConfigError(
                f"fps is {self.fps}, but it must lie between 0 and 100. A browser draws at most 60."
            )


@dataclasses.dataclass(frozen=True)
class FilmConfig:
    """Settings of the film."""

    episode: Annotated[EpisodeConfig, tyro.conf.arg(name="")] = EpisodeConfig()
    seconds: float = 10.0
    """Length in seconds of robot time."""
    fps: int = 25
    """Frames per second."""
    width: int = 480
    """Width of each tile in pixels."""
    height: int = 360
    """Height of each tile in pixels."""

    def __post_init__(self) -> None:
        if not 0.0 < self.seconds < math.inf:
            raise ConfigError(
                f"seconds is {self.seconds}, but it must be positive. Give a number such as 10."
            )
        if not 1 <= self.fps <= 100:
            raise ConfigError(f"fps is {self.fps}, but it must lie between 1 and 100. Films usually have 25.")
        for name in ("width", "height"):
            size = getattr(self, name)
            if not 64 <= size <= LARGEST_SIDE or size % 2:
                raise ConfigError(
                    f"{name} is {size}, but it must be an even number of pixels between 64 and "
                    f"{LARGEST_SIDE}."
                )


def check_port(port: int) -> None:
    """Raise unless the port number is valid."""
    if not 0 <= port < 2**16:
        raise ConfigError(f"port is {port}, but ports are numbers from 0 to 65535. Use 0 for any free port.")
