"""Errors a user can act on: one paragraph that names the thing, the value received, the values allowed and the next action."""


class CostateError(Exception):
    """Base of every error that the command line prints without a traceback."""


class UsageError(CostateError):
    """A command line that cannot be read."""


class ConfigError(CostateError, ValueError):
    """A setting that cannot work."""


class RunDirectoryError(CostateError):
    """A run directory that is missing, in the way, or not a run."""


class CheckpointError(CostateError):
    """A checkpoint that cannot be read or written."""


class DivergedError(CostateError):
    """Training produced a number that is not finite."""


class SimulationError(CostateError):
    """An environment that raised an error, or showed something that nothing can be learnt from."""


class StorageError(CostateError):
    """A file that could not be written."""


class BundleError(CostateError, ValueError):
    """A policy bundle that is damaged, hostile, or from another version."""


class MisuseError(CostateError, ValueError):
    """A call that a policy cannot answer."""


class ExportError(CostateError):
    """A policy that could not be exported, or whose exported form does not act like it."""
