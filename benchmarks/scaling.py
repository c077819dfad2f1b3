"""Measure how speed and memory grow with hidden size, environments, sequence length, seeds and devices.

    python benchmarks/scaling.py --out docs/results/scaling

This produces the plots in docs/performance.md. Every point is a separate process, because peak memory never
falls and the number of devices is fixed when JAX starts.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from typing import Annotated, Any

import jax
import tyro
from matplotlib.figure import Figure

from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.envs.factory import make_env
from costate.training.programs import compile_programs, fresh_states, learner_grid, start_episodes
from costate.training.startup import forget_uncacheable, prepare_jax

SWEEPS: dict[str, tuple[int, ...]] = {
    "hidden size": (32, 64, 128, 256, 512),
    "environments": (8, 16, 32, 64, 128, 256, 512),
    "sequence length": (100, 250, 500, 1000),
    "seeds": (1, 2, 4, 8),
    "devices": (1, 2, 4, 8),
}
USUAL = {"hidden size": 128, "environments": 32, "sequence length": 1000, "seeds": 1, "devices": None}
# Repeats for a median of short iterations, and a time limit for long ones.
MOST_REPEATS, MOST_SECONDS = 5, 12.0


def main(
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "CartpoleSwingup",
    out: pathlib.Path = pathlib.Path("docs/results/scaling"),
    point: str | None = None,
) -> None:
    """Measure all points, then write a summary and a picture.

    Args:
        task: Task to train on.
        out: Path of the summary and of the picture, without suffix.
        point: One point as JSON; measure only that and print it. The command itself uses this.
    """
    if point is not None:
        print(json.dumps(measure(task, json.loads(point))))
        return
    results = {name: [in_process(task, name, value) for value in values] for name, values in SWEEPS.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(
        json.dumps({"task": task, "preset": "nc-gru", "results": results}, indent=1) + "\n"
    )
    draw(task, results, out.with_suffix(".png"))


def in_process(task: str, name: str, value: int) -> dict[str, Any]:
    settings = USUAL | {name: value}
    # More devices than cores only show that the program can be split that far.
    environment = os.environ | (
        {"JAX_NUM_CPU_DEVICES": str(max(value, os.cpu_count() or 1))} if name == "devices" else {}
    )
    command = [sys.executable, __file__, task, "--point", json.dumps(settings)]
    output = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    print(f"{name} {value}: {result['end_to_end']:,.0f} steps/s, {result['memory_gb']:.2f} GB", flush=True)
    return {"value": value} | result


def configured(task: str, settings: dict[str, Any]) -> RunConfig:
    config = preset("nc-gru", task)
    return dataclasses.replace(
        config,
        policy=dataclasses.replace(config.policy, hidden_size=settings["hidden size"]),
        rollout=dataclasses.replace(
            config.rollout, environments=settings["environments"], rollout_length=settings["sequence length"]
        ),
    )


def measure(task: str, settings: dict[str, Any]) -> dict[str, float]:
    """Return medians over iterations, after compilation."""
    prepare_jax()
    config, seeds = configured(task, settings), tuple(range(settings["seeds"]))
    grid = learner_grid(config, len(seeds), settings["devices"])
    with contextlib.closing(make_env(task, config.rollout.environments, seeds, config.sensors)) as env:
        states = fresh_states(config, seeds)
        programs = compile_programs(config, env, states, start_episodes(config, env, states), grid)
        states = programs.place(states)
        collects: list[float] = []
        updates: list[float] = []
        began = time.perf_counter()
        while len(collects) < MOST_REPEATS and (
            len(collects) < 2 or time.perf_counter() - began < MOST_SECONDS
        ):
            started = time.perf_counter()
            _, experience = programs.collect(states, start_episodes(config, env, states))
            collected = time.perf_counter()
            states, _ = jax.block_until_ready(programs.update(states, experience))
            updates.append(time.perf_counter() - collected)
            collects.append(collected - started)
    forget_uncacheable()
    steps = config.rollout.steps_per_iteration * len(seeds)
    return {
        "end_to_end": steps / statistics.median(c + u for c, u in zip(collects, updates, strict=True)),
        "collect": steps / statistics.median(collects),
        "learner": steps / statistics.median(updates),
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "repeats": len(collects),
    }


def draw(task: str, results: dict[str, list[dict[str, Any]]], path: pathlib.Path) -> None:
    figure = Figure(figsize=(15.0, 5.6), layout="constrained")
    axes = figure.subplots(2, len(results))
    for column, (name, points) in enumerate(results.items()):
        values = [point["value"] for point in points]
        top, bottom = axes[0][column], axes[1][column]
        for key, label, colour in (
            ("end_to_end", "end to end", "#222222"),
            ("collect", "collect", "#4477aa"),
            ("learner", "learner", "#228833"),
        ):
            top.plot(values, [point[key] / 1e3 for point in points], marker="o", color=colour, label=label)
        bottom.plot(values, [point["memory_gb"] for point in points], marker="o", color="#aa3377")
        for panel in (top, bottom):
            panel.set_xscale("log", base=2)
            panel.set_xticks(values, [str(value) for value in values])
            panel.minorticks_off()
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_ylim(bottom=0.0)
        bottom.set_xlabel(name)
        top.set_title(name)
    axes[0][0].set_ylabel("thousand env-steps/s")
    axes[1][0].set_ylabel("peak memory (GB)")
    axes[0][0].legend(frameon=False)
    figure.suptitle(
        f"NC-GRU on {task}: one setting at a time, the others as in the paper "
        "(128 units, 32 × 1000 steps, one seed)"
    )
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    tyro.cli(main)
