"""Errors a user can act on: one paragraph that names the thing, the value received, the values allowed and the next action."""


class CostateError(Exception):
    """Base of every error that the command line prints without a traceback."""


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
