"""Train for hours with all features on, and record memory, open files and speed.

    python benchmarks/soak.py --minutes 120 --out soak

A run is trained with checkpoints and the live view. A viewer connects, leaves and comes back, and another
process evaluates the run from time to time. At the end the run is evicted as a cluster would do it (SIGTERM),
and must have saved everything. ``--out`` receives samples.jsonl, soak.json and soak.png. Needs /proc, that
is, Linux.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from onlooker import free_port, somebody_looks

SECONDS_BETWEEN_SAMPLES = 20.0
SECONDS_PER_VISIT = 280.0
SECONDS_AWAY = 20.0
# Share of the time at the start that is ignored, while allocators and caches fill up.
SETTLING = 0.2
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Sample:
    """Resource usage of one process, as the kernel reports it."""

    minutes: float
    process: str
    megabytes: float
    files: int
    threads: int
    processor_seconds: float
    env_steps: int
    """Environment steps of the run at that time."""


def children(pid: int) -> list[int]:
    return [
        int(child)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def sample(pid: int, process: str, minutes: float, env_steps: int) -> Sample:
    folder = pathlib.Path(f"/proc/{pid}")
    # The name of the program is in parentheses, and may contain anything.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    resident = int((folder / "statm").read_text().split()[1]) * PAGE / 2**20
    processor = (int(fields[11]) + int(fields[12])) / TICKS
    return Sample(
        minutes,
        process,
        resident,
        len(os.listdir(folder / "fd")),
        len(os.listdir(folder / "task")),
        processor,
        env_steps,
    )


def visit(address: str, over: threading.Event, visits: list[int]) -> None:
    """Connect, leave and come back until ``over`` is set. Append the number of messages of every visit."""
    while not over.is_set():
        received: list[int] = []
        with somebody_looks(address, received):
            over.wait(SECONDS_PER_VISIT)
        visits.append(len(received))
        over.wait(SECONDS_AWAY)


def evaluate(run: pathlib.Path, dropout: float) -> float:
    command = [
        sys.executable,
        "-m",
        "costate.cli",
        "evaluate",
        str(run),
        "--dropout",
        str(dropout),
        "--episodes",
        "8",
        "--json",
    ]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(answer.stdout)["summary"]["mean"])


def read_rows(run: pathlib.Path) -> list[dict[str, float]]:
    """Return the rows of the log, without a line that is being written; empty before the first iteration."""
    if not (run / "metrics.jsonl").exists():
        return []
    return [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def slope(minutes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the slope per hour, the median of all pairwise slopes (Theil and Sen).

    The second value is half of the width of its 95 % interval.
    """
    fit = scipy.stats.theilslopes(values, np.array(minutes) / 60.0)
    return float(fit.slope), float(fit.high_slope - fit.low_slope) / 2.0


def summarise(samples: Sequence[Sample], rows: Sequence[dict[str, float]]) -> dict[str, object]:
    """Return a summary of every process, and of the speed in each third of the time."""
    end = max(each.minutes for each in samples)
    processes = {}
    for name in sorted({each.process for each in samples}):
        settled = [each for each in samples if each.process == name and each.minutes >= SETTLING * end]
        growth, uncertainty = slope([each.minutes for each in settled], [each.megabytes for each in settled])
        processes[name] = {
            "samples": len(settled),
            "megabytes_first": settled[0].megabytes,
            "megabytes_last": settled[-1].megabytes,
            "megabytes_per_hour": growth,
            "megabytes_per_hour_uncertainty": uncertainty,
            "files": [
                min(each.files for each in settled),
                max(each.files for each in settled),
                settled[-1].files,
            ],
            "threads": [
                min(each.threads for each in settled),
                max(each.threads for each in settled),
                settled[-1].threads,
            ],
        }
    speeds = np.array([row["training/sps"] for row in rows[1:]])
    training = [each for each in samples if each.process == "training"]
    # Other programs on the machine cost wall-clock time, but hardly change the work done per second of
    # processor time.
    worked = np.array([each.env_steps for each in training])
    busy = np.array([each.processor_seconds for each in training])
    thirds = [np.array_split(np.arange(len(training)), 3)[i] for i in range(3)]
    return {
        "minutes": end,
        "iterations": len(rows),
        "env_steps": rows[-1]["env_steps"],
        "processes": processes,
        "steps_per_second_by_third": [float(np.median(part)) for part in np.array_split(speeds, 3)],
        "steps_per_processor_second_by_third": [
            float((worked[i[-1]] - worked[i[0]]) / (busy[i[-1]] - busy[i[0]])) for i in thirds
        ],
    }


def draw(samples: Sequence[Sample], rows: Sequence[dict[str, float]], path: pathlib.Path) -> None:
    figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
    for name in sorted({each.process for each in samples}):
        mine = [each for each in samples if each.process == name]
        axes[0].plot([each.minutes for each in mine], [each.megabytes for each in mine], label=name)
        axes[1].plot([each.minutes for each in mine], [each.files for each in mine], label=name)
    axes[2].plot([row["time/elapsed"] / 60.0 for row in rows], [row["training/sps"] for row in rows], lw=0.7)
    for axis, label in zip(axes, ("resident memory, MB", "open files", "steps/s"), strict=True):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
    axes[0].legend()
    axes[2].set_xlabel("minutes")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", default="WalkerStand")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--minutes-between-evaluations", type=float, default=10.0)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    run = options.out / "run"
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
    training = subprocess.Popen(
        [*command, "--steps", "10_000_000_000", "--checkpoint-every", "10"], stdout=subprocess.PIPE, text=True
    )
    assert training.stdout is not None
    over, visits, samples, evaluations = threading.Event(), list[int](), list[Sample](), list[float]()
    visitor: threading.Thread | None = None
    try:
        address = next(found.group() for line in training.stdout if (found := re.search(r"http://\S+", line)))
        threading.Thread(target=training.stdout.read, daemon=True).start()
        visitor = threading.Thread(target=visit, args=(address, over, visits))
        visitor.start()
        while not read_rows(run) and training.poll() is None:
            time.sleep(1.0)
        started = time.monotonic()
        with (options.out / "samples.jsonl").open("w") as log:
            while (minutes := (time.monotonic() - started) / 60.0) < options.minutes:
                if training.poll() is not None:
                    raise SystemExit(f"training ended by itself after {minutes:.1f} minutes")
                steps = int(read_rows(run)[-1]["env_steps"])
                for pid, name in [
                    (training.pid, "training"),
                    *((child, "view") for child in children(training.pid)),
                ]:
                    samples.append(sample(pid, name, minutes, steps))
                    print(json.dumps(dataclasses.asdict(samples[-1])), file=log, flush=True)
                if minutes >= (len(evaluations) + 1) * options.minutes_between_evaluations:
                    evaluations.append(evaluate(run, (0.5, 0.75)[len(evaluations) % 2]))
                time.sleep(SECONDS_BETWEEN_SAMPLES)
    finally:
        over.set()
        training.send_signal(signal.SIGTERM)
        code = training.wait(300)
        if visitor is not None:
            visitor.join()
    rows = read_rows(run)
    saved = max(int(folder.name.removeprefix("step_")) for folder in (run / "checkpoints").glob("step_*"))
    summary = summarise(samples, rows) | {
        "evaluations": evaluations,
        "messages_by_visit": visits,
        "exit": code,
        "saved_steps": saved,
    }
    (options.out / "soak.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(samples, rows, options.out / "soak.png")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
