"""Learners behind one interface, so that training, checkpoints, evaluation and sweeps serve all of them alike."""

from costate.algorithms.base import AbstractAlgorithm as AbstractAlgorithm
from costate.algorithms.base import Setup as Setup
from costate.algorithms.off_policy import OffPolicy
from costate.algorithms.on_policy import OnPolicy


def algorithm_for(config: Setup) -> AbstractAlgorithm:
    """The learner that a config asks for."""
    return OffPolicy(config) if config.algorithm == "sac" else OnPolicy(config)
