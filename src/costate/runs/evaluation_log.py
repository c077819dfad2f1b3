"""Store evaluations made during training, one line of JSON each, and find the best policy among them."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from costate._base.errors import CheckpointError
from costate._base.files import explained_errors, write_atomically
from costate.runs.checkpoint import folders, steps_of
from costate.runs.run_directory import Run

FILE = "in_training.jsonl"


@dataclasses.dataclass(frozen=True)
class TrainingEvaluation:
    """Returns without exploration noise at one point of training."""

    iteration: int
    env_steps: int
    returns: tuple[float, ...]
    restarts: tuple[int, ...]
    """Episodes that each environment has started.

    A resumed run continues with the episodes that follow.
    """

    @property
    def mean(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def deviation(self) -> float:
        """Standard deviation over the episodes."""
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.returns) / len(self.returns))


def log_file(run: Run) -> pathlib.Path:
    return run.evaluations / FILE


def read_log(run: Run) -> list[TrainingEvaluation]:
    """Return the evaluations made so far, oldest first. A damaged line raises an error that names it."""
    path = log_file(run)
    if not path.is_file():
        return []
    return [
        _parse(line, path, number)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
    ]


def write_log(run: Run, evaluations: Sequence[TrainingEvaluation]) -> None:
    """Replace the log. It is small, so it is written whole and never contains half a line."""
    path = log_file(run)
    with explained_errors(path):
        path.parent.mkdir(exist_ok=True)
    write_atomically(
        path, "".join(json.dumps(dataclasses.asdict(each)) + "\n" for each in evaluations).encode()
    )


def best_of(evaluations: Sequence[TrainingEvaluation]) -> TrainingEvaluation | None:
    """Return the evaluation with the highest mean return, the first of equal ones; None if there is none."""
    return max(evaluations, key=lambda each: each.mean, default=None)


def best_step(run: Run) -> int:
    """Return the environment steps of the best policy that was saved."""
    saved = [steps_of(folder) for folder in folders(run.best)]
    if not saved:
        raise CheckpointError(
            f"{run.path} has no best policy, because it was not evaluated during training: it was too short, "
            "or it was trained with --evaluate-every 0 or by an earlier version. Leave --step out to use "
            "the newest policy."
        )
    # There are two only if the process was killed between saving one and removing the other.
    means = {each.env_steps: each.mean for each in read_log(run)}
    return max(saved, key=lambda step: (means.get(step, -math.inf), step))


def _parse(line: str, path: pathlib.Path, number: int) -> TrainingEvaluation:
    try:
        record: dict[str, Any] = json.loads(line)
        returns, restarts = tuple(map(float, record["returns"])), tuple(record["restarts"])
        counts = (record["iteration"], record["env_steps"], *restarts)
        if not returns or len(returns) != len(restarts) or not all(map(math.isfinite, returns)):
            raise ValueError(line)
        if not all(type(count) is int and 0 <= count < 2**31 for count in counts[2:]) or not all(
            type(count) is int for count in counts
        ):
            raise ValueError(line)
        return TrainingEvaluation(record["iteration"], record["env_steps"], returns, restarts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged: line {number} is not an evaluation that `costate train` wrote. Remove that "
            "line, or the file, to continue; training is not affected, but later evaluations use different "
            "episodes."
        ) from error
