"""Measure the cost of `costate train --live`: the speed of one run with and without a viewer, in turns.

    python benchmarks/live_cost.py WalkerStand --rounds 4 --iterations 4

The viewer is a connection that receives everything and draws nothing. Drawing costs time in the browser, on
whatever machine that runs.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from onlooker import free_port, somebody_looks


def speeds(metrics: pathlib.Path) -> list[float]:
    return (
        [json.loads(line)["training/sps"] for line in metrics.read_text().splitlines()]
        if metrics.exists()
        else []
    )


def next_speeds(metrics: pathlib.Path, count: int) -> list[float]:
    """Return the speeds of the next ``count`` whole iterations, without the one under way."""
    start = len(speeds(metrics)) + 1
    while len(found := speeds(metrics)) < start + count:
        time.sleep(0.2)
    return found[start : start + count]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", default="WalkerStand")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "costate.cli",
            "train",
            options.task,
            "--live",
            "--port",
            str(free_port()),
            "--out",
            str(run),
        ]
        process = subprocess.Popen([*command, "--checkpoint-every", "5"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            address = next(
                found.group() for line in process.stdout if (found := re.search(r"http://\S+", line))
            )
            drain = threading.Thread(target=process.stdout.read, daemon=True)
            drain.start()
            next_speeds(run / "metrics.jsonl", 2)
            alone, watched, received = [], [], list[int]()
            for _ in range(options.rounds):
                alone.append(statistics.median(next_speeds(run / "metrics.jsonl", options.iterations)))
                with somebody_looks(address, received):
                    watched.append(statistics.median(next_speeds(run / "metrics.jsonl", options.iterations)))
        finally:
            process.terminate()
            process.wait()
    ratios = [1.0 - viewed / unviewed for unviewed, viewed in zip(alone, watched, strict=True)]
    print(
        f"{options.task}: {statistics.median(alone):,.0f} steps/s without a viewer, "
        f"{statistics.median(watched):,.0f} with one"
    )
    rounds = ", ".join(f"{ratio:.1%}" for ratio in ratios)
    print(f"slower by {statistics.median(ratios):.1%} (median of {options.rounds} rounds: {rounds})")
    print(f"{len(received):,} messages, {sum(received) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
