"""Check for the optional packages of views and films before anything is loaded."""

import importlib.util

from costate._base.errors import ConfigError


def require(what: str, *modules: str) -> None:
    """Raise if a package of the extra ``view`` is missing."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"{what} needs {', '.join(missing)}, which is not installed. Install it with: pip install "
            f"'costate[view]'."
        )
