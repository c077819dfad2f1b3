"""Learners behind one contract.

Packages in this folder, and installed packages with an entry point, register themselves.
"""

from costate._base.discovery import import_all, load_entry_points
from costate.learners.base import DEFAULT_LEARNER as DEFAULT_LEARNER
from costate.learners.base import LEARNERS as LEARNERS
from costate.learners.base import AbstractLearner as AbstractLearner
from costate.learners.base import AnyLearner as AnyLearner
from costate.learners.base import LearnerConfig as LearnerConfig
from costate.learners.base import Setup as Setup
from costate.learners.base import Variant as Variant
from costate.learners.base import learner_for as learner_for

import_all(__name__, __path__)
load_entry_points("costate.learners")


def other_learners() -> tuple[str, ...]:
    """Return the names of all learners but the default one."""
    return tuple(name for name in LEARNERS.names() if name != DEFAULT_LEARNER)
