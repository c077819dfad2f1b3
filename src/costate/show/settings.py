"""What can be chosen for a view and for a film; also the options of their commands."""

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
    """What happens to the robots."""

    dropout: float | None = None
    """Probability of blackouts, at first where they can be changed; that of training if not given."""
    burst_length: float | None = None
    """Mean number of steps of a blackout, 0 to draw every step by itself; that of training if not given."""
    seed: int = 0
    """Of the first episode."""

    def __post_init__(self) -> None:
        if self.dropout is not None and not 0.0 <= self.dropout <= 1.0:
            raise ConfigError(f"dropout is {self.dropout}, but a probability lies between 0 and 1.")
        if self.burst_length is not None and not 0.0 <= self.burst_length < math.inf:
            raise ConfigError(
                f"burst_length is {self.burst_length}, but it is a mean number of steps. Use 0 to draw every step by itself."
            )
        check_seed(self.seed)

    def blackouts(self, trained: SensorConfig) -> Blackouts:
        """Of a policy that was trained with these sensors."""
        burst = trained.burst_length if self.burst_length is None else self.burst_length
        return Blackouts(trained.dropout if self.dropout is None else self.dropout, burst or None)


@dataclasses.dataclass(frozen=True)
class ViewConfig:
    """How to look."""

    episode: Annotated[EpisodeConfig, tyro.conf.arg(name="")] = EpisodeConfig()
    step: int | Literal["best"] | None = None
    """Training steps of the policy to start with, or `best`; None for the newest."""
    host: str = "127.0.0.1"
    """Address to serve on. Only this machine can look unless it is another; everybody who can reach that address can then look."""
    port: int = PORT
    """Port to serve on, or the first free one after it."""
    fps: float = 30.0
    """Pictures in a second, at most."""

    def __post_init__(self) -> None:
        check_port(self.port)
        if not 0.0 < self.fps <= 100.0:
            raise ConfigError(
                f"fps is {self.fps}, but it must lie between 0 and 100. A browser draws no more than 60."
            )


@dataclasses.dataclass(frozen=True)
class FilmConfig:
    """What to film."""

    episode: Annotated[EpisodeConfig, tyro.conf.arg(name="")] = EpisodeConfig()
    seconds: float = 10.0
    """Length, in the robot's time."""
    fps: int = 25
    """Pictures in a second."""
    width: int = 480
    """Of one policy's picture, in pixels."""
    height: int = 360
    """Of one policy's picture, in pixels."""

    def __post_init__(self) -> None:
        if not 0.0 < self.seconds < math.inf:
            raise ConfigError(
                f"seconds is {self.seconds}, but a film has a length. Give a positive number, such as 10."
            )
        if not 1 <= self.fps <= 100:
            raise ConfigError(f"fps is {self.fps}, but it must lie between 1 and 100. 25 is what films have.")
        for name in ("width", "height"):
            size = getattr(self, name)
            if not 64 <= size <= LARGEST_SIDE or size % 2:
                raise ConfigError(
                    f"{name} is {size}, but it must be an even number of pixels between 64 and {LARGEST_SIDE}."
                )


def check_port(port: int) -> None:
    """Raise unless it can be served on."""
    if not 0 <= port < 2**16:
        raise ConfigError(f"port is {port}, but ports are numbers from 0 to 65535. 0 takes any that is free.")
