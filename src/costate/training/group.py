"""Runs that train together: saved side by side, and resumed from a checkpoint that all of them have."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence

import jax
import numpy as np

from costate._base.counted import counted
from costate._base.errors import CheckpointError, StorageError
from costate.config.run_config import RunConfig, stored
from costate.learners import learner_for
from costate.learners.sharding import DeviceGrid
from costate.learners.states import LearnerState
from costate.runs.checkpoint import (
    Checkpoint,
    folders,
    foreign_to_checkpoint,
    load,
    load_latest,
    recover,
    remove_checkpoint,
    save,
    save_milestone,
    steps_of,
)
from costate.runs.run_directory import CONFIG_FILE, Run
from costate.training.programs import join_seeds, split_seeds, state_template

# Milestones of a run, evenly spaced, beside its start.
MILESTONES = 10


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that train together and differ only in their seed."""

    runs: tuple[Run, ...]
    grid: DeviceGrid
    wandb: str | None = None
    """Project at Weights & Biases for the metrics; None for local files only."""
    elsewhere: tuple[str, ...] = ()
    """Differences between the machine, devices or seeds and those that the runs began with, as sentences."""

    @property
    def config(self) -> RunConfig:
        """The config that the runs share, up to the seed."""
        return self.runs[0].config

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.config.seed for run in self.runs)


def describe(run: Run, seeds: Sequence[int] = ()) -> str:
    """Describe in one line what will run."""
    config = run.config
    which = f"seeds {', '.join(map(str, seeds))} together" if len(seeds) > 1 else f"seed {config.seed}"
    return (
        f"{run.variant} on {config.task}: {config.final_steps:,} steps "
        f"({counted(config.iterations, 'iteration')}), {config.sensors}, c₃ = {config.costate_coef:g}, "
        f"{which}"
    )


def first_checkpoints(runs: Sequence[Run]) -> list[Checkpoint]:
    """Return the checkpoints of the start of training."""
    return [Checkpoint(0, 0, stored(run.config), (0,) * run.config.rollout.environments) for run in runs]


def save_group(
    group: Group,
    before: Sequence[Checkpoint],
    iteration: int,
    restarts: np.ndarray,
    states: LearnerState,
    seeds: Sequence[int] | None = None,
) -> list[Checkpoint]:
    """Save a checkpoint of each run, or of those with the given seeds.

    ``before`` are their previous checkpoints.
    """
    learner = learner_for(group.config)
    env_steps = iteration * group.config.rollout.steps_per_iteration
    counts = np.split(restarts, len(group.runs))
    saved, failures = [], []
    for run, old, state, own in zip(
        group.runs, before, split_seeds(states, len(group.runs)), counts, strict=True
    ):
        if seeds is not None and run.config.seed not in seeds:
            continue
        checkpoint = Checkpoint(
            iteration, env_steps, stored(run.config), tuple(map(int, own)), old.replay, old.slowdowns
        )
        _check_exists(run)
        try:
            if is_milestone(old.iteration, iteration, run.config.iterations):
                # Before the checkpoint: a milestone that is too new is removed when the run is resumed, but a
                # missing one would never be made up.
                save_milestone(run.milestones, checkpoint, learner.insight(state))
            saved.append(save(run.checkpoints, checkpoint, *learner.detach_replay(state)))
        except CheckpointError as error:
            # Raised after the other seeds are saved.
            failures.append(error)
    if failures:
        raise failures[0]
    return saved


def save_best(
    group: Group, index: int, iteration: int, restarts: np.ndarray, states: LearnerState, slowdowns: int
) -> None:
    """Save one run's policy as its best so far, in place of the former best."""
    run, config = group.runs[index], group.config
    _check_exists(run)
    env_steps = iteration * config.rollout.steps_per_iteration
    own = tuple(map(int, np.split(restarts, len(group.runs))[index]))
    insight = jax.tree.map(lambda leaf: leaf[index], jax.vmap(learner_for(config).insight)(states))
    save_milestone(
        run.best, Checkpoint(iteration, env_steps, stored(run.config), own, slowdowns=slowdowns), insight
    )
    for folder in folders(run.best):
        if steps_of(folder) != env_steps and not foreign_to_checkpoint(folder):
            remove_checkpoint(folder)


def _check_exists(run: Run) -> None:
    if not (run.path / CONFIG_FILE).is_file():
        # Writing would make a new folder that looks like a run but is not one.
        raise StorageError(
            f"{run.path} was deleted or replaced while it was trained, so nothing more is written there. "
            "Start it again."
        )


def is_milestone(before: int, iteration: int, iterations: int) -> bool:
    """Return whether a checkpoint is the start of a run, or the first after another tenth of it.

    ``before`` is the iteration of the previous checkpoint.
    """
    return iteration == 0 or MILESTONES * iteration // iterations > MILESTONES * before // iterations


def load_group(runs: Sequence[Run], warn: Callable[[str], None]) -> tuple[list[Checkpoint], LearnerState]:
    """Load the newest readable checkpoints that all runs have.

    The states have the seeds as the first axis.
    """
    learner = learner_for(runs[0].config)
    template, replay = learner.detach_replay(state_template(runs[0].config))
    for run in runs:
        for directory in (run.checkpoints, run.milestones):
            recover(directory)
    if len(runs) == 1:
        checkpoint, state, remembered = load_latest(
            runs[0].checkpoints,
            runs[0].config,
            template,
            warn,
            replay,
            functools.partial(check_between_episodes, runs[0].config),
        )
        _go_back(runs, f"step_{checkpoint.env_steps:012d}", warn)
        return [checkpoint], join_seeds(learner.attach_replay(state, remembered))
    common = set.intersection(*({folder.name for folder in folders(run.checkpoints)} for run in runs))
    for name in sorted(common, reverse=True):
        try:
            check_between_episodes(runs[0].config, runs[0].checkpoints / name)
            loaded = [load(run.checkpoints / name, run.config, template, replay) for run in runs]
        except CheckpointError as error:
            warn(f"{error} Falling back to an older one.")
            continue
        _go_back(runs, name, warn)
        return [checkpoint for checkpoint, _, _ in loaded], join_seeds(
            *(learner.attach_replay(state, replay) for _, state, replay in loaded)
        )
    steps = "; ".join(
        f"{run.path}: {', '.join(folder.name for folder in folders(run.checkpoints)) or 'none'}"
        for run in runs
    )
    raise CheckpointError(f"The runs have no usable checkpoint in common ({steps}). Resume them one by one.")


def check_between_episodes(config: RunConfig, folder: pathlib.Path) -> None:
    """Raise if a run of this length cannot be resumed from a checkpoint.

    A run may end in the middle of episodes, whose state is not saved. A longer run is resumed from before
    them.
    """
    steps = steps_of(folder)
    if steps != config.final_steps and steps // config.rollout.steps_per_iteration % config.cycle:
        raise CheckpointError(
            f"{folder} was saved in the middle of episodes, because the run ended there, so a longer run "
            "cannot be resumed from it."
        )


def _go_back(runs: Sequence[Run], name: str, warn: Callable[[str], None]) -> None:
    """Remove what some runs saved after the common checkpoint: it will be computed again."""
    for run in runs:
        later = [folder for folder in folders(run.checkpoints) if folder.name > name]
        if later:
            warn(f"{run.path} goes back from {later[-1].name} to {name}.")
        for folder in [*later, *(folder for folder in folders(run.milestones) if folder.name > name)]:
            remove_checkpoint(folder)
