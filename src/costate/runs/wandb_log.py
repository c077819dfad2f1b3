"""Log metrics to Weights & Biases, with the rows of the metrics file.

Nothing is imported or sent unless the user asks for it.
"""

import math
from typing import Any

from costate._base.errors import ConfigError
from costate.config.run_config import to_json
from costate.runs.metrics_log import AbstractLog, Row
from costate.runs.run_directory import Run


class WandbLog(AbstractLog):
    """One run of a Weights & Biases project.

    A resumed run continues its curve, because its id is the hash of its first config.
    """

    def __init__(self, run: Run, project: str) -> None:
        wandb = load_wandb()
        config = run.config
        self._run: Any = wandb.init(
            project=project,
            # The folder's name distinguishes runs of one config that was trained twice.
            id=f"{run.started_as}-{run.path.resolve().name}",
            name=f"{config.task} {run.variant} seed {config.seed}",
            group=f"{config.task} {run.variant}",
            config=to_json(config),
            dir=str(run.path),
            resume="allow",
            # Seeds that train together are several runs in one process.
            reinit="create_new",
            settings=wandb.Settings(silent=True),
        )

    def write(self, row: Row) -> None:
        known = {name: value for name, value in row.items() if math.isfinite(value)}
        self._run.log(known, step=int(row["env_steps"]))

    def close(self) -> None:
        self._run.finish()


def load_wandb() -> Any:
    """Import wandb, or raise an error that says how to install it."""
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(
            "--wandb needs Weights & Biases, which is not installed. Install it with: pip install "
            "'costate[wandb]', or leave the flag out: TensorBoard files are always written."
        ) from error
    return wandb
