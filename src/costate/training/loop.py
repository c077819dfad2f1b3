"""The host loop: train and resume runs, alone or several seeds together.

A single run is a group of one seed.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from costate._base.errors import ConfigError, DivergedError, SimulationError, StorageError
from costate.config.run_config import RunConfig
from costate.envs.base import AbstractEnv
from costate.envs.factory import make_env
from costate.learners import learner_for
from costate.learners.sharding import DeviceGrid
from costate.learners.states import LearnerState
from costate.runs.checkpoint import Checkpoint
from costate.runs.interrupts import StopRequest, stop_requests
from costate.runs.machine import describe_machine, machine_changes
from costate.runs.metrics_log import AbstractLog, MetricsLog, Row
from costate.runs.run_directory import Run, check_free, create_run, held, open_run, recover_run
from costate.runs.sentinel import computing
from costate.runs.wandb_log import WandbLog, load_wandb
from costate.training.bookkeeping import Bookkeeper, draw
from costate.training.console import AbstractReporter, SilentReporter
from costate.training.continuation import check_alike, check_edited, note, with_changes
from costate.training.course import Position, advance, compile_at, start_cycle
from costate.training.cycle_start import CycleStart, back_at_start, remember_start
from costate.training.divergence import diverged_runs, divergence, slow_down
from costate.training.group import Group, describe, first_checkpoints, load_group, save_group
from costate.training.iteration import AbstractIteration
from costate.training.memory_needed import check_memory
from costate.training.periodic_evaluation import PeriodicEvaluator
from costate.training.programs import fresh_states, learner_grid
from costate.training.startup import prepare_jax


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of :func:`train` or :func:`resume`."""

    run: Run
    finished: bool
    """False if it was stopped before its budget was used up."""


def train(
    config: RunConfig,
    out: str | pathlib.Path,
    *,
    overwrite: bool = False,
    devices: int | None = None,
    wandb: str | None = None,
    reporter: AbstractReporter | None = None,
) -> Outcome:
    """Train a new run in the folder ``out``, with the learner on ``devices`` devices.

    None uses all devices that help. Metrics are also sent to the project ``wandb`` at Weights & Biases, if
    given.
    """
    return train_together(
        [config], [out], overwrite=overwrite, devices=devices, wandb=wandb, reporter=reporter
    )[0]


def train_together(
    configs: Sequence[RunConfig],
    outs: Sequence[str | pathlib.Path],
    *,
    overwrite: bool = False,
    devices: int | None = None,
    wandb: str | None = None,
    reporter: AbstractReporter | None = None,
) -> list[Outcome]:
    """Train several seeds of one config in one program, each in a separate folder.

    Every seed sees the same episodes, noise and blackouts as in a run by itself, and equals that run up to
    the order of floating-point sums.
    """
    prepare_jax()
    _check_same_but_seed(configs)
    configs[0].task_record.check_engine()
    if wandb is not None:
        load_wandb()
    if len({pathlib.Path(out).resolve() for out in outs}) != len(configs):
        raise ConfigError(
            f"{len(configs)} runs need as many different folders, but these were given: "
            f"{', '.join(map(str, outs))}."
        )
    grid = learner_grid(configs[0], len(configs), devices)
    check_memory(configs[0], grid, len(configs))
    machine = describe_machine() | {
        "learner_devices": grid.devices,
        "seeds_together": [config.seed for config in configs],
    }
    folders = [pathlib.Path(out) for out in outs]
    for folder in folders:
        recover_run(folder)
        check_free(folder, overwrite=overwrite)
    with contextlib.ExitStack() as stack:
        # A run that is replaced must not be in training elsewhere. Its lock file is replaced with it, so the
        # lock of the new run is taken afterwards.
        with held(*folders):
            runs = tuple(
                create_run(folder, config, machine, overwrite=overwrite)
                for config, folder in zip(configs, folders, strict=True)
            )
            stack.enter_context(held(*folders))
        group = Group(runs, grid, wandb)
        reporter = reporter or SilentReporter()
        reporter.say(f"{describe(group.runs[0], group.seeds)} → {_location(runs)}")
        if learner_for(group.config).replay_bytes:
            reporter.say(_remembers(group.config, grid, len(runs)))
        return _with_slowdowns(group, lambda: _begin(group, reporter), reporter)


def resume(
    path: str | pathlib.Path,
    *,
    steps: int | None = None,
    checkpoint_every: int | None = None,
    evaluate_every: int | None = None,
    diverged: str | None = None,
    devices: int | None = None,
    wandb: str | None = None,
    reporter: AbstractReporter | None = None,
) -> Outcome:
    """Continue a run from its newest checkpoint, to the same numbers as if it had never stopped.

    ``steps`` makes it longer, also after its end, or shorter. ``checkpoint_every``, ``evaluate_every`` and
    ``diverged`` can be changed as well. None leaves a setting unchanged.
    """
    (outcome,) = resume_together(
        [path],
        steps=steps,
        checkpoint_every=checkpoint_every,
        evaluate_every=evaluate_every,
        diverged=diverged,
        devices=devices,
        wandb=wandb,
        reporter=reporter,
    )
    return outcome


def resume_together(
    paths: Sequence[str | pathlib.Path],
    *,
    steps: int | None = None,
    checkpoint_every: int | None = None,
    evaluate_every: int | None = None,
    diverged: str | None = None,
    devices: int | None = None,
    wandb: str | None = None,
    reporter: AbstractReporter | None = None,
) -> list[Outcome]:
    """Continue runs that were trained together from the newest checkpoint that all of them have.

    The same settings can be changed as in :func:`resume`.
    """
    prepare_jax()
    if wandb is not None:
        load_wandb()
    for path in paths:
        recover_run(pathlib.Path(path))
    before = tuple(open_run(pathlib.Path(path)) for path in paths)
    for run in before:
        check_edited(run)
    changes = {
        "steps": steps,
        "checkpoint_every": checkpoint_every,
        "evaluate_every": evaluate_every,
        "diverged": diverged,
    }
    runs = tuple(with_changes(run, changes) for run in before)
    check_alike(runs)
    reporter = reporter or SilentReporter()
    _check_same_but_seed([run.config for run in runs])
    grid, moved = _grid_as_before(runs, devices, reporter.say)
    check_memory(runs[0].config, grid, len(runs))
    machine = machine_changes(runs[0].read_machine(), describe_machine())
    for change in machine:
        reporter.say(
            f"warning: since this run began, {change}; from here on its last bits may differ from those of "
            "an uninterrupted run"
        )
    group = Group(runs, grid, wandb, (*machine, *moved))
    with held(*(run.path for run in runs)):
        return _with_slowdowns(group, lambda: _continue(group, reporter), reporter)


def _begin(group: Group, reporter: AbstractReporter) -> list[Outcome]:
    """Train from the start."""
    with _building(group) as env:
        with computing():
            states = jax.block_until_ready(fresh_states(group.config, group.seeds))
        starts = save_group(
            group,
            first_checkpoints(group.runs),
            0,
            np.zeros(len(group.runs) * group.config.rollout.environments, int),
            states,
        )
        return _train_from(group, env.result(), starts, states, reporter)


def _continue(group: Group, reporter: AbstractReporter) -> list[Outcome]:
    """Resume training from the newest checkpoints."""
    starts, states = load_group(group.runs, lambda warning: reporter.say(f"warning: {warning}"))
    group = note(group, starts, reporter.say)
    reporter.say(
        f"{describe(group.runs[0], group.seeds)} → {_location(group.runs)}, "
        f"resumed at step {starts[0].env_steps:,}"
    )
    if learner_for(group.config).replay_bytes:
        reporter.say(_remembers(group.config, group.grid, len(group.runs)))
    with _building(group) as env:
        return _train_from(group, env.result(), starts, states, reporter)


def _with_slowdowns(
    group: Group, attempt: Callable[[], list[Outcome]], reporter: AbstractReporter
) -> list[Outcome]:
    """Train, and after a divergence resume at half the learning rate as often as the config allows."""
    while True:
        try:
            return attempt()
        except DivergedError as error:
            if not slow_down(group, reporter.say, error):
                raise
            attempt = functools.partial(_continue, group, reporter)


def _remembers(config: RunConfig, grid: DeviceGrid, seeds: int) -> str:
    size = seeds * learner_for(config).replay_bytes / 1e6
    where = f" on each of {grid.streams} devices" if grid.streams > 1 else ""
    return f"replay: the last {learner_for(config).replay_steps:,} steps, {size:,.0f} MB{where}"


def _location(runs: Sequence[Run]) -> str:
    """Return the folder of one run, or the common folder of several if there is one."""
    if len(runs) == 1:
        return str(runs[0].path)
    parents = {run.path.parent for run in runs}
    return (
        f"{parents.pop()}/{{{','.join(run.path.name for run in runs)}}}"
        if len(parents) == 1
        else ", ".join(str(run.path) for run in runs)
    )


def _check_same_but_seed(configs: Sequence[RunConfig]) -> None:
    seeds = [config.seed for config in configs]
    if not seeds:
        raise ConfigError("No seed was given, but at least one is needed to train.")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"The seeds are {', '.join(map(str, seeds))}, but runs that train together need different ones."
        )
    if len({dataclasses.replace(config, seed=0) for config in configs}) > 1:
        raise ConfigError(
            "Only runs that differ in nothing but their seed can train together. Train the others separately."
        )


def _grid_as_before(
    runs: Sequence[Run], devices: int | None, say: Callable[[str], None]
) -> tuple[DeviceGrid, list[str]]:
    """Return the device grid that the runs were started on if possible, and what differs from it.

    The order of floating-point sums depends on the devices and on the seeds that train together.
    """
    before = runs[0].read_machine().get("learner_devices")
    before = before if isinstance(before, int) else None
    grid = learner_grid(runs[0].config, len(runs), devices)
    if devices is None and before is not None:
        with contextlib.suppress(ConfigError):
            grid = learner_grid(runs[0].config, len(runs), before)
    seeds, together = [run.config.seed for run in runs], list(runs[0].seeds_together)
    changes = [f"{grid.devices} devices instead of {before}"] if before not in (None, grid.devices) else []
    changes += [f"seeds {seeds} instead of {together} together"] if together != seeds else []
    if changes:
        say(
            f"warning: continuing with {' and '.join(changes)}; the numbers will be equal only up to the "
            "order of floating-point sums"
        )
    return grid, changes


@contextlib.contextmanager
def _building(group: Group) -> Iterator[concurrent.futures.Future[AbstractEnv]]:
    """Build the environments of all seeds in the background, and close them at the end."""
    config = group.config
    with concurrent.futures.ThreadPoolExecutor(1) as builder:
        env = builder.submit(make_env, config.task, config.rollout.environments, group.seeds, config.sensors)
        try:
            yield env
        finally:
            env.result().close()


def _train_from(
    group: Group,
    env: AbstractEnv,
    starts: Sequence[Checkpoint],
    states: LearnerState,
    reporter: AbstractReporter,
) -> list[Outcome]:
    start = starts[0]
    with contextlib.ExitStack() as stack:
        logs = [
            [
                stack.enter_context(contextlib.closing(log))
                for log in _logs(run, start, group.wandb, reporter.say)
            ]
            for run in group.runs
        ]
        restarts = np.concatenate([start.restarts for start in starts])
        if start.iteration > 0:
            # Before Ctrl-C becomes a request to stop: this can take long if episodes are slow to start, and
            # there is nothing to save yet.
            reporter.say("bringing the environments back to where they were …")
            env.skip_resets(restarts)
        stop = stack.enter_context(stop_requests())
        evaluator = stack.enter_context(contextlib.closing(PeriodicEvaluator(group, start.iteration)))
        try:
            books = Bookkeeper(group, logs, reporter, stop)
            position = Position(start.iteration, restarts, states, None, starts)
            finished = _iterate(group, env, evaluator, books, position, reporter, stop)
        except (DivergedError, SimulationError) as error:
            # The curve up to here helps to find the cause.
            with contextlib.suppress(StorageError):
                draw(group)
            if stop.asked and isinstance(error, DivergedError):
                # A user who asked to stop does not want another attempt.
                raise KeyboardInterrupt from error
            raise
    return [Outcome(run, finished) for run in group.runs]


def _logs(
    run: Run, start: Checkpoint, wandb: str | None, say: Callable[[str], None]
) -> Iterator[AbstractLog]:
    """Yield the logs of a run.

    Each is opened on demand, so that those before one that cannot be opened are still closed.
    """
    yield MetricsLog(run, start.iteration, start.env_steps, lambda text: say(f"warning: {text}"))
    if wandb is not None:
        yield WandbLog(run, wandb)


def _iterate(
    group: Group,
    env: AbstractEnv,
    evaluator: PeriodicEvaluator,
    books: Bookkeeper,
    position: Position,
    reporter: AbstractReporter,
    stop: StopRequest,
) -> bool:
    """Iterate until the budget is used up or a stop is requested. Return true if the budget is used up.

    Environments are reset at every cycle, so that nothing is in flight between two cycles. Checkpoints are
    taken there, which makes a resumed run equal to an uninterrupted one. A stop takes effect after the
    current iteration, and saves the start of the cycle.
    """
    config, learner = group.config, learner_for(group.config)
    compiled: AbstractIteration | None = None
    start: CycleStart | None = None
    while position.iteration < config.iterations and not stop.asked:
        between_cycles = position.iteration % config.cycle == 0
        if between_cycles:
            if _is_due(config, position):
                position = _save(group, position)
                books.draw_now_and_then()
            position = start_cycle(config, env, position)
        if compiled is None:
            with stop.nothing_to_save():
                compiled, position, about = compile_at(group, env, position)
            reporter.compiled(about)
            if stop.asked:
                break
        if between_cycles or start is None:
            start = remember_start(learner, position)
        before = position
        position, rows = advance(group, compiled, position)
        _stop_if_diverged(
            group, functools.partial(back_at_start, learner, start, before), position.iteration, rows
        )
        # Iterations that will be done again after a stop are evaluated then.
        if evaluator.is_due(position.iteration) and not (stop.asked and position.iteration % config.cycle):
            rows = [row | results for row, results in zip(rows, evaluator.evaluate(position), strict=True)]
        books.write(rows, position.iteration)
    _conclude(group, position, start, books)
    return position.iteration == config.iterations


def _is_due(config: RunConfig, position: Position) -> bool:
    """Return whether a checkpoint is due between two cycles."""
    unsaved = position.iteration - position.saved[0].iteration
    # Also before episodes that the end cuts off: if the run is made longer, it is resumed from there.
    cut_off = unsaved > 0 and config.iterations - position.iteration < config.cycle
    return unsaved >= config.checkpoint_every or cut_off


def _conclude(group: Group, position: Position, start: CycleStart | None, books: Bookkeeper) -> None:
    """Save the end of a run, or the start of the cycle that a stop cut off, and draw its curve."""
    config, ended = group.config, position.iteration
    if start is not None and ended != config.iterations and ended % config.cycle:
        position = back_at_start(learner_for(config), start, position)
    if position.iteration != position.saved[0].iteration:
        position = _save(group, position)
    if ended != position.iteration:
        books.say_if_heard(_stopped_within_cycle(config, ended, position.iteration))
    draw(group)


def _stopped_within_cycle(config: RunConfig, ended: int, saved: int) -> str:
    """Describe a run that was stopped in the middle of a cycle."""
    per_iteration = config.rollout.steps_per_iteration
    return (
        f"stopped at step {ended * per_iteration:,}; saved is step {saved * per_iteration:,}, where the "
        f"current episodes began, because these cannot be saved; the {(ended - saved) * per_iteration:,} "
        "steps in between will be done again, to the same numbers"
    )


def _save(group: Group, position: Position, seeds: Sequence[int] | None = None) -> Position:
    saved = save_group(group, position.saved, position.iteration, position.restarts, position.states, seeds)
    return dataclasses.replace(position, saved=saved)


def _stop_if_diverged(
    group: Group, cycle_start: Callable[[], Position], iteration: int, rows: Sequence[Row]
) -> None:
    """Raise if a loss is not finite, after saving the other seeds at the start of the cycle."""
    broken = diverged_runs(group, rows)
    if not broken:
        return
    healthy = [run.config.seed for run in group.runs if run not in broken]
    if healthy:
        _save(group, cycle_start(), healthy)
    raise divergence(group, broken, iteration)
