"""Compare half-blind soft actor-critic after some minutes with published returns of PPO with full sight.

    taskset -c 0 python benchmarks/half_blind.py CheetahRun WalkerRun --minutes 15 30 60 --runs
    runs/half_blind
    python benchmarks/half_blind.py --runs runs/half_blind --minutes 15 30 60 --out docs/results/half_blind

The first command trains every task up to the first limit, then continues those that have not reached their
mark up to the next limit. The mark is 95 % of the published return. A run reaches it, and stops, by its
training return (exploring controls, blackouts) over the last five episodes of every environment that does not
explore at random: 80 episodes with the default of 16 environments. The second command, without tasks,
evaluates the runs and writes table, numbers and picture. Minutes are those of a run's own clock: compiling
and saving count, pauses between limits do not.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

from race import panels_for, read_curve
from time_to_return import CLOCK, points

from costate.config.presets import preset
from costate.envs.tasks import PAPER_TASKS
from costate.experiments.known_returns import known_returns
from costate.runs.interrupts import INTERRUPTED
from costate.runs.pictures import from_zero
from costate.runs.run_directory import open_run
from costate.trained.evaluation import evaluate

# The highest published return of PPO with full observation, after tens of millions of steps or more: SLM-Lab
# (100 M steps) or tuned runs of MuJoCo Playground (second-hand; the middle of a range). Other methods are
# higher on some tasks: `costate tasks TASK` shows the best.
SIGHTED = {
    task: found.mean_return
    for task in PAPER_TASKS
    if (found := known_returns(task).best_sighted_by("PPO")) is not None
}
# Settings for tasks on which the defaults learn nothing in a few minutes: rewards are found by accident, and
# differences between controls are small compared with the critic's error. More environments cost almost
# nothing there, because the physics is fast.
PATIENT = (
    "--learning-rate",
    "5e-4",
    "--target-rate",
    "0.02",
    "--replay.capacity",
    "3_000_000",
    "--warmup-steps",
    "50_000",
)
SETTINGS = {
    "FingerTurnHard": (*PATIENT, "--environments", "128", "--steps-per-update", "128", "--explorers", "32"),
    "FishSwim": (*PATIENT, "--environments", "64", "--steps-per-update", "64"),
}
SHARE = 0.95
# Rows of the log in the mean. A row is one episode of each environment.
ROWS = 5
DROPOUTS = (0.5, 0.75)


def mark(task: str) -> float:
    """Return the return at which a run stops."""
    return SHARE * SIGHTED.get(task, float("inf"))


def clock(path: pathlib.Path) -> float:
    """Return the minutes that a run has been trained for."""
    rows = open_run(path).read_metrics() if path.exists() else []
    return rows[-1][CLOCK] / 60.0 if rows else 0.0


def reached_mark(path: pathlib.Path, task: str) -> bool:
    """Return True if the newest episodes reach the mark."""
    known = points(open_run(path))[-ROWS:] if path.exists() else []
    return len(known) == ROWS and statistics.fmean(value for _, _, value in known) >= mark(task)


def train(task: str, path: pathlib.Path, minutes: float, options: list[str]) -> None:
    """Start or continue training until the run reaches the mark or its minutes are over."""
    started = (
        ["train", "--resume", str(path)] if path.exists() else ["train", task, "--out", str(path), *options]
    )
    process = subprocess.Popen([sys.executable, "-m", "costate.cli", *started], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(5.0)
        if (path / "metrics.jsonl").exists() and (clock(path) >= minutes or reached_mark(path, task)):
            process.send_signal(signal.SIGINT)
            process.wait()
    if process.returncode not in (0, INTERRUPTED):
        raise SystemExit(f"Training {task} ended with exit code {process.returncode}; see its output above.")


def result_of(path: pathlib.Path, task: str, minutes: list[float], episodes: int) -> dict[str, Any]:
    curve, run = read_curve(path), open_run(path)
    trained = float(curve.minutes[-1])
    after = {
        f"{limit:g}": round(float(curve.returns[curve.minutes <= limit][-1]), 1)
        for limit in minutes
        if trained >= 0.95 * limit
    }
    reached = curve.reaches(mark(task))
    evaluated = {
        f"{dropout:g}": round(evaluate(run.path, dropout=dropout, episodes=episodes)[0].mean, 1)
        for dropout in DROPOUTS
    }
    return {
        "sighted": SIGHTED.get(task),
        "settings": " ".join(SETTINGS.get(task, ())) or None,
        "after_minutes": after,
        "minutes": round(trained, 1),
        "steps": int(curve.steps[-1]),
        "last": round(float(curve.returns[-1]), 1),
        "mark": mark(task) if task in SIGHTED else None,
        "reached": reached and {"minutes": round(reached[0], 1), "steps": reached[1]},
        "evaluated": evaluated,
    }


def table(found: dict[str, dict[str, Any]], minutes: list[float]) -> str:
    head = [
        "task",
        *(f"{limit:g} min" for limit in minutes),
        "end",
        "95 % of full sight reached",
        "evaluated at 50 %",
        "at 75 %",
        "published with full sight",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for task, each in found.items():
        reached, sighted = each["reached"], each["sighted"]
        missing = "reached" if reached else "not run"
        cells = [
            f"{each['after_minutes'][f'{limit:g}']:.0f}" if f"{limit:g}" in each["after_minutes"] else missing
            for limit in minutes
        ]
        cells.append(f"{each['last']:.0f} after {each['minutes']:.0f} min, {each['steps'] / 1e6:.1f} M steps")
        cells.append(
            f"after {reached['minutes']:.1f} min, {reached['steps']:,} steps"
            if reached
            else "no"
            if sighted
            else "no figure"
        )
        cells += [f"{each['evaluated'][f'{dropout:g}']:.0f}" for dropout in DROPOUTS]
        lines.append(f"| {task} | {' | '.join(cells)} | {f'{sighted:.0f}' if sighted else 'none known'} |")
    return "\n".join(lines)


def draw(paths: dict[str, pathlib.Path], out: pathlib.Path) -> None:
    figure, panels = panels_for(len(paths))
    for panel, (task, path) in zip(panels, paths.items(), strict=True):
        curve = read_curve(path)
        panel.plot(curve.minutes, curve.returns, color="#4477aa", linewidth=1.6)
        if task in SIGHTED:
            panel.axhline(SIGHTED[task], color="#ee6677", linewidth=1.0, linestyle="--")
            panel.axhline(mark(task), color="#ee6677", linewidth=0.8, linestyle=":")
        panel.set(title=task, xlabel="minutes on one core")
        from_zero(panel)
    panels[0].set_ylabel("return in training, half blind")
    figure.savefig(out, dpi=120)


def publish(runs: pathlib.Path, seed: int, minutes: list[float], episodes: int, out: pathlib.Path) -> None:
    paths = {
        task: runs / task / f"seed-{seed}" for task in PAPER_TASKS if (runs / task / f"seed-{seed}").exists()
    }
    if not paths:
        raise SystemExit(f"There are no runs in {runs}. Train some first: give tasks.")
    found = {task: result_of(path, task, minutes, episodes) for task, path in paths.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps({"seed": seed, "tasks": found}, indent=1) + "\n")
    draw(paths, out.with_suffix(".png"))
    print(table(found, minutes))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", help="tasks to train; none to publish the existing runs")
    parser.add_argument("--minutes", nargs="+", type=float, default=[15.0, 30.0, 60.0])
    parser.add_argument("--preset", default="sac-gru")
    parser.add_argument(
        "--capacity",
        type=int,
        default=1_000_000,
        help="steps in the replay, for tasks without settings of their own",
    )
    parser.add_argument(
        "--steps", type=int, default=100_000_000, help="total steps, more than the minutes allow"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=100, help="episodes of an evaluation")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/half_blind"))
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("docs/results/half_blind"),
        help="path of picture and numbers, without suffix",
    )
    arguments = parser.parse_args()
    options = [
        "--preset",
        arguments.preset,
        "--replay.capacity",
        str(arguments.capacity),
        "--steps",
        str(arguments.steps),
        "--seed",
        str(arguments.seed),
    ]
    for limit in sorted(arguments.minutes):
        for task in arguments.tasks:
            path = arguments.runs / task / f"seed-{arguments.seed}"
            if (
                path.exists()
                and open_run(path).config.costate_coef != preset(arguments.preset, task).costate_coef
            ):
                parser.error(f"{path} is not a run of {arguments.preset}; give another folder with --runs")
            if clock(path) < limit and not reached_mark(path, task):
                train(task, path, limit, [*options, *SETTINGS.get(task, ())])
                print(f"{task}: {read_curve(path).returns[-1]:.0f} after {clock(path):.1f} min", flush=True)
    if not arguments.tasks:
        publish(arguments.runs, arguments.seed, sorted(arguments.minutes), arguments.episodes, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
