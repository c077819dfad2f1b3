"""Weights & Biases, for those who ask for it: the same rows as the metrics file. Nothing is imported or sent unless it was asked for."""

import math
from typing import Any

from costate._base.errors import ConfigError
from costate.config.run_config import to_json
from costate.runs.metrics_log import AbstractLog, Row
from costate.runs.run_directory import Run


class WandbLog(AbstractLog):
    """One run of a project. A run that is resumed continues its curve, because the hash of its first config is its id there."""

    def __init__(self, run: Run, project: str) -> None:
        wandb = load_wandb()
        config = run.config
        self._run: Any = wandb.init(
            project=project,
            # The folder's name tells apart runs of one config that were trained twice.
            id=f"{run.started_as}-{run.path.resolve().name}",
            name=f"{config.task} {run.variant} seed {config.seed}",
            group=f"{config.task} {run.variant}",
            config=to_json(config),
            dir=str(run.path),
            resume="allow",
            # Several seeds that train together are several runs in one process.
            reinit="create_new",
            settings=wandb.Settings(silent=True),
        )

    def write(self, row: Row) -> None:
        known = {name: value for name, value in row.items() if math.isfinite(value)}
        self._run.log(known, step=int(row["env_steps"]))

    def close(self) -> None:
        self._run.finish()


def load_wandb() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(
            "--wandb asks for Weights & Biases, which is not installed. Install it with: pip install 'costate[wandb]', or leave the flag out: "
            "TensorBoard files are always written."
        ) from error
    return wandb
