"""Import the modules of a package on first access to the attribute."""

import importlib
import importlib.util
import pkgutil
import sys
from types import ModuleType


def lazy_module(package: str, name: str) -> ModuleType:
    """Import the public module ``name`` of a package.

    Raise an AttributeError if there is none, as a module's ``__getattr__`` must.
    """
    if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(f"{package}.{name}")


def public_modules(package: str) -> set[str]:
    """Return the names that :func:`lazy_module` finds."""
    return {
        module.name
        for module in pkgutil.iter_modules(sys.modules[package].__path__)
        if not module.name.startswith("_")
    }
