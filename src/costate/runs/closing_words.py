"""Summarise a finished run: its return with exploration noise, without noise, and at its best."""

from costate.runs.evaluation_log import best_of, read_log
from costate.runs.run_directory import Run


def closing_words(run: Run, prefix: str = "") -> list[str]:
    """Return the lines to print when a run is over."""
    noisy = [row["training/episode_reward"] for row in run.read_metrics() if "training/episode_reward" in row]
    evaluations = read_log(run)
    best = best_of(evaluations)
    if not noisy:
        return []
    line = f"{prefix}return in training, with exploration noise: {noisy[-1]:.1f}"
    if best is None:
        return [f"{line}; without noise it may differ: costate evaluate {run.path}"]
    last = evaluations[-1]
    lines = [f"{line}; without noise: {last.mean:.1f} ({len(last.returns)} episodes)"]
    if best.env_steps != last.env_steps:
        lines.append(
            f"{prefix}best without noise: {best.mean:.1f} after {best.env_steps:,} steps: "
            f"costate evaluate {run.path} --step best"
        )
    return lines
