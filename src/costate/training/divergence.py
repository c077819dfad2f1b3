"""Detect NaN or Inf during training, report it, and optionally resume at half the learning rate."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from costate._base.errors import DivergedError, SimulationError
from costate.envs.base import TimeStep
from costate.learners import learner_for
from costate.learners.states import Experience
from costate.runs.checkpoint import folders
from costate.runs.metrics_log import Row
from costate.runs.run_directory import Run
from costate.training.group import Group, load_group, save_group
from costate.training.soundness import all_finite, first_non_finite, from_environments

# Most times that the learning rate is halved before a run gives up: down to a sixteenth.
MOST_SLOWDOWNS = 4


def check_experience(group: Group, iteration: int, experience: Experience, last: TimeStep) -> None:
    """Raise if the rollout of ``iteration`` holds NaN or Inf, before anything is learnt from it."""
    rows = learner_for(group.config).collected(experience)
    if bool(all_finite(from_environments(rows, last))):
        return
    found = first_non_finite(rows, last)
    assert found is not None, "something was not finite"
    run, steps = group.runs[found.seed], group.config.rollout.steps_per_iteration
    span = f"environment steps {(iteration - 1) * steps:,} to {iteration * steps:,}"
    where = f"In iteration {iteration} of {run.path} ({span}) {found}."
    kept = f"The last good checkpoint is {folders(run.checkpoints)[-1]}."
    if found.what == "control":
        raise DivergedError(f"{where} {kept} {ADVICE}")
    raise SimulationError(
        f"{where} Nothing was learnt from it. {kept} Fix the environment, then: costate train --resume "
        f"{run.path}"
    )


ADVICE = (
    "Lower --learning-rate or --max-gradient-norm and start again, "
    "or let a run lower its learning rate by itself with --diverged slow-down."
)


def diverged_runs(group: Group, rows: Sequence[Row]) -> dict[Run, list[str]]:
    """Return the names of the losses that are not finite, for each run that has any."""
    return {run: names for run, row in zip(group.runs, rows, strict=True) if (names := _not_finite(row))}


def _not_finite(row: Row) -> list[str]:
    return [name for name, value in row.items() if name.startswith("losses/") and not math.isfinite(value)]


def divergence(group: Group, broken: Mapping[Run, list[str]], iteration: int) -> DivergedError:
    """Return the error that reports losses that are not finite."""
    run, names = next(iter(broken.items()))
    healthy = [str(each.config.seed) for each in group.runs if each not in broken]
    which = f" of seed {run.config.seed}" if len(group.runs) > 1 else ""
    others = f" Seeds {', '.join(healthy)} did not diverge and can be resumed one by one." if healthy else ""
    return DivergedError(
        f"Training{which} diverged in iteration {iteration}: {', '.join(names)} not finite, although all "
        "numbers from the environment are. The last good checkpoint is "
        f"{folders(run.checkpoints)[-1]}.{others} {ADVICE}"
    )


def slow_down(group: Group, say: Callable[[str], None], error: DivergedError) -> bool:
    """Halve the learning rate in the last good checkpoints, so that training resumes from there.

    Return False if the config does not ask for it, or if it was halved too often.
    """
    if group.config.diverged != "slow-down":
        return False
    say(str(error))
    saved, states = load_group(group.runs, lambda warning: say(f"warning: {warning}"))
    times = max(checkpoint.slowdowns for checkpoint in saved) + 1
    if times > MOST_SLOWDOWNS:
        say(f"the learning rate was halved {MOST_SLOWDOWNS} times already, which did not help")
        return False
    slower = [dataclasses.replace(checkpoint, slowdowns=times) for checkpoint in saved]
    save_group(
        group,
        slower,
        saved[0].iteration,
        np.concatenate([checkpoint.restarts for checkpoint in saved]),
        states,
    )
    say(f"back to step {saved[0].env_steps:,}, with the learning rate times {0.5**times:g}")
    return True
