"""Default of settings that the learner or the task decides."""

from typing import Any

UNDECIDED: Any = None
"""Placeholder until the config of a run fills the setting in.

Its type is Any, since every reader of a run's config finds a decided value.
"""
