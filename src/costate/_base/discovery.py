"""Import every module of a package, so that a new file registers what it defines with no other edit."""

import importlib
import pkgutil
from collections.abc import Iterable


def import_all(package: str, paths: Iterable[str]) -> None:
    for module in pkgutil.iter_modules(paths):
        importlib.import_module(f"{package}.{module.name}")
