"""Copy the report of a sweep into docs/results: its numbers as JSON and its figures as PNG.

    costate report SWEEP && python benchmarks/publish.py SWEEP

The table for docs/results.md is printed.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np

RESULTS = pathlib.Path(__file__).parents[1] / "docs" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=pathlib.Path)
    parser.add_argument(
        "--figures",
        nargs="*",
        default=None,
        help="names of figures to copy; all if not given",
    )
    arguments = parser.parse_args()
    report = arguments.sweep / "report"
    summary = json.loads((report / "summary.json").read_text())
    name = summary["name"]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        json.dumps(summary, indent=None, separators=(",", ":"), ensure_ascii=False) + "\n"
    )
    for figure in sorted(report.glob("*.png")):
        if arguments.figures is None or figure.stem in arguments.figures:
            shutil.copy(figure, RESULTS / f"{name}_{figure.stem}.png")
    print(table(summary))


def table(summary: dict) -> str:
    """Return a table with one line per task and variant: seeds, and mean return by blackout probability."""
    runs = [run for run in summary["runs"] if run["finished"]]
    dropouts = sorted({evaluation["dropout"] for run in runs for evaluation in run["evaluations"]})
    lines = [
        "| task | variant | seeds | "
        + " | ".join(f"{p:.4g}" for p in dropouts)
        + " | co-state loss | hours |"
    ]
    lines.append("|" + "---|" * (len(dropouts) + 5))
    for cell in summary["cells"]:
        own = [run for run in runs if (run["task"], run["variant"]) == (cell["task"], cell["variant"])]
        if not own:
            lines.append(f"| {cell['task']} | {cell['variant']} | none finished |")
            continue
        means = []
        for dropout in dropouts:
            values = [e["mean"] for run in own for e in run["evaluations"] if e["dropout"] == dropout]
            spread = f" ± {np.std(values, ddof=1):.0f}" if len(values) > 1 else ""
            means.append(f"{np.mean(values):.0f}{spread}" if values else "–")
        hours = sum(run["hours"] for run in own)
        numbers = f"{' | '.join(means)} | {cell['costate_loss']:.2f} | {hours:.2f}"
        lines.append(f"| {cell['task']} | {cell['variant']} | {len(own)} | {numbers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
