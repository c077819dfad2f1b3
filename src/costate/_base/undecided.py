"""The default of settings that are decided by others: by the learner, or by the task."""

from typing import Any

UNDECIDED: Any = None
"""What a setting is until the config of a run fills it in. Typed as anything, since every reader of a run finds it decided."""
