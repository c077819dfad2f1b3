"""Read configs of every layout that there ever was.

A stored config carries the version of its layout. To change the layout, raise VERSION and add the step that leads from
the version before to it. A field that is added needs no step; `first_release.py` says what runs did before there was it.
"""

from collections.abc import Callable
from typing import Any

from costate._base.errors import ConfigError
from costate.learners import LEARNERS

VERSION = 2
FIRST_LEARNER = "ppo"
"""The learner of the first release, where a config named none."""


def migrated(data: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config in the layout of today."""
    data = dict(data)
    version = data.pop("version", 1)
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ConfigError(
            f"The config has the version {version!r}, but this costate reads versions 1 to {VERSION}. Install the costate "
            f"that wrote it, or a newer one."
        )
    for step in STEPS[version - 1 :]:
        data = step(data)
    return data


def _one_learner(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 → 2: ``algorithm``, ``ppo`` and ``sac`` become ``learner``, one part that is chosen by its name.

    Settings of the unused learner had no effect and are dropped, because the defaults that they were may be others today.
    """
    if "learner" in data:
        return data
    name = data.get("algorithm", FIRST_LEARNER)
    own = data.get(name, {}) if isinstance(name, str) else {}
    if not isinstance(own, dict):
        raise ConfigError(
            f"config.{name} should be an object with the settings of the learner, but is {own!r}."
        )
    rest = {key: value for key, value in data.items() if key not in ("algorithm", "ppo", "sac")}
    return rest | {"learner": {"name": name, **own}}


STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_one_learner,)
"""At place i the step from version i + 1 to the next."""


def with_learner(overrides: dict[str, Any], current: str) -> dict[str, Any]:
    """Return overrides in which a learner's settings may stand under its name with them under ``learner``.

    ``algorithm`` names the learner; without it, they are of the ``current`` one.
    """
    named = {name: overrides[name] for name in LEARNERS.names() if name in overrides}
    if not named and "algorithm" not in overrides:
        return overrides
    wanted = overrides.get("algorithm", overrides.get("learner", {}).get("name", current))
    LEARNERS[wanted]
    for name in named:
        if name != wanted:
            raise ConfigError(
                f"The algorithm is {wanted}, but settings of {name} were changed, which would have no effect. Leave them "
                f"out."
            )
    rest = {key: value for key, value in overrides.items() if key != "algorithm" and key not in named}
    settings = named.get(wanted, {})
    if not isinstance(settings, dict):
        raise ConfigError(
            f"config.{wanted} should be an object with the settings of the learner, but is {settings!r}."
        )
    return rest | {"learner": {"name": wanted, **overrides.get("learner", {}), **settings}}


def in_first_layout(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes of a config in the layout of version 1, from which hashes are computed."""
    if "learner" not in changes:
        return changes
    rest = {key: value for key, value in changes.items() if key != "learner"}
    settings = dict(changes["learner"])
    name = settings.pop("name")
    if name != FIRST_LEARNER:
        rest["algorithm"] = name
    return rest | ({name: settings} if settings else {})
