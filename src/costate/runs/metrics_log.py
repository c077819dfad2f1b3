"""Write metrics to disk: one JSON line and one TensorBoard event per iteration."""

import abc
import contextlib
import json
import math
import time
from collections.abc import Callable

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from costate._base.distrust import read_bounded
from costate._base.errors import CheckpointError
from costate._base.files import check_replaceable, explained_errors, open_to_append, write_atomically
from costate.runs.metrics_rows import MetricsRows
from costate.runs.run_directory import LARGEST_LOG, Run

Row = dict[str, float | int]


def known(row: Row) -> Row:
    """Drop NaN values, such as the return when no episode ended, since JSON has no NaN."""
    return {name: value for name, value in row.items() if math.isfinite(value)}


class AbstractLog(abc.ABC):
    """Receiver of one row for every iteration of a run."""

    @abc.abstractmethod
    def write(self, row: Row) -> None:
        """Write one row. Missing numbers, such as the return when no episode ended, are NaN."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the log. No more rows follow."""


class MetricsLog(AbstractLog):
    """Append rows to ``metrics.jsonl`` and to TensorBoard.

    A resumed run first drops the rows that it is about to compute again. Lines that cannot be read are moved
    to a file of their own, and reported through ``warn``.
    """

    def __init__(self, run: Run, iteration: int, env_steps: int, warn: Callable[[str], None]) -> None:
        log = run.read_log()
        kept = [row for row in log.rows if row["env_steps"] <= env_steps]
        _check_no_links(run)
        set_aside(run, log, len(kept) < iteration, warn)
        write_atomically(run.metrics, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self._path = run.metrics
        with explained_errors(run.metrics):
            self._file = open_to_append(run.metrics)
            # Written in this thread. tensorboardX's usual writer is a thread behind a queue: a full disk ends
            # the thread silently, and the queue then blocks for ever.
            self._events = EventsWriter(str(run.path / "events"), f".{iteration}")
            # Tells TensorBoard to hide what an interrupted run logged after the checkpoint.
            self._events.write_event(
                Event(
                    wall_time=time.time(), step=env_steps + 1, session_log=SessionLog(status=SessionLog.START)
                )
            )

    def write(self, row: Row) -> None:
        """Write the numbers of one iteration, without NaN."""
        numbers = known(row)
        summary = Summary(
            value=[
                Summary.Value(tag=name, simple_value=value) for name, value in numbers.items() if "/" in name
            ]
        )
        with explained_errors(self._path):
            self._file.write(f"{json.dumps(numbers)}\n".encode())
            self._file.flush()
            self._events.write_event(
                Event(wall_time=time.time(), step=int(row["env_steps"]), summary=summary)
            )
            self._events.flush()

    def close(self) -> None:
        with explained_errors(self._path), contextlib.ExitStack() as both:
            both.callback(self._events.close)
            both.callback(self._file.close)


def set_aside(run: Run, log: MetricsRows, incomplete: bool, warn: Callable[[str], None]) -> None:
    """Move damaged lines of a log to a file beside it, from where a user may repair them.

    A last line that was cut off is moved only if the log is ``incomplete``. Otherwise its iteration is
    computed again.
    """
    lines = [line.content for line in log.damaged] + (
        [log.cut_off] if incomplete and log.cut_off.strip() else []
    )
    if not lines:
        return
    before = b""
    with contextlib.suppress(CheckpointError):
        before = read_bounded(run.damaged_metrics, LARGEST_LOG)
    # A resumed run that was killed before it rewrote the log has moved some lines already.
    moved = set(before.split(b"\n"))
    write_atomically(
        run.damaged_metrics, before + b"".join(line + b"\n" for line in lines if line not in moved)
    )
    which = log.damaged_lines if log.damaged else "its last line"
    lost = (
        "the iterations on these lines are missing from curves and reports"
        if incomplete
        else "no iteration before the checkpoint is missing"
    )
    warn(
        f"{run.metrics} is damaged in {which}: moved to {run.damaged_metrics}. All other rows are kept; "
        f"{lost}. Training is not affected."
    )


def _check_no_links(run: Run) -> None:
    """Raise if a symbolic link has the name of a file that is written without a rename."""
    for path in (*run.path.glob("events.out.tfevents.*"), run.path / "wandb"):
        if path.is_symlink():
            check_replaceable(path)
