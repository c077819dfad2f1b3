"""Load a trained policy in one line, from a run or from a bundle."""

import os
import pathlib
from typing import TYPE_CHECKING

from costate._base.errors import BundleError
from costate.deploy.bundle import read
from costate.deploy.policy import Policy

if TYPE_CHECKING:
    from costate.runs.run_directory import Run
    from costate.trained.trained import Point


def load(source: "Run | str | os.PathLike[str]", step: "Point" = None) -> Policy:
    """Load the policy of a run's newest checkpoint, or of a bundle file.

    A bundle needs neither the run nor an engine. ``step`` names another checkpoint or milestone of a run, or
    "best" for the best policy of those evaluated during training.
    """
    if isinstance(source, str | os.PathLike) and step is None and not pathlib.Path(source).is_dir():
        if not pathlib.Path(source).exists():
            raise BundleError(
                f"There is no {os.fspath(source)}. "
                "Give the folder of a run, or the bundle that `costate export --format bundle` wrote."
            )
        return Policy(read(source))
    # Imported here, because reading a bundle needs none of it.
    from costate.trained.exporting import load_policy

    return load_policy(source, step)
