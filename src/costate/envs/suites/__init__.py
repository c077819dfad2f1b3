"""The tasks by where they come from. A file here registers records in ``TASKS``; it is all that another engine's tasks need to be found."""

from costate._base.discovery import import_all
from costate.envs.tasks import TASKS

import_all(__name__, __path__)

BUILT_IN = frozenset(TASKS.names())
"""The tasks that come with the library. Others of the same name cannot be registered."""
