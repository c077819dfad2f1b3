"""What is on stage: one or two robots in the same episode under the same blackouts, and what somebody who watches can do to them."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Float
from costate.envs.visible import AbstractVisibleRobot
from costate.show.player import Moment, Player, timestep_of
from costate.show.sensors import Blackouts, next_dark

# Seconds of the past that are kept to be drawn.
HISTORY = 8.0
# Episodes whose returns are kept.
RETURNS = 3
# Seconds for which a push lasts.
PUSH = 0.2


@dataclasses.dataclass(frozen=True)
class Push:
    """A force on a robot."""

    direction: tuple[float, float, float]
    strength: float
    """In weights of the robot."""


class Performance:
    """Robots side by side. Not safe for threads: one thread calls everything."""

    def __init__(self, players: Sequence[Player], blackouts: Blackouts, seed: int = 0) -> None:
        tasks = {player.run.config.task for player in players}
        if len(tasks) > 1:
            raise ConfigError(
                f"The runs are of different tasks, {' and '.join(sorted(tasks))}, so that they cannot stand side by side. Give two of one task."
            )
        record = players[0].run.config.task_record
        self.players = tuple(players)
        self.blackouts = blackouts
        self.timestep = timestep_of(record)
        self.episode_steps = record.episode_steps
        length = max(2, round(HISTORY / self.timestep))
        self.histories: tuple[collections.deque[Moment], ...] = tuple(
            collections.deque(maxlen=length) for _ in players
        )
        self.returns: collections.deque[tuple[float, ...]] = collections.deque(maxlen=RETURNS)
        """Of the last episodes that came to an end; side by side, one that is over for either is over for both."""
        self.seed = seed
        self.dark = False
        self._by_chance = False
        self._pushed = 0
        self._begin()

    @property
    def step(self) -> int:
        """Control steps since the episode started."""
        return self._step

    @property
    def blind(self) -> tuple[bool, ...]:
        """Whether each robot's policy got nothing of the newest observation; what its picture, its label and its status show alike."""
        return tuple(bool(history) and history[-1].seen == 0.0 for history in self.histories)

    def advance(self) -> None:
        """One control step of every robot; after the last of an episode the next one starts."""
        if self.advance_within():
            self.returns.append(tuple(history[-1].total for history in self.histories))
            self.restart(self.seed + 1)

    def advance_within(self) -> bool:
        """One control step of every robot; true if the episode is over: by itself for any of them, or by its time limit."""
        self._by_chance = next_dark(self.blackouts, self._by_chance, self._step == 0, self._draws)
        self.dark = self._by_chance or self.blackouts.off
        ended = False
        for player, history in zip(self.players, self.histories, strict=True):
            moment, over = player.advance(self.dark)
            history.append(moment)
            ended = ended or over
        self._step += 1
        self._pushed -= 1
        if self._pushed == 0:
            self._release()
        return ended or self._step >= self.episode_steps

    def restart(self, seed: int | None = None) -> None:
        """Start an episode in every robot: the same one once more, or that of another seed."""
        self.seed = self.seed if seed is None else seed
        self._begin()

    def push(self, push: Push) -> None:
        """Push every robot at its heaviest part for a moment; one that draws itself cannot be pushed."""
        for robot in (player.robot for player in self.players):
            if not isinstance(robot, AbstractVisibleRobot):
                continue
            model, data = robot.model, robot.data
            body = heaviest_body(model.body_mass)
            data.xfrc_applied[body, :3] = (
                np.asarray(push.direction) * push.strength * float(model.body_mass.sum()) * 9.81
            )
        self._pushed = max(1, round(PUSH / self.timestep))

    def load(self, which: int, step: int) -> None:
        """Give a robot the policy of another step of its training."""
        self.players[which].load(step)

    def close(self) -> None:
        for player in self.players:
            player.close()

    def _begin(self) -> None:
        self._step = 0
        self._by_chance = False
        # Of its own, so that an episode meets the same blackouts whoever acts in it.
        self._draws = np.random.default_rng(self.seed)
        for player, history in zip(self.players, self.histories, strict=True):
            player.start(self.seed)
            history.clear()
        self._pushed = 0

    def _release(self) -> None:
        for player in self.players:
            player.release()


def heaviest_body(masses: Float[np.ndarray, " N"]) -> int:
    """Number of the body with the largest mass; 0, the world, has none."""
    return int(masses.argmax())


def strongest(history: Sequence[Moment], names: Sequence[str], count: int) -> list[tuple[str, float, float]]:
    """The sensors with the largest co-state of late: their names, and the newest components of memory and critic, each over the largest of its kind.

    Their lengths have no meaning: the co-state loss compares directions.
    """
    if not history:
        return []
    recent = list(history)[-20:]
    size = np.mean(
        [_scaled(moment.remembered) ** 2 + _scaled(moment.expected) ** 2 for moment in recent], axis=0
    )
    order = np.argsort(-size)[:count]
    remembered, expected = _scaled(recent[-1].remembered), _scaled(recent[-1].expected)
    return [(names[i], float(remembered[i]), float(expected[i])) for i in order]


def _scaled(vector: Float[np.ndarray, " O"]) -> Float[np.ndarray, " O"]:
    largest = float(np.abs(vector).max(initial=0.0))
    return vector / largest if largest > 0.0 else vector
