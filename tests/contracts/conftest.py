"""Test parts in files of the user's too.

For example ``COSTATE_TASKS=mine.py python -m pytest tests/contracts -k mine``.
"""

from costate._base.task_files import load_task_files

# Before the tests are collected, which ask the registries for what there is.
load_task_files()
