"""Task records by origin.

Each file registers its records in ``TASKS``, which is all that a new engine needs.
"""

from costate._base.discovery import import_all
from costate.envs.tasks import TASKS

import_all(__name__, __path__)

BUILT_IN = frozenset(TASKS.names())
"""Names of the built-in tasks, which no other task may take."""
