"""Record how a run was trained, as a list of stretches.

A new stretch begins when a run is extended, its learning rate is halved, or it continues on another machine.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from costate._base.errors import RunDirectoryError


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Consecutive iterations that were trained with the same settings."""

    from_iteration: int
    """Number of iterations before the first of this stretch."""
    steps: int
    """Environment steps that the run was to train for in total."""
    slowdowns: int = 0
    """Number of times that the learning rate had been halved because training diverged."""
    elsewhere: tuple[str, ...] = ()
    """Sentences on changes since the run began: the machine, its devices or the seeds trained together."""


def went_on(history: Sequence[Stretch], stretch: Stretch) -> tuple[Stretch, ...]:
    """Append ``stretch`` to the history of a run that continues with it.

    Everything trained after the start of ``stretch`` is trained again, so it is dropped.
    """
    kept = tuple(before for before in history if before.from_iteration < stretch.from_iteration)
    is_unchanged = kept and dataclasses.replace(kept[-1], from_iteration=stretch.from_iteration) == stretch
    return kept if is_unchanged else (*kept, stretch)


def to_plain(history: Sequence[Stretch]) -> list[dict[str, Any]]:
    """Convert a history to JSON, without fields at their defaults."""
    fields = [field for field in dataclasses.fields(Stretch) if field.name not in ("from_iteration", "steps")]
    return [
        {"from_iteration": stretch.from_iteration, "steps": stretch.steps}
        | {
            field.name: getattr(stretch, field.name)
            for field in fields
            if getattr(stretch, field.name) != field.default
        }
        for stretch in history
    ]


def from_plain(data: Any, source: str) -> tuple[Stretch, ...]:
    """Invert :func:`to_plain`. Anything else raises an error that names ``source``."""
    try:
        stretches = tuple(
            Stretch(**entry | {"elsewhere": tuple(entry.get("elsewhere", ()))}) for entry in data
        )
    except (TypeError, AttributeError) as error:
        raise _altered(source) from error
    starts = [stretch.from_iteration for stretch in stretches]
    counts = [
        *starts,
        *(stretch.steps for stretch in stretches),
        *(stretch.slowdowns for stretch in stretches),
    ]
    sentences = [sentence for stretch in stretches for sentence in stretch.elsewhere]
    well_typed = all(type(count) is int and count >= 0 for count in counts) and all(
        isinstance(sentence, str) for sentence in sentences
    )
    if (
        not well_typed
        or not starts
        or starts[0] != 0
        or any(after <= before for before, after in itertools.pairwise(starts))
    ):
        raise _altered(source)
    return stretches


def _altered(source: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{source} was altered: its history should be a list of stretches with steps and with "
        "from_iteration, which starts at 0 and increases. Restore the file that `costate train` wrote, or "
        "train the run again."
    )
