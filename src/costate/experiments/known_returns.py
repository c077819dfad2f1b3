"""Known returns of a task: the best ones measured half blind here, and published ones with full sight."""

import dataclasses
import functools
import importlib.resources
import tomllib
from typing import Any


@dataclasses.dataclass(frozen=True)
class HalfBlind:
    """The best mean return of 100 episodes at 50 % blackout, without exploration noise."""

    mean_return: float
    command: str
    """Command that trained the policy."""
    steps: int | None
    """Environment steps of training; None if only the time is recorded."""
    source: str


@dataclasses.dataclass(frozen=True)
class Sighted:
    """A published return with full sight."""

    mean_return: float
    method: str
    steps: int | None
    """Environment steps of training; None if the source does not say."""
    source: str


@dataclasses.dataclass(frozen=True)
class KnownReturns:
    """Known returns of one task; empty for most tasks."""

    half_blind: HalfBlind | None = None
    sighted: tuple[Sighted, ...] = ()

    @property
    def best_sighted(self) -> Sighted | None:
        """The highest published return, of any method."""
        return max(self.sighted, key=lambda each: each.mean_return, default=None)

    def best_sighted_by(self, method: str) -> Sighted | None:
        """Return the highest published return of a method, with any settings."""
        return KnownReturns(
            sighted=tuple(each for each in self.sighted if each.method.startswith(method))
        ).best_sighted


def known_returns(task: str) -> KnownReturns:
    """Return the known returns of a dm_control task."""
    record = _table().get(task, {})
    half_blind = record.get("half_blind")
    return KnownReturns(
        None
        if half_blind is None
        else HalfBlind(
            float(half_blind["return"]), half_blind["command"], half_blind.get("steps"), half_blind["source"]
        ),
        tuple(
            Sighted(float(each["return"]), each["method"], each.get("steps"), each["source"])
            for each in record.get("sighted", ())
        ),
    )


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(
        (importlib.resources.files("costate.experiments") / "known_returns.toml").read_text(encoding="utf-8")
    )
