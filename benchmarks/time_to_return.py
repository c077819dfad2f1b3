"""Print the returns of runs after some minutes, and when they first reached a return, from their logs.

    python benchmarks/time_to_return.py runs/WalkerStand/nc-sac-gru/seed-* --minutes 5 10 15 --reach 900
    [--json FILE]

Minutes are those of the run's own clock: compiling and saving count, building the simulator does not. A
return is that of the newest row in which episodes ended, with exploring controls under training blackouts.
Off-policy, all environments end together, so a row is a whole episode of each.
"""

import argparse
import json
import pathlib
import statistics
import sys
from typing import Any

from costate.runs.run_directory import Run, open_run

RETURN, CLOCK = "training/episode_reward", "time/elapsed"


def points(run: Run) -> list[tuple[float, int, float]]:
    """Return minute, environment steps and return of every row in which episodes ended."""
    return [(row[CLOCK] / 60.0, row["env_steps"], row[RETURN]) for row in run.read_metrics() if RETURN in row]


def summary(run: Run, minutes: list[float], reach: float) -> dict[str, Any]:
    known = points(run)
    reached = next(((minute, steps) for minute, steps, value in known if value >= reach), None)
    return {
        "task": run.config.task,
        "seed": run.config.seed,
        "return_after_minutes": {
            f"{limit:g}": next((value for minute, _, value in reversed(known) if minute <= limit), None)
            for limit in minutes
        },
        "steps_after_minutes": {
            f"{limit:g}": next((steps for minute, steps, _ in reversed(known) if minute <= limit), None)
            for limit in minutes
        },
        "trained_minutes": known[-1][0] if known else 0.0,
        "reached": reach,
        "reached_after_minutes": reached[0] if reached else None,
        "reached_after_steps": reached[1] if reached else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the returns of runs after some minutes.")
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--minutes", nargs="+", type=float, default=[15.0, 30.0, 60.0])
    parser.add_argument("--reach", type=float, default=900.0)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    found = [summary(open_run(path), arguments.minutes, arguments.reach) for path in arguments.runs]
    for each in found:
        known = each["trained_minutes"]
        returns = "  ".join(
            f"{limit} min: {f'{value:.0f}' if value is not None and known >= 0.9 * float(limit) else '–'}"
            for limit, value in each["return_after_minutes"].items()
        )
        when = each["reached_after_minutes"]
        ending = (
            f"{arguments.reach:g} after {when:.1f} min, {each['reached_after_steps']:,} steps"
            if when is not None
            else f"{arguments.reach:g} not reached"
        )
        print(f"{each['task']} seed {each['seed']}: {returns}  {ending}")
    times = [each["reached_after_minutes"] for each in found if each["reached_after_minutes"] is not None]
    if len(times) == len(found) > 1:
        print(f"median: {arguments.reach:g} after {statistics.median(times):.1f} min")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
