"""Race presets against each other on the clock. Their curves are compared in minutes and in steps.

    python benchmarks/race.py CartpoleSwingup WalkerStand --presets nc-gru fast --seeds 2 --steps 3_008_000
    --minutes 1.2

Runs are trained one after the other. The first preset sets the mark: its mean return over its seeds in the
last tenth of ``--steps``, over which its learning rate falls to zero. The others get ``--minutes``. Minutes
are those of a run's own clock (compiling and saving count). Returns are those of training, with exploring
controls under blackouts, averaged over 32 episodes once there are that many. Existing runs are reused.
Nothing else should run on the machine.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import signal
import statistics
import subprocess
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from time_to_return import points

from costate.config.naming import differences
from costate.config.presets import PRESETS, preset
from costate.runs.interrupts import INTERRUPTED
from costate.runs.pictures import from_zero
from costate.runs.run_directory import open_run

EPISODES = 32
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


@dataclasses.dataclass(frozen=True)
class Curve:
    """Return of a run over time."""

    minutes: np.ndarray
    steps: np.ndarray
    returns: np.ndarray

    def reaches(self, mark: float) -> tuple[float, int] | None:
        """Return the minute and step at which the mark was first reached; None if it was not."""
        above = np.flatnonzero(self.returns >= mark)
        return (float(self.minutes[above[0]]), int(self.steps[above[0]])) if above.size else None


def train(
    task: str, name: str, seed: int, out: pathlib.Path, steps: int | None, minutes: float | None
) -> None:
    """Train one run until its steps or its minutes are over."""
    command = [
        sys.executable,
        "-m",
        "costate.cli",
        "train",
        task,
        "--preset",
        name,
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    command += ["--steps", str(steps)] if steps is not None else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        process.wait(None if minutes is None else 60.0 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
    if process.returncode not in (0, INTERRUPTED):
        raise SystemExit(
            f"{' '.join(command)} ended with exit code {process.returncode}; see its output above. Remove "
            f"{out} and try again."
        )


def read_curve(path: pathlib.Path) -> Curve:
    run = open_run(path)
    minutes, steps, returns = np.array(points(run)).T
    # If episodes are as long as a cycle of iterations, a row is one episode of every environment.
    window = -(-EPISODES // run.config.rollout.environments)
    averages = np.array([returns[max(0, i + 1 - window) : i + 1].mean() for i in range(len(returns))])
    return Curve(minutes, steps, averages)


def end_of(curve: Curve) -> float:
    """Return the mean of the last tenth."""
    return float(curve.returns[-max(1, len(curve.returns) // 10) :].mean())


def mark_of(curves: dict[str, list[Curve]]) -> float:
    """Return the mean final return of the first preset over its seeds."""
    return statistics.fmean(end_of(curve) for curve in next(iter(curves.values())))


def compare(curves: dict[str, list[Curve]]) -> dict[str, Any]:
    """Return when each run first reached the mark.

    The start of the first preset is included: a mark that is no higher was not learned.
    """
    mark = mark_of(curves)
    start = statistics.fmean(float(curve.returns[0]) for curve in next(iter(curves.values())))
    return {
        "start": round(start, 1),
        "mark": round(mark, 1),
        "presets": {name: [_against(mark, curve) for curve in own] for name, own in curves.items()},
    }


def _against(mark: float, curve: Curve) -> dict[str, Any]:
    reached = curve.reaches(mark)
    return {
        "minutes_to_mark": reached and round(reached[0], 2),
        "steps_to_mark": reached and reached[1],
        "minutes": round(float(curve.minutes[-1]), 2),
        "last_return": round(end_of(curve), 1),
    }


def panels_for(count: int) -> tuple[Any, list[Any]]:
    """Return a figure with ``count`` panels, up to four in a row."""
    columns = min(4, count)
    rows = -(-count // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(3.2 * columns, 2.5 * rows), layout="constrained", squeeze=False
    )
    for panel in panels.flat[count:]:
        panel.set_axis_off()
    for panel in panels.flat[:count]:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels.flat[:count])


def draw(curves: dict[str, dict[str, list[Curve]]], axis: str, path: pathlib.Path) -> None:
    figure, panels = panels_for(len(curves))
    for panel, (task, of_task) in zip(panels, curves.items(), strict=True):
        for colour, (name, own) in zip(COLOURS, of_task.items(), strict=False):
            for number, curve in enumerate(own):
                over = curve.minutes if axis == "minutes" else curve.steps / 1e6
                panel.plot(over, curve.returns, color=colour, linewidth=1.4, label=None if number else name)
        panel.axhline(mark_of(of_task), color="#999999", linewidth=0.8, linestyle=":")
        panel.set(
            title=task,
            xlabel="minutes on this machine" if axis == "minutes" else "environment steps (millions)",
        )
        from_zero(panel)
        if axis == "steps":
            panel.set_xscale("log")
    panels[0].set_ylabel("return in training")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def table(found: dict[str, dict[str, Any]]) -> str:
    names = list(next(iter(found.values()))["presets"])
    head = [
        "task",
        "start",
        "mark",
        *(f"{name}: minutes (steps) to it" for name in names),
        *(f"{name}: end" for name in names),
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for task, result in found.items():
        of_presets = result["presets"].values()
        reached = ["; ".join(_reached(run) for run in runs) for runs in of_presets]
        ends = [
            "; ".join(f"{run['last_return']:.0f} after {run['minutes']:.1f} min" for run in runs)
            for runs in of_presets
        ]
        lines.append(
            f"| {task} | {result['start']:.0f} | {result['mark']:.0f} | {' | '.join(reached + ends)} |"
        )
    return "\n".join(lines)


def _reached(run: dict[str, Any]) -> str:
    return (
        "not reached"
        if run["minutes_to_mark"] is None
        else f"{run['minutes_to_mark']:.2f} ({run['steps_to_mark'] / 1e6:.2f} M)"
    )


def _check_same(path: pathlib.Path, name: str, task: str) -> None:
    """Raise if an existing run was trained with an older version of the preset."""
    changed = differences(open_run(path).config, preset(name, task))
    if changed:
        raise SystemExit(
            f"{path} is not a run of the current preset {name}: {', '.join(changed)}. Remove it, or give "
            "another folder with --runs."
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--presets", nargs="+", default=["nc-gru", "fast"])
    parser.add_argument("--steps", type=int, default=3_008_000, help="steps of the first preset")
    parser.add_argument("--minutes", type=float, default=3.0, help="minutes of the other presets")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each preset, with seeds 0, 1, …")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/race"))
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("docs/results/race"),
        help="path of pictures and numbers, without suffix",
    )
    arguments = parser.parse_args()
    if len(arguments.presets) > len(COLOURS):
        parser.error(f"{len(arguments.presets)} presets were given, but there are colours for {len(COLOURS)}")
    if arguments.seeds < 1:
        parser.error(f"seeds is {arguments.seeds}, but at least 1 is needed")
    unknown = [name for name in arguments.presets if name not in PRESETS]
    if unknown:
        # Checked before the first run, which may take minutes.
        parser.error(f"there are no presets {', '.join(unknown)}; known: {', '.join(PRESETS)}")
    curves: dict[str, dict[str, list[Curve]]] = {}
    for task in arguments.tasks:
        curves[task] = {name: [] for name in arguments.presets}
        for seed, name in itertools.product(range(arguments.seeds), arguments.presets):
            out = arguments.runs / task / name / f"seed-{seed}"
            first = name == arguments.presets[0]
            if not out.exists():
                train(
                    task,
                    name,
                    seed,
                    out,
                    arguments.steps if first else None,
                    None if first else arguments.minutes,
                )
            if first and open_run(out).read_metrics()[-1]["env_steps"] < open_run(out).config.final_steps:
                raise SystemExit(
                    f"{out} was not trained to its end, so it cannot set the mark. Resume it, or remove it."
                )
            _check_same(out, name, task)
            curves[task][name].append(read_curve(out))
        print(table({task: compare(curves[task])}), flush=True)
    found = {task: compare(of_task) for task, of_task in curves.items()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(
        json.dumps({"seeds": arguments.seeds, "tasks": found}, indent=1) + "\n"
    )
    for axis in ("minutes", "steps"):
        draw(curves, axis, arguments.out.with_name(f"{arguments.out.name}_{axis}.png"))
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
