"""Learners behind one interface, so that training, checkpoints, evaluation and sweeps serve all of them alike."""

from costate.learners.base import AbstractAlgorithm as AbstractAlgorithm
from costate.learners.base import Setup as Setup
from costate.learners.ppo.learner import OnPolicy
from costate.learners.sac.learner import OffPolicy


def algorithm_for(config: Setup) -> AbstractAlgorithm:
    """The learner that a config asks for."""
    return OffPolicy(config) if config.algorithm == "sac" else OnPolicy(config)
