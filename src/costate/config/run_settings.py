"""Settings of a run beside its parts, declared once for Python, the command line and stored configs."""

import dataclasses
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Seed, length and upkeep of a run."""

    seed: int = 0
    """Seed of initial weights, noise, sensor faults and episodes."""
    steps: int | None = None
    """Environment steps; None for the learner's budget on the task: with PPO the paper's, with soft
    actor-critic a million.

    With --resume, the run's new total.
    """
    checkpoint_every: int = 20
    """Iterations between two checkpoints."""
    evaluate_every: int | None = None
    """Environment steps between two evaluations without exploration noise; None for about 2 % of the training
    time, 0 for none.
    """
    diverged: Literal["stop", "slow-down"] = "stop"
    """Reaction to a NaN or infinite loss: stop, or return to the last good checkpoint with half the learning
    rate, a few times.
    """


RUN_SETTINGS = tuple(field.name for field in dataclasses.fields(RunSettings))


def run_settings(holder: RunSettings) -> dict[str, Any]:
    """Return the settings of a config, or of the arguments of a command, by their names."""
    return {name: getattr(holder, name) for name in RUN_SETTINGS}
