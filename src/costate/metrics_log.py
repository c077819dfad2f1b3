"""Metrics on disk: one JSON line and one TensorBoard event per iteration."""

import abc
import contextlib
import json
import math
import time

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from costate._files import explained_errors, write_atomically
from costate.run_directory import Run

Row = dict[str, float | int]


class AbstractLog(abc.ABC):
    """Receives one row for every iteration of a run."""

    @abc.abstractmethod
    def write(self, row: Row) -> None:
        """Numbers that do not exist (the return when no episode ended) are NaN."""

    @abc.abstractmethod
    def close(self) -> None:
        """Nothing more comes."""


class MetricsLog(AbstractLog):
    """Appends rows to ``metrics.jsonl`` and to TensorBoard. A resumed run first forgets the rows that it is about to compute again."""

    def __init__(self, run: Run, iteration: int, env_steps: int) -> None:
        kept = [row for row in run.read_metrics() if row["iteration"] <= iteration]
        write_atomically(run.metrics, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self._path = run.metrics
        with explained_errors(run.metrics):
            self._file = open(run.metrics, "a")  # noqa: SIM115  (closed by close())
            # Written in this thread: tensorboardX's usual writer is a thread behind a queue, which a full disk ends silently, and the queue then
            # blocks for ever.
            self._events = EventsWriter(str(run.path / "events"), f".{iteration}")
            # Tells TensorBoard to hide what an interrupted run had logged after the checkpoint.
            self._events.write_event(Event(wall_time=time.time(), step=env_steps + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, row: Row) -> None:
        """One iteration. Numbers that do not exist (the return when no episode ended) are left out, since JSON has no NaN."""
        known = {name: value for name, value in row.items() if math.isfinite(value)}
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in known.items() if "/" in name])
        with explained_errors(self._path):
            self._file.write(json.dumps(known) + "\n")
            self._file.flush()
            self._events.write_event(Event(wall_time=time.time(), step=int(row["env_steps"]), summary=summary))
            self._events.flush()

    def close(self) -> None:
        with explained_errors(self._path), contextlib.ExitStack() as both:
            both.callback(self._events.close)
            both.callback(self._file.close)
