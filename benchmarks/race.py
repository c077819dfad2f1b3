"""Presets against each other on the clock: each is trained alone, one after the other, and their curves are compared in minutes and in steps.

    python benchmarks/race.py CartpoleSwingup WalkerStand --presets nc-gru nc-sac-gru --steps 3_008_000 --minutes 3 --out docs/results/race

The first preset sets the mark: what it returns in the last tenth of ``--steps``, over which its step size falls to zero. The others are given
``--minutes``. Minutes are those of a run's own clock (compiling and saving count), returns those of training, with exploring controls under
blackouts, averaged over 32 episodes once there are so many. Runs that are there already are used as they are. Nothing else should run on the machine.
"""

import argparse
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from time_to_return import points

from costate.interrupts import INTERRUPTED
from costate.pictures import from_zero
from costate.run_directory import open_run

EPISODES = 32
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


@dataclasses.dataclass(frozen=True)
class Curve:
    """What a run returned over time."""

    minutes: np.ndarray
    steps: np.ndarray
    returns: np.ndarray

    def reaches(self, mark: float) -> tuple[float, int] | None:
        """Minute and step at which the mark was first reached."""
        there = np.flatnonzero(self.returns >= mark)
        return (float(self.minutes[there[0]]), int(self.steps[there[0]])) if there.size else None


def train(task: str, preset: str, seed: int, out: pathlib.Path, steps: int | None, minutes: float | None) -> None:
    """One run, until its steps or its minutes are over."""
    command = [sys.executable, "-m", "costate.cli", "train", task, "--preset", preset, "--seed", str(seed), "--out", str(out)]
    command += ["--steps", str(steps)] if steps is not None else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        process.wait(None if minutes is None else 60.0 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
    if process.returncode not in (0, INTERRUPTED):
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}; what it said is above. Remove {out} and try again.")


def read_curve(path: pathlib.Path) -> Curve:
    run = open_run(path)
    minutes, steps, returns = np.array(points(run)).T
    # A row is an episode of every environment, wherever an episode is as long as a cycle of iterations.
    window = -(-EPISODES // run.config.rollout.environments)
    averages = np.array([returns[max(0, i + 1 - window) : i + 1].mean() for i in range(len(returns))])
    return Curve(minutes, steps, averages)


def mark_of(curve: Curve) -> float:
    """The mean of the last tenth."""
    return float(curve.returns[-max(1, len(curve.returns) // 10) :].mean())


def compare(curves: dict[str, Curve]) -> dict[str, Any]:
    """When each preset first returned what the first one ends with."""
    mark = mark_of(next(iter(curves.values())))
    found = {}
    for name, curve in curves.items():
        reached = curve.reaches(mark)
        found[name] = {
            "minutes_to_mark": reached and round(reached[0], 2),
            "steps_to_mark": reached and reached[1],
            "minutes": round(float(curve.minutes[-1]), 2),
            "last_return": round(mark_of(curve), 1),
        }
    return {"mark": round(mark, 1), "presets": found}


def panels_for(count: int) -> tuple[Any, list[Any]]:
    """A figure with so many panels, up to four in a row."""
    columns = min(4, count)
    rows = -(-count // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.5 * rows), layout="constrained", squeeze=False)
    for panel in panels.flat[count:]:
        panel.set_axis_off()
    for panel in panels.flat[:count]:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels.flat[:count])


def draw(curves: dict[str, dict[str, Curve]], axis: str, path: pathlib.Path) -> None:
    figure, panels = panels_for(len(curves))
    for panel, (task, of_task) in zip(panels, curves.items(), strict=True):
        for colour, (name, curve) in zip(COLOURS, of_task.items(), strict=False):
            over = curve.minutes if axis == "minutes" else curve.steps / 1e6
            panel.plot(over, curve.returns, color=colour, linewidth=1.6, label=name)
        panel.axhline(mark_of(next(iter(of_task.values()))), color="#999999", linewidth=0.8, linestyle=":")
        panel.set(title=task, xlabel="minutes on this machine" if axis == "minutes" else "environment steps (millions)")
        from_zero(panel)
        if axis == "steps":
            panel.set_xscale("log")
    panels[0].set_ylabel("return in training")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def table(found: dict[str, dict[str, Any]]) -> str:
    names = list(next(iter(found.values()))["presets"])
    head = ["task", "mark", *(f"{name}: minutes, steps to it" for name in names), *(f"{name}: end" for name in names)]
    lines = [f"| {' | '.join(head)} |"]
    lines.append("|" + "---|" * (2 + 2 * len(names)))
    for task, result in found.items():
        cells = []
        for each in result["presets"].values():
            there = each["minutes_to_mark"] is not None
            cells.append(f"{each['minutes_to_mark']:.1f}, {each['steps_to_mark']:,}" if there else "not reached")
        ends = [f"{each['last_return']:.0f} after {each['minutes']:.1f} min" for each in result["presets"].values()]
        lines.append(f"| {task} | {result['mark']:.0f} | " + " | ".join(cells + ends) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--presets", nargs="+", default=["nc-gru", "nc-sac-gru"])
    parser.add_argument("--steps", type=int, default=3_008_000, help="of the first preset")
    parser.add_argument("--minutes", type=float, default=3.0, help="of the others")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/race"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/race"), help="of the pictures and numbers, without endings")
    arguments = parser.parse_args()
    if len(arguments.presets) > len(COLOURS):
        parser.error(f"{len(arguments.presets)} presets were given, but there are colours for {len(COLOURS)}")
    curves: dict[str, dict[str, Curve]] = {}
    for task in arguments.tasks:
        curves[task] = {}
        for preset in arguments.presets:
            out = arguments.runs / task / preset / f"seed-{arguments.seed}"
            if not out.exists():
                first = preset == arguments.presets[0]
                train(task, preset, arguments.seed, out, arguments.steps if first else None, None if first else arguments.minutes)
            if preset == arguments.presets[0] and open_run(out).read_metrics()[-1]["env_steps"] < open_run(out).config.final_steps:
                raise SystemExit(f"{out} was not trained to its end, so that it sets no mark. Resume it, or remove it.")
            curves[task][preset] = read_curve(out)
        print(table({task: compare(curves[task])}), flush=True)
    found = {task: compare(of_task) for task, of_task in curves.items()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps({"seed": arguments.seed, "tasks": found}, indent=1) + "\n")
    for axis in ("minutes", "steps"):
        draw(curves, axis, arguments.out.with_name(f"{arguments.out.name}_{axis}.png"))
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
