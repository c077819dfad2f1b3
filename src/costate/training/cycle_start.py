"""The start of a cycle, remembered while the cycle goes on: where a run is saved that is stopped before the cycle is over.

Environments cannot be saved in the middle of an episode, so a run continues exactly only from between two cycles.
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
    """What a checkpoint of the start of a cycle needs later on."""

    iteration: int
    restarts: np.ndarray
    """Episodes started before the cycle in each environment of all seeds."""
    states: LearnerState
    """Without the rows of the replay, unless ``written`` is None."""
    written: Int[Array, " N"] | None
    """Rows that were ever written to the replay of each seed; None if ``states`` are whole."""


def remember_start(learner: AnyLearner, position: Position) -> CycleStart:
    """Remember ``position``, whose episodes have just been started.

    A replay is only ever appended to, so its rows need no copy: those that the next checkpoint has to write are still in the ring at the end of the
    cycle, and those before them are on disk. Only where a cycle overwrites rows that were not saved yet is the whole ring kept.
    """
    states, replay = learner.detach_replay(position.states)
    restarts = position.restarts - 1
    if replay is None or _overwrites_unsaved(learner, position, replay):
        return CycleStart(position.iteration, restarts, position.states, None)
    return CycleStart(position.iteration, restarts, states, replay.written)


def _overwrites_unsaved(learner: AnyLearner, position: Position, replay: Replay) -> bool:
    """Whether the ring forgets rows of after the last checkpoint before the cycle is over; the seeds are its first axis."""
    config = learner.config
    iterations = position.iteration + config.cycle - position.saved[0].iteration
    return iterations * config.rollout.rollout_length > replay.rows.reward.shape[1]


def back_at_start(learner: AnyLearner, start: CycleStart, position: Position) -> Position:
    """Go back from ``position``, in the middle of a cycle, to its start. To be saved and not to be trained from."""
    states = start.states
    if start.written is not None:
        _, replay = learner.detach_replay(position.states)
        assert replay is not None, "rows that were left out are in the newest replay"
        states = learner.attach_replay(
            states, eqx.tree_at(lambda replay: replay.written, replay, start.written)
        )
    return Position(start.iteration, start.restarts, states, None, position.saved)
