"""Errors that a user can act on.

A message is one paragraph: the thing, the value received, the values allowed, and what to do next.
"""


class CostateError(Exception):
    """Base of all errors that the command line prints without a traceback."""


class UsageError(CostateError):
    """A command line that cannot be parsed."""


class ConfigError(CostateError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class RunDirectoryError(CostateError):
    """A run directory that is missing, is in use, already exists, or is not a run."""


class CheckpointError(CostateError):
    """A checkpoint that cannot be read or written."""


class DivergedError(CostateError):
    """Training produced NaN or Inf."""


class SimulationError(CostateError):
    """An environment that raised an error, or returned values that nothing can be learned from."""


class StorageError(CostateError):
    """A file that could not be written."""


class BundleError(CostateError, ValueError):
    """A policy bundle that is damaged, hostile, or from another version."""


class MisuseError(CostateError, ValueError):
    """A call that a policy cannot answer, such as one with an observation of the wrong shape."""


class ExportError(CostateError):
    """A policy that could not be exported, or whose exported form computes other controls."""
