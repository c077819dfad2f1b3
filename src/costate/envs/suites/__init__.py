"""The tasks by where they come from. A file here registers records in ``TASKS``; it is all that another engine's tasks need to be found."""

from costate._discovery import import_all

import_all(__name__, __path__)
