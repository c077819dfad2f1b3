"""The host loop: runs the two compiled programs in turn, keeps the clock, writes the files."""

import contextlib
import dataclasses
import functools
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from costate._errors import DivergedError
from costate._types import Array, Bool
from costate.checkpoint import Checkpoint, folders, load_latest, save
from costate.config import RunConfig, to_json
from costate.console import AbstractReporter, Progression, SilentReporter
from costate.cores import CORES
from costate.curves import draw_learning_curve
from costate.envs.base import AbstractEnv
from costate.envs.factory import make_env
from costate.interrupts import StopRequest, stop_requests
from costate.machine import describe_machine
from costate.metrics_log import MetricsLog, Row
from costate.policy import build_policy
from costate.ppo import TrainState, initial_state, iteration_keys, update
from costate.rollout import RolloutState, begin, collect
from costate.run_directory import Run, create_run, open_run


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of :func:`train` or :func:`resume` ended."""

    run: Run
    finished: bool
    """False if it was stopped before its budget was used up."""


def train(config: RunConfig, out: str | pathlib.Path, *, overwrite: bool = False, reporter: AbstractReporter | None = None) -> Outcome:
    """Train a new run in the folder ``out``."""
    run = create_run(pathlib.Path(out), config, describe_machine(), overwrite=overwrite)
    reporter = reporter or SilentReporter()
    reporter.say(f"{describe(config)} → {run.path}")
    state = fresh_state(config)
    start = Checkpoint(0, 0, to_json(config), (0,) * config.rollout.environments)
    save(run.checkpoints, start, state)
    return _train_from(run, start, state, reporter)


def resume(path: str | pathlib.Path, *, reporter: AbstractReporter | None = None) -> Outcome:
    """Continue a run from its newest checkpoint, to the same numbers as if it had never stopped."""
    run = open_run(pathlib.Path(path))
    reporter = reporter or SilentReporter()
    template = fresh_state(run.config)
    checkpoint, state = load_latest(run.checkpoints, run.config, template, lambda warning: reporter.say(f"warning: {warning}"))
    reporter.say(f"{describe(run.config)} → {run.path}, resumed at step {checkpoint.env_steps:,}")
    return _train_from(run, checkpoint, state, reporter)


def describe(config: RunConfig) -> str:
    """One line that says what will run."""
    core = CORES.name_of(type(config.policy.core))
    prefix = "NC-" if config.ppo.costate_coef > 0.0 else ""
    steps = config.iterations * config.rollout.steps_per_iteration
    return (
        f"{prefix}{core.upper()} on {config.task}: {steps:,} steps ({config.iterations} iterations), {config.sensors.dropout:.0%} blackout, "
        f"c₃ = {config.ppo.costate_coef:g}, seed {config.seed}"
    )


def fresh_state(config: RunConfig) -> TrainState:
    """Training before its first iteration; a function of the config alone."""
    key_policy, key_training = jax.random.split(jax.random.key(config.seed))
    task = config.task_record
    policy = build_policy(config.policy, key_policy, task.observation_size, task.action_size)
    return initial_state(config.ppo, policy, key_training, task.observation_size)


@dataclasses.dataclass(frozen=True)
class Programs:
    """The two compiled halves of an iteration."""

    collect: Callable[..., Any]
    update: Callable[..., Any]
    seconds: tuple[float, float]


def compile_programs(config: RunConfig, env: AbstractEnv, state: TrainState, rollout_state: RolloutState) -> Programs:
    """Compile before anything runs, so that compile time is known apart and an error in it costs nothing."""
    started = time.perf_counter()
    rollout = functools.partial(collect, env, config.rollout, config.ppo.discount)
    compiled_collect = jax.jit(rollout).lower(state.policy, state.observation_stats, rollout_state, state.key).compile()
    between = time.perf_counter()
    _, trajectory, final_value = compiled_collect.out_info
    learn = functools.partial(update, config.ppo, config.rollout, config.iterations)
    compiled_update = jax.jit(learn).lower(state, trajectory, final_value).compile()
    return Programs(compiled_collect, compiled_update, (between - started, time.perf_counter() - between))


def _train_from(run: Run, start: Checkpoint, state: TrainState, reporter: AbstractReporter) -> Outcome:
    config = run.config
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(contextlib.closing(make_env(config.task, config.rollout.environments, config.seed, config.sensors)))
        log = stack.enter_context(contextlib.closing(MetricsLog(run, start.iteration, start.env_steps)))
        if start.iteration > 0:
            # Before Ctrl-C is taken for a request: it can take long where episodes are slow to start, and there is nothing to save yet.
            reporter.say("bringing the environments back to where they were …")
            env.skip_resets(np.array(start.restarts))
        stop = stack.enter_context(stop_requests())
        finished = _iterate(run, env, log, start, state, reporter, stop)
    return Outcome(run, finished)


@dataclasses.dataclass(frozen=True)
class _Position:
    """Where a run stands between two iterations."""

    iteration: int
    restarts: np.ndarray
    state: TrainState
    rollout_state: RolloutState | None


def _iterate(
    run: Run,
    env: AbstractEnv,
    log: MetricsLog,
    start: Checkpoint,
    state: TrainState,
    reporter: AbstractReporter,
    stop: StopRequest,
) -> bool:
    """Iterations until the budget is used up or a stop is asked for; true if the budget is used up.

    Environments start afresh at every cycle, so between two cycles nothing is in flight: that is where checkpoints are taken, and why a resumed
    run is equal to an uninterrupted one.
    """
    config = run.config
    position = _Position(start.iteration, np.array(start.restarts), state, None)
    programs, saved, seconds = None, start.iteration, 0.0
    while position.iteration < config.iterations:
        between_cycles = position.iteration % config.cycle == 0
        if between_cycles and stop.asked:
            break
        if between_cycles and position.iteration - saved >= config.checkpoint_every:
            _save(run, position)
            saved = position.iteration
        if between_cycles:
            position = _start_cycle(env, position)
        if programs is None:
            assert position.rollout_state is not None, "a run starts between cycles"
            programs = compile_programs(config, env, position.state, position.rollout_state)
            reporter.say("compiled in {:.1f} s (rollout {:.1f} s, update {:.1f} s)".format(sum(programs.seconds), *programs.seconds))
        position, row = _advance(config, programs, position)
        _stop_if_diverged(run, row)
        log.write(row)
        seconds += row["time/collect"] + row["time/update"]
        left = seconds / (position.iteration - start.iteration) * (config.iterations - position.iteration)
        try:
            reporter.progress(Progression(row, config.iterations * config.rollout.steps_per_iteration, left))
        except OSError:
            # Nobody is looking any more (`costate train … | head`, a closed terminal): save and stop, as for Ctrl-C.
            stop.ask()
    if position.iteration != saved:
        _save(run, position)
    return position.iteration == config.iterations


def _start_cycle(env: AbstractEnv, position: _Position) -> _Position:
    """A new episode in every environment."""
    rollout_state = begin(env, position.state.policy, iteration_keys(position.state.key).reset)
    return dataclasses.replace(position, restarts=position.restarts + 1, rollout_state=rollout_state)


def _advance(config: RunConfig, programs: Programs, position: _Position) -> tuple[_Position, Row]:
    """One iteration: collect, update, and what there is to log."""
    state, rollout_state = position.state, position.rollout_state
    key_rollout = iteration_keys(state.key).rollout
    started = time.perf_counter()
    rollout_state, trajectory, final_value = programs.collect(state.policy, state.observation_stats, rollout_state, key_rollout)
    # The next reset runs on the host and must not overtake the compiled rollout.
    jax.block_until_ready(final_value)
    collected = time.perf_counter()
    state, metrics = programs.update(state, trajectory, final_value)
    row = {name: float(value) for name, value in metrics.items()}
    ended = time.perf_counter()
    iteration = position.iteration + 1
    row |= {
        "iteration": iteration,
        "env_steps": iteration * config.rollout.steps_per_iteration,
        "training/sps": config.rollout.steps_per_iteration / (ended - started),
        "time/collect": collected - started,
        "time/update": ended - collected,
    }
    restarts = position.restarts + restarts_within(trajectory.is_first, rollout_state.timestep.is_first)
    return _Position(iteration, restarts, state, rollout_state), row


def _save(run: Run, position: _Position) -> None:
    env_steps = position.iteration * run.config.rollout.steps_per_iteration
    checkpoint = Checkpoint(position.iteration, env_steps, to_json(run.config), tuple(map(int, position.restarts)))
    save(run.checkpoints, checkpoint, position.state)
    draw_learning_curve(run, describe(run.config))


def restarts_within(is_first: Bool[Array, "T B"], is_first_after: Bool[Array, " B"]) -> np.ndarray:
    """Episodes that environments started by themselves during a rollout; the one that the rollout began with is counted elsewhere."""
    counts: np.ndarray = np.asarray(is_first)[1:].sum(axis=0) + np.asarray(is_first_after)
    return counts


def _stop_if_diverged(run: Run, row: Row) -> None:
    broken = [name for name, value in row.items() if name.startswith("losses/") and not math.isfinite(value)]
    if broken:
        raise DivergedError(
            f"Training diverged in iteration {row['iteration']:.0f}: {', '.join(broken)} not finite. The last good checkpoint is "
            f"{folders(run.checkpoints)[-1]}. Lower --learning-rate or --max-gradient-norm and start again."
        )
