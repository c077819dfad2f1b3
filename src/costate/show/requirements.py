"""What looking needs beside the library itself, asked for before anything is loaded."""

import importlib.util

from costate._base.errors import ConfigError


def require(what: str, *modules: str) -> None:
    """Raise if a package is missing that comes with the extra ``view``."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"{what} needs {', '.join(missing)}, which is not installed. Install it with: pip install 'costate[view]'."
        )
