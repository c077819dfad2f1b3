"""One or two robots in the same episode with the same blackouts, and the actions of a viewer on them."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Float
from costate.envs.visible import AbstractVisibleRobot
from costate.show.player import Moment, Player, timestep_of
from costate.show.sensors import Blackouts, next_dark

# Seconds of the past that are kept for plots.
HISTORY = 8.0
# Number of past episodes whose returns are kept.
RETURNS = 3
# Seconds for which a push lasts.
PUSH = 0.2


@dataclasses.dataclass(frozen=True)
class Push:
    """A force on a robot."""

    direction: tuple[float, float, float]
    strength: float
    """Force in weights of the robot."""


class Performance:
    """Robots side by side. Not thread-safe: one thread makes all calls."""

    def __init__(self, players: Sequence[Player], blackouts: Blackouts, seed: int = 0) -> None:
        tasks = {player.run.config.task for player in players}
        if len(tasks) > 1:
            raise ConfigError(
                f"The runs are of different tasks, {' and '.join(sorted(tasks))}, so they cannot be shown "
                f"side by side. Give two runs of one task."
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
        """Returns of the last finished episodes. Side by side, an episode ends for both robots at once."""
        self.seed = seed
        self.dark = False
        self._by_chance = False
        self._pushed = 0
        self._begin()

    @property
    def step(self) -> int:
        """Number of control steps since the episode started."""
        return self._step

    @property
    def blind(self) -> tuple[bool, ...]:
        """For each robot, true if its policy received nothing of the newest observation."""
        return tuple(bool(history) and history[-1].seen == 0.0 for history in self.histories)

    def advance(self) -> None:
        """Take one control step in every robot. After the last step of an episode, start the next one."""
        if self.advance_within():
            self.returns.append(tuple(history[-1].total for history in self.histories))
            self.restart(self.seed + 1)

    def advance_within(self) -> bool:
        """Take one control step in every robot, and return whether the episode is over.

        It is over if it terminated for any robot, or at its time limit.
        """
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
        """Start an episode in every robot: the same one again, or that of another seed."""
        self.seed = self.seed if seed is None else seed
        self._begin()

    def push(self, push: Push) -> None:
        """Push every robot at its heaviest body for a moment. A robot that draws itself cannot be pushed."""
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
        """Give a robot the policy of another training step."""
        self.players[which].load(step)

    def close(self) -> None:
        for player in self.players:
            player.close()

    def _begin(self) -> None:
        self._step = 0
        self._by_chance = False
        # A separate generator, so that an episode has the same blackouts whatever the policy does.
        self._draws = np.random.default_rng(self.seed)
        for player, history in zip(self.players, self.histories, strict=True):
            player.start(self.seed)
            history.clear()
        self._pushed = 0

    def _release(self) -> None:
        for player in self.players:
            player.release()


def heaviest_body(masses: Float[np.ndarray, " N"]) -> int:
    """Return the index of the body with the largest mass. The world, body 0, has none."""
    return int(masses.argmax())


def strongest(history: Sequence[Moment], names: Sequence[str], count: int) -> list[tuple[str, float, float]]:
    """Return the sensors with the largest recent co-state, with its components in memory and critic.

    The components are those of the newest moment, each relative to the largest of its kind, because the
    co-state loss compares only directions.
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
