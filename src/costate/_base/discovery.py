"""Import modules that register parts: the files of a package, and the entry points of other packages."""

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterable

from costate._base.errors import ConfigError


def import_all(package: str, paths: Iterable[str]) -> None:
    """Import every module of a package. A new file then registers its parts without another edit."""
    for module in pkgutil.iter_modules(paths):
        importlib.import_module(f"{package}.{module.name}")


def load_entry_points(group: str) -> None:
    """Import the entry points that installed packages declare under ``group``.

    This lets a package add parts without a fork of this library.
    """
    for point in importlib.metadata.entry_points(group=group):
        try:
            point.load()
        except Exception as error:
            owner = "a package" if point.dist is None else f"the package {point.dist.name}"
            raise ConfigError(
                f"The entry point {point.name!r} ({point.value}) of {group}, which {owner} declares, cannot "
                "be "
                f"imported: {type(error).__name__}: {error}. Repair or uninstall {owner}."
            ) from error
