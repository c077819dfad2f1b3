"""Metrics on disk: one JSON line and one TensorBoard event per iteration."""

import json
import math

from tensorboardX import SummaryWriter

from costate._files import explained_errors, write_atomically
from costate.run_directory import Run

Row = dict[str, float | int]


class MetricsLog:
    """Appends rows to ``metrics.jsonl`` and to TensorBoard. A resumed run first forgets the rows that it is about to compute again."""

    def __init__(self, run: Run, iteration: int, env_steps: int) -> None:
        kept = [row for row in run.read_metrics() if row["iteration"] <= iteration]
        write_atomically(run.metrics, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self._path = run.metrics
        with explained_errors(run.metrics):
            self._file = open(run.metrics, "a")  # noqa: SIM115  (closed by close())
            self._events = SummaryWriter(str(run.path), purge_step=env_steps, write_to_disk=True)

    def write(self, row: Row) -> None:
        """One iteration. Numbers that do not exist (the return when no episode ended) are left out, since JSON has no NaN."""
        known = {name: value for name, value in row.items() if math.isfinite(value)}
        with explained_errors(self._path):
            self._file.write(json.dumps(known) + "\n")
            self._file.flush()
            for name, value in known.items():
                if "/" in name:
                    self._events.add_scalar(name, value, int(row["env_steps"]))

    def close(self) -> None:
        with explained_errors(self._path):
            self._file.close()
            self._events.close()
