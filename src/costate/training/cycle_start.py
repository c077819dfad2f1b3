"""The start of a cycle, kept during the cycle: a run that is stopped within it is saved there.

Environments cannot be saved in the middle of an episode, so a run can only be resumed exactly between two
cycles.
"""

import dataclasses

import equinox as eqx
import numpy as np

from costate._base.types import Array, Int
from costate.learners.base import AnyLearner
from costate.learners.replay import Replay
from costate.learners.states import LearnerState
from costate.training.course import Position


@dataclasses.dataclass(frozen=True)
class CycleStart:
    """The parts of a position that a later checkpoint of the start of a cycle needs."""

    iteration: int
    restarts: np.ndarray
    """Episodes started before the cycle in each environment of all seeds."""
    states: LearnerState
    """The states, without the rows of the replay unless ``written`` is None."""
    written: Int[Array, " N"] | None
    """Rows written so far to the replay of each seed; None if ``states`` are complete."""


def remember_start(learner: AnyLearner, position: Position) -> CycleStart:
    """Keep ``position``, whose episodes have just been started.

    A replay is only ever appended to, so its rows need no copy: those that the next checkpoint has to write
    are still in the ring at the end of the cycle, and those before them are on disk. The whole ring is kept
    only if a cycle overwrites rows that were not saved yet.
    """
    states, replay = learner.detach_replay(position.states)
    restarts = position.restarts - 1
    if replay is None or _overwrites_unsaved(learner, position, replay):
        return CycleStart(position.iteration, restarts, position.states, None)
    return CycleStart(position.iteration, restarts, states, replay.written)


def _overwrites_unsaved(learner: AnyLearner, position: Position, replay: Replay) -> bool:
    """Return whether the cycle overwrites rows written since the last checkpoint.

    The seeds are the first axis of the replay.
    """
    config = learner.config
    iterations = position.iteration + config.cycle - position.saved[0].iteration
    return iterations * config.rollout.rollout_length > replay.rows.reward.shape[1]


def back_at_start(learner: AnyLearner, start: CycleStart, position: Position) -> Position:
    """Go back from ``position``, in the middle of a cycle, to its start.

    The result can be saved, but not trained from.
    """
    states = start.states
    if start.written is not None:
        _, replay = learner.detach_replay(position.states)
        assert replay is not None, "rows that were left out are in the newest replay"
        states = learner.attach_replay(
            states, eqx.tree_at(lambda replay: replay.written, replay, start.written)
        )
    return Position(start.iteration, start.restarts, states, None, position.saved)
