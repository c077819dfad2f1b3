"""Proximal policy optimisation, as in the paper."""

from costate.learners.ppo.config import PPOConfig as PPOConfig
