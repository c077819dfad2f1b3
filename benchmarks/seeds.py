"""Train several seeds of one variant, and draw and summarise their curves: the numbers in the README.

    python benchmarks/seeds.py CartpoleSwingup --steps 3_200_000 --seeds 5 --runs runs --out
    docs/results/cartpole

Finished runs in the folder are reused, interrupted ones are resumed.
"""

import dataclasses
import json
import pathlib
from typing import Annotated

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro

from costate.config.presets import preset
from costate.config.run_config import RunConfig, config_hash
from costate.runs.run_directory import Run, open_run
from costate.training.console import reporter_for_stdout
from costate.training.loop import resume, train, train_together


def main(
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")],
    preset_name: str = "nc-gru",
    steps: int = 3_200_000,
    seeds: int = 5,
    runs: pathlib.Path = pathlib.Path("runs"),
    out: pathlib.Path = pathlib.Path("docs/results/seeds"),
) -> None:
    """Train, draw, summarise.

    Args:
        task: Task to train on.
        preset_name: Variant of the paper.
        steps: Environment steps of each run.
        seeds: Number of seeds, counted from 0.
        runs: Folder of the runs.
        out: Path of the picture and of the summary, without suffix.
    """
    config = dataclasses.replace(preset(preset_name, task), steps=steps)
    done = obtain(
        [dataclasses.replace(config, seed=seed) for seed in range(seeds)], runs / task / preset_name
    )
    curves = np.array([[row["training/episode_reward"] for row in run.read_metrics()] for run in done])
    costate = np.array([[row["losses/costate"] for row in run.read_metrics()] for run in done])
    axis = np.array([row["env_steps"] for row in done[0].read_metrics()])
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(
        f"{preset_name.upper()} on {task}, half of the observations dark",
        axis,
        curves,
        costate,
        out.with_suffix(".png"),
    )
    # The mean of the last tenth smooths the noise of single iterations without hiding a late fall.
    tail = max(1, len(axis) // 10)
    final, best = curves[:, -tail:].mean(1), curves.max(1)
    summary = {
        "task": task,
        "preset": preset_name,
        "steps": int(axis[-1]),
        "config_hashes": [config_hash(run.config) for run in done],
        "first_iteration": [round(float(value), 1) for value in curves[:, 0]],
        "mean_of_last_tenth": [round(float(value), 1) for value in final],
        "best_iteration": [round(float(value), 1) for value in best],
        "median_of_last_tenth": round(float(np.median(final)), 1),
        "median_of_best": round(float(np.median(best)), 1),
        "costate_loss_of_last_tenth": [round(float(value), 3) for value in costate[:, -tail:].mean(1)],
    }
    out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


def obtain(configs: list[RunConfig], folder: pathlib.Path) -> list[Run]:
    """Return finished runs, and train missing ones: together if none has begun, else one by one."""
    paths = [folder / f"seed-{config.seed}" for config in configs]
    if not any(path.exists() for path in paths):
        return [outcome.run for outcome in train_together(configs, paths, reporter=reporter_for_stdout())]
    return [obtain_one(config, path) for config, path in zip(configs, paths, strict=True)]


def obtain_one(config: RunConfig, path: pathlib.Path) -> Run:
    if not path.exists():
        return train(config, path, reporter=reporter_for_stdout()).run
    run = open_run(path)
    if run.config != config:
        raise SystemExit(f"{path} holds another run; choose another folder with --runs")
    return (
        run
        if len(run.read_metrics()) == config.iterations
        else resume(path, reporter=reporter_for_stdout()).run
    )


def draw(title: str, steps: np.ndarray, curves: np.ndarray, costate: np.ndarray, path: pathlib.Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    for panel, values, colour, label in (
        (axes[0], curves, "#4477aa", "episode return"),
        (axes[1], costate, "#228833", "1 − cos(h, λ̂)"),
    ):
        panel.plot(steps / 1e6, values.T, color=colour, alpha=0.3, linewidth=1.0)
        panel.plot(
            steps / 1e6,
            np.median(values, axis=0),
            color=colour,
            linewidth=2.0,
            label=f"median of {len(values)} seeds",
        )
        panel.set(xlabel="environment steps (millions)", ylabel=label)
        panel.set_ylim(bottom=0.0)
        panel.grid(alpha=0.25)
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_title("return under training blackouts")
    axes[1].set_title("co-state loss")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    tyro.cli(main)
