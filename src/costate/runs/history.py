"""How a run was trained, stretch by stretch: a new stretch begins where it was made longer, slowed down, or went on elsewhere."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from costate._base.errors import RunDirectoryError


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Iterations that were trained in one way."""

    from_iteration: int
    """Iterations of the run before the first of these."""
    steps: int
    """Environment steps that the run was asked for."""
    slowdowns: int = 0
    """How many times the learning rate had been halved because training diverged."""
    elsewhere: tuple[str, ...] = ()
    """In what the machine, its devices or the seeds trained together differed from those that the run began with, as sentences."""


def went_on(history: Sequence[Stretch], stretch: Stretch) -> tuple[Stretch, ...]:
    """The history of a run that goes on with ``stretch``. What was trained after that point is trained again, so it no longer counts."""
    kept = tuple(before for before in history if before.from_iteration < stretch.from_iteration)
    goes_on_as_before = (
        kept and dataclasses.replace(kept[-1], from_iteration=stretch.from_iteration) == stretch
    )
    return kept if goes_on_as_before else (*kept, stretch)


def to_plain(history: Sequence[Stretch]) -> list[dict[str, Any]]:
    """A history as JSON; what is at its default is left out."""
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
    """The inverse of :func:`to_plain`; anything else is an error that names ``source``."""
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
    whole = all(type(count) is int and count >= 0 for count in counts) and all(
        isinstance(sentence, str) for sentence in sentences
    )
    if (
        not whole
        or not starts
        or starts[0] != 0
        or any(after <= before for before, after in itertools.pairwise(starts))
    ):
        raise _altered(source)
    return stretches


def _altered(source: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{source} was altered: its history should be a list of stretches with from_iteration, which begins at 0 and grows, and steps. "
        "Put the file back that `costate train` wrote, or train the run again."
    )
