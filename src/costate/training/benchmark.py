"""Measure the speed of training on this machine, and its limit.

All is measured in one process and one run, so that ratios can be compared. The limit is the speed if nothing
but physics and matrix products took time, and both ran at the machine's full speed:

    limit = 1 / (1 / raw engine + FLOPs per env-step / peak FLOP/s)
"""

import contextlib
import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from costate._base.progress import Tell, nobody, within
from costate._base.types import Array, Float, Key
from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.envs.base import AbstractEnv, EnvState
from costate.envs.factory import make_env
from costate.learners import learner_for
from costate.policies.cores.gru import GRUConfig
from costate.policies.cores.native.gru_loops import MULTIPLE
from costate.policies.cores.native.library import state as native_state
from costate.training.programs import (
    Programs,
    compile_programs,
    fresh_states,
    learner_grid,
    program_name,
    start_episodes,
)
from costate.training.startup import forget_uncacheable, prepare_jax

# Large enough to occupy every core, but small enough to take a tenth of a second.
MATRIX_SIZE = 2048
# Rough shares of the time after the starts of processes are measured, and after compiling.
STARTED, COMPILED = 0.3, 0.4


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Medians over the repetitions of one run, in environment steps per second unless named otherwise."""

    task: str
    preset: str
    seeds: int
    devices: int
    repeats: int
    raw_engine: float
    """Random actions through the same sensors, no policy."""
    peak_gflops: float
    """A large float32 matrix product on all cores."""
    flops_per_step: float
    """Floating-point operations of matrix products per environment step, in rollout and update together."""
    collect: float
    learner_only: float
    updates: float
    """Gradient steps per second of the learner alone."""
    end_to_end: float
    limit: float
    compile_seconds: float
    peak_memory_gb: float
    cold_start_seconds: float | None
    """Seconds from the start of a process that trains one seed to its first iteration, with an empty
    compilation cache; None if not measured."""
    warm_start_seconds: float | None
    """The same with the cache of an earlier run."""
    loops: str
    """Implementation of the loops over time, and the reason for it."""

    @property
    def fraction(self) -> float:
        """End to end as a fraction of the limit."""
        return self.end_to_end / self.limit


def run_benchmark(
    task: str,
    preset_name: str,
    *,
    seeds: int,
    devices: int | None,
    repeats: int,
    starts: bool,
    tell: Tell = nobody,
) -> Benchmark:
    """Measure training of ``seeds`` seeds together at the paper's configuration."""
    prepare_jax()
    config = preset(preset_name, task)
    numbers = tuple(range(seeds))
    grid = learner_grid(config, seeds, devices)
    # First, because a core or a learner may not say it.
    flops = config.learner.flops_per_env_step(config)
    # Separate processes, measured before this one occupies the cores.
    cold, warm = measure_starts(task, preset_name, within(tell, 0.0, STARTED)) if starts else (None, None)
    tell(STARTED if starts else 0.0, "compiling")
    with contextlib.closing(make_env(task, config.rollout.environments, numbers, config.sensors)) as env:
        states = fresh_states(config, numbers)
        rollout_state = start_episodes(config, env, states)
        started = time.perf_counter()
        programs = compile_programs(config, env, states, rollout_state, grid)
        compiling = time.perf_counter() - started
        seconds = measure_iterations(
            config, env, programs, programs.place(states), numbers, repeats, within(tell, COMPILED, 1.0)
        )
    forget_uncacheable()
    steps = config.rollout.steps_per_iteration * seeds
    raw, collect, update, peak = (statistics.median(series) for series in seconds)
    peak_flops = 2.0 * MATRIX_SIZE**3 / peak
    return Benchmark(
        task=task,
        preset=preset_name,
        seeds=seeds,
        devices=grid.devices,
        repeats=repeats,
        raw_engine=steps / raw,
        peak_gflops=peak_flops / 1e9,
        flops_per_step=flops,
        collect=steps / collect,
        learner_only=steps / update,
        updates=learner_for(config).updates_per_iteration * seeds / update,
        # The median of whole iterations, not a sum of medians.
        end_to_end=steps / statistics.median(c + u for c, u in zip(seconds[1], seconds[2], strict=True)),
        limit=1.0 / (raw / steps + flops / peak_flops),
        compile_seconds=compiling,
        peak_memory_gb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        cold_start_seconds=cold,
        warm_start_seconds=warm,
        loops=_loops(config),
    )


def _loops(config: RunConfig) -> str:
    """Return the implementation of the loops over time. The GRU has loops in C, for some widths, on CPUs."""
    policy = config.policy
    in_c = (
        isinstance(policy.core, GRUConfig)
        and policy.hidden_size % MULTIPLE == 0
        and jax.devices()[0].platform == "cpu"
    )
    return str(native_state()) if in_c else "by XLA (there are none in C for this core, width or device)"


def measure_iterations(
    config: RunConfig,
    env: AbstractEnv,
    programs: Programs,
    states: Any,
    seeds: tuple[int, ...],
    repeats: int,
    tell: Tell = nobody,
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the seconds of raw engine, collect, update and matrix product.

    Each is measured in every repetition, so that a change in the machine's load affects all of them.
    """
    engine = _engine_program(
        config, env, programs.bring(start_episodes(config, env, states).env_state), len(seeds)
    )
    matrix = jnp.ones((MATRIX_SIZE, MATRIX_SIZE))
    product = jax.jit(jnp.matmul)
    raws: list[float] = []
    collects: list[float] = []
    updates: list[float] = []
    products: list[float] = []
    _seconds(product, matrix, matrix)
    for _ in range(learner_for(config).warmup_iterations):
        states, _ = programs.update(states, programs.collect(states, start_episodes(config, env, states))[1])
    for number in range(repeats):
        tell(number / repeats, f"repetition {number + 1} of {repeats}")
        started = time.perf_counter()
        rollout_state, experience = programs.collect(states, start_episodes(config, env, states))
        collects.append(time.perf_counter() - started)
        started = time.perf_counter()
        states, _ = jax.block_until_ready(programs.update(states, experience))
        updates.append(time.perf_counter() - started)
        raws.append(_seconds(engine, rollout_state.env_state, jax.random.key(0)))
        products.append(min(_seconds(product, matrix, matrix) for _ in range(3)))
    return raws, collects, updates, products


def _engine_program(
    config: RunConfig, env: AbstractEnv, env_state: EnvState, seeds: int
) -> Callable[..., Any]:
    """Compile a program with the steps of a rollout, random actions and nothing else."""
    shape = (config.rollout.rollout_length, seeds, env.batch_size, env.action_size)

    def run(env_state: EnvState, key: Key[Array, ""]) -> Float[Array, ""]:
        actions = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
        drawn = jax.vmap(env.draw)(jax.random.split(key, shape[0]))
        step = jax.vmap(env.advance, in_axes=(env.seed_axis, 0, None), out_axes=(env.seed_axis, 0))
        return jax.lax.scan(lambda state, row: step(state, *row), env_state, (actions, drawn))[1].reward.sum()

    run.__name__ = program_name(env)
    return jax.jit(run).lower(env_state, jax.random.key(0)).compile()


def _seconds(program: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - started


def measure_starts(task: str, preset_name: str, tell: Tell = nobody) -> tuple[float, float]:
    """Return the seconds from the start of a process to its first iteration.

    The first number is with an empty compilation cache, the second with a full one.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": folder}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        tell(0.0, "starting a process with an empty cache")
        cold = _start(task, preset_name, f"{folder}/run-cold", environment)
        tell(0.6, "starting a process with a full cache")
        warm = _start(task, preset_name, f"{folder}/run-warm", environment)
    return cold, warm


def _start(task: str, preset_name: str, out: str, environment: dict[str, str]) -> float:
    """Return the seconds that a process takes from its start to the first iteration of a run."""
    command = [sys.executable, "-m", "costate.training.first_iteration", task, preset_name, out]
    started = time.perf_counter()
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"Training on {task} ended before its first iteration: {result.stderr[-500:]}")
    return time.perf_counter() - started


def table(result: Benchmark) -> str:
    """Format a benchmark as a table for the terminal."""
    rows = [
        ("raw engine", f"{result.raw_engine:,.0f} steps/s", "random actions, no policy"),
        (
            "matrix products",
            f"{result.peak_gflops:,.0f} GFLOP/s",
            f"float32, {MATRIX_SIZE} × {MATRIX_SIZE}, all cores",
        ),
        ("needed per step", f"{result.flops_per_step / 1e6:,.2f} MFLOP", "rollout and update"),
        ("limit", f"{result.limit:,.0f} steps/s", "physics and products alone, at full speed"),
        ("collect only", f"{result.collect:,.0f} steps/s", "physics with the policy in the loop"),
        (
            "learner only",
            f"{result.learner_only:,.0f} steps/s",
            f"on {result.devices} device{'s' if result.devices > 1 else ''}",
        ),
        ("", f"{result.updates:,.1f} updates/s", ""),
        ("end to end", f"{result.end_to_end:,.0f} steps/s", f"{result.fraction:.2f} of the limit"),
        ("loops over time", *result.loops.removesuffix(")").split(" (", 1)),
        ("compiled in", f"{result.compile_seconds:.1f} s", "in this process"),
        ("peak memory", f"{result.peak_memory_gb:.2f} GB", "resident"),
    ]
    if result.cold_start_seconds is not None and result.warm_start_seconds is not None:
        rows.append(
            (
                "first iteration",
                f"{result.cold_start_seconds:.1f} s",
                "after the start of a process, with an empty cache",
            )
        )
        rows.append(("", f"{result.warm_start_seconds:.1f} s", "with the cache of a run before"))
    what = f"{result.preset} on {result.task}" + (
        f", {result.seeds} seeds together" if result.seeds > 1 else ""
    )
    return "\n".join(
        [
            f"{what}: medians of {result.repeats}",
            *(f"  {name:16} {value:>18}  {note}" for name, value, note in rows),
        ]
    )
