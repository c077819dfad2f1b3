"""Is a run what its folder says? Its first iterations once more, from its config and its seed alone, compared number by number with its log."""

import contextlib
import dataclasses
import math
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from costate._errors import ConfigError, RunDirectoryError
from costate._progress import Tell, nobody
from costate.checkpoint import readable_records
from costate.console import AbstractReporter, Progression
from costate.machine import describe_machine, machine_changes
from costate.run_directory import Run
from costate.training import train_together

# Clocks are the only numbers that differ between two runs of the same thing.
CLOCKS = ("time/", "training/sps")


class Difference(NamedTuple):
    """A number that came out differently."""

    iteration: int
    metric: str
    logged: float
    again: float


@dataclasses.dataclass(frozen=True)
class Verification:
    """What came of doing it again."""

    iterations: int
    numbers: int
    """That were compared."""
    differences: tuple[Difference, ...]
    machine: tuple[str, ...]
    """In what this machine differs from the one that made the run, as sentences."""

    @property
    def same(self) -> bool:
        """Whether every number is the same, bit for bit."""
        return not self.differences

    @property
    def largest(self) -> float:
        """Relative size of the largest difference; infinite where a number is finite in one only."""
        sizes = [abs(d.logged - d.again) / max(abs(d.logged), abs(d.again), 1e-30) for d in self.differences]
        return max((size if math.isfinite(size) else math.inf for size in sizes), default=0.0)


def verify(run: Run, iterations: int = 2, tell: Tell = nobody) -> Verification:
    """Train the first ``iterations`` of a run again, elsewhere, together with the seeds that it was trained with."""
    if iterations < 1:
        raise ConfigError(f"iterations is {iterations}, but at least 1 must be done again to compare anything.")
    logged = run.read_metrics()[:iterations]
    if not logged:
        raise RunDirectoryError(f"{run.path} has logged no iteration yet, so that there is nothing to compare with.")
    _check_pace(run, len(logged))
    noted = run.read_machine()
    devices = noted.get("learner_devices")
    seeds = run.seeds_together
    with tempfile.TemporaryDirectory(prefix="costate-verify-") as folder:
        outs = [pathlib.Path(folder) / f"seed-{seed}" for seed in seeds]
        configs = [dataclasses.replace(run.config, seed=seed) for seed in seeds]
        counter = _Counter(len(logged), tell)
        with contextlib.suppress(_Enough):
            train_together(configs, outs, devices=devices if isinstance(devices, int) else None, reporter=counter)
        again = Run(outs[seeds.index(run.config.seed)], run.config).read_metrics()[: len(logged)]
    if len(again) < len(logged):
        # Somebody asked for a stop meanwhile.
        raise KeyboardInterrupt
    return Verification(len(logged), *compare(logged, again), machine_changes(noted, describe_machine()))


def _check_pace(run: Run, iterations: int) -> None:
    """Raise if the learning rate was halved in these iterations: the log is then of the slower attempt only, and what came before it is gone."""
    records = [*readable_records(run.milestones), *readable_records(run.checkpoints)]
    times = max((record.slowdowns for record in records), default=0)
    # Whatever was saved before the first time was computed from the config alone, and so was all that led to it.
    undisturbed = max((record.iteration for record in records if record.slowdowns == 0), default=0)
    if times == 0 or iterations <= undisturbed:
        return
    halved = "once" if times == 1 else f"{times} times"
    possible = (
        f"Only the first {undisturbed} are known to be from before: use --iterations {undisturbed} or less."
        if undisturbed
        else "No iteration is known to be from before, so nothing of this run can be verified."
    )
    raise ConfigError(
        f"{run.path} diverged and slowed down by itself (--diverged slow-down): its learning rate was halved {halved}, and some of the first "
        f"{iterations} iterations in its log may be of that slower attempt. Doing them again at the rate of the config would give other "
        f"numbers, although nothing is wrong with the run. {possible}"
    )


class _Enough(Exception):  # noqa: N818  (nothing went wrong)
    """As many iterations as were wanted."""


class _Counter(AbstractReporter):
    """Ends training after so many iterations."""

    def __init__(self, wanted: int, tell: Tell) -> None:
        self._wanted, self._tell = wanted, tell
        tell(None, "compiling")

    def say(self, text: str) -> None:
        """Nobody is told of a run that is thrown away."""

    def progress(self, progression: Progression) -> None:
        done = int(progression.row["iteration"])
        self._tell(done / self._wanted, f"iteration {done} of {self._wanted}")
        if done >= self._wanted:
            raise _Enough

    def close(self) -> None:
        """Nothing is open."""


def compare(logged: Sequence[dict[str, Any]], again: Sequence[dict[str, Any]]) -> tuple[int, tuple[Difference, ...]]:
    """How many numbers there are, and which of them differ in any bit. One that is missing in either counts as not a number."""
    numbers, differences = 0, []
    for row, other in zip(logged, again, strict=True):
        for name in sorted(row.keys() | other.keys()):
            if name.startswith(CLOCKS):
                continue
            numbers += 1
            left, right = (float(each.get(name, math.nan)) for each in (row, other))
            both_missing = math.isnan(left) and math.isnan(right) and name in row and name in other
            if left != right and not both_missing:
                differences.append(Difference(int(row["iteration"]), name, left, right))
    return numbers, tuple(differences)
