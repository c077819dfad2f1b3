"""The settings and the result of a comparison of a run, as a table and as a file."""

import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from costate._base.checks import MOST_EPISODES, require_at_most
from costate._base.errors import ConfigError
from costate.config.run_config import check_seed
from costate.runs.run_directory import Run
from costate.trained.alignment.comparison import Comparison
from costate.trained.alignment.knockout import Knockout
from costate.trained.alignment.moments import Moments
from costate.trained.alignment.verdicts import knockout_verdict, verdicts

FOLDER = "alignment"
RESULT = "alignment.json"


@dataclasses.dataclass(frozen=True)
class AlignmentSettings:
    """Settings of `costate align`: what is recorded and compared."""

    episodes: int = 6
    """Number of recorded episodes; the last third of them is held out from everything that is fitted."""
    steps: int = 200
    """Number of compared moments of each episode."""
    horizon: int = 100
    """Number of future steps in a true co-state; so many more are recorded than compared."""
    dropout: float | None = None
    """Blackout probability; None for that of training."""
    knockout_episodes: int = 32
    """Number of episodes for each period of erasing the hidden state; 0 skips this."""
    seed: int = 0
    """Seed of episodes and sensor faults."""

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise ConfigError(
                f"episodes is {self.episodes}, but at least 2 are needed: one to fit to, one to test on. "
                "The default is 6."
            )
        if self.steps < 2 or self.horizon < 1:
            raise ConfigError(
                f"steps is {self.steps} and horizon is {self.horizon}, "
                "but at least 2 moments and 1 step of their future are needed."
            )
        if self.knockout_episodes < 0:
            raise ConfigError(
                f"knockout_episodes is {self.knockout_episodes}, but it cannot be negative. Use 0 to skip "
                "the knockout."
            )
        for name in ("episodes", "steps", "horizon", "knockout_episodes"):
            require_at_most(name, getattr(self, name), MOST_EPISODES)
        check_seed(self.seed)


class Alignment(NamedTuple):
    """The result of comparing one run."""

    settings: AlignmentSettings
    dropout: float
    env_steps: int
    comparison: Comparison
    knockout: Knockout | None
    """None if no episodes were played for it."""
    moments: list[Moments]


def to_json(run: Run, found: Alignment) -> dict[str, Any]:
    comparison, knockout = found.comparison, found.knockout
    return {
        "format": 1,
        "task": run.config.task,
        "training_seed": run.config.seed,
        "costate_coef": run.config.costate_coef,
        "settings": dataclasses.asdict(found.settings),
        "dropout": found.dropout,
        "env_steps": found.env_steps,
        "critic_cosine": comparison.critic_cosine,
        "implied_cosine": comparison.implied_cosine,
        "likeness": {
            kind: {name: each._asdict() for name, each in by.items()}
            for kind, by in comparison.likeness.items()
        },
        "hamiltonian_gap": {kind: gap._asdict() for kind, gap in comparison.gaps.items()},
        "knockout": {} if knockout is None else _with_text_keys(knockout.means),
        "knockout_errors": {} if knockout is None else _with_text_keys(knockout.errors),
        "intact": None if knockout is None else knockout.intact,
        "verdicts": all_verdicts(found),
        "episodes": comparison.episodes,
        "held_out": comparison.held_out,
        "moments": comparison.moments,
        "untrusted_moments": sum(each.untrusted for each in found.moments),
        "components": found.moments[0].names,
        "written": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def _with_text_keys(numbers: dict[int, float]) -> dict[str, float]:
    """Return the numbers with text as keys, as JSON needs."""
    return {str(every): value for every, value in numbers.items()}


def read_alignment(path: pathlib.Path) -> dict[str, Any] | None:
    """Read what :func:`write_alignment` wrote beside a run; None if it is missing or damaged."""
    try:
        document = json.loads((path / FOLDER / RESULT).read_text())
        return document if document["format"] == 1 and document["likeness"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def table(found: Alignment) -> str:
    """Format the comparison in aligned columns."""
    comparison, lines = found.comparison, []
    for kind, by in comparison.likeness.items():
        lines.append(f"{f'co-state: {kind}, predicted from …':<44}{'probe R²':>10}{'CCA':>10}{'CKA':>10}")
        lines += [f"  {name:<42}" + "".join(f"{value:>10.3f}" for value in each) for name, each in by.items()]
    lines += _named("cos(h, ∂V/∂ỹ) of the critic", comparison.critic_cosine)
    for kind, cosine in comparison.implied_cosine.items():
        lines += _named(f"cos((∂ỹ/∂x)ᵀh, −λ), {kind}", cosine)
    for kind, gap in comparison.gaps.items():
        lines += _named(f"Hamiltonian gap (0 minimises), {kind}", gap._asdict())
    if found.knockout is not None:
        erased = _with_text_keys(found.knockout.means)
        lines.append(
            f"{'mean return, h erased every … steps':<44}"
            + "".join(f"{every:>8}" for every in (*erased, "never"))
        )
        means = *erased.values(), found.knockout.intact
        lines.append(" " * 44 + "".join(f"{value:>8.1f}" for value in means))
    untrusted = sum(each.untrusted for each in found.moments)
    if untrusted:
        lines.append(
            f"left out: {untrusted} of {untrusted + comparison.moments} moments, whose co-states cannot be "
            "trusted"
        )
    return "\n".join(lines)


def all_verdicts(found: Alignment) -> list[str]:
    """Return a sentence for each measure, compared with its controls."""
    said = verdicts(found.comparison)
    return said if found.knockout is None else [*said, knockout_verdict(found.knockout)]


def _named(what: str, by: dict[str, float]) -> Sequence[str]:
    """Return a heading and an indented line for every name."""
    return [what, *(f"  {name:<42}{value:>10.3f}" for name, value in by.items())]
