"""``costate evaluate``: whole episodes with a trained policy."""

import dataclasses
import math
import pathlib
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """Play whole episodes with a trained policy: deterministic actions, frozen normaliser."""

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    dropout: float | None = None
    """Probability that an observation is replaced by zeros; None for the one used in training."""
    episodes: int = 100
    """Episodes to play."""
    seed: int = 0
    """Seed of episodes and sensor faults."""
    step: int | None = None
    """Training step of the checkpoint; None for the newest."""


def run(arguments: list[str]) -> int:
    """Play whole episodes with a trained policy."""
    from costate.evaluation import evaluate, regret

    parsed = tyro.cli(EvaluateArguments, prog="costate evaluate", args=arguments)
    print(f"evaluating {parsed.run}: {parsed.episodes} episodes", flush=True)
    result, path = evaluate(
        parsed.run, dropout=parsed.dropout, episodes=parsed.episodes, seed=parsed.seed, step=parsed.step, warn=lambda text: print(f"warning: {text}")
    )
    low, high = result.quartiles
    print(f"{result.task} at {result.dropout:.0%} blackout, {len(result.returns)} episodes, checkpoint of step {result.env_steps:,}")
    print(f"return: mean {result.mean:.1f}, median {result.median:.1f}, interquartile range {low:.1f} to {high:.1f}")
    known = regret(result)
    if known is not None:
        error = f" ± {known.standard_error:.1%}" if math.isfinite(known.standard_error) else ""
        print(f"optimum: {known.optimum:.1f} (known), regret {known.share:.1%}{error}")
    print(f"written: {path}")
    return 0
