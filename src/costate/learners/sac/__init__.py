"""Recurrent soft actor-critic."""

from costate.learners.sac.config import SACConfig as SACConfig
