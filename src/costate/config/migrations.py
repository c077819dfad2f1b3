"""Read stored configs of every earlier version.

A stored config carries the version of its layout. To change the layout, raise VERSION and add the step from
the version before. A new field needs no step: `first_release.py` holds its value in the runs before it.
"""

from collections.abc import Callable
from typing import Any

from costate._base.errors import ConfigError
from costate.learners import LEARNERS

VERSION = 2
FIRST_LEARNER = "ppo"
"""The learner of configs of the first release that name none."""


def migrated(data: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config in the current layout."""
    data = dict(data)
    version = data.pop("version", 1)
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ConfigError(
            f"The config has the version {version!r}, but this costate reads versions 1 to {VERSION}. "
            "A higher one needs a newer costate; anything else means that the file was altered."
        )
    for step in STEPS[version - 1 :]:
        data = step(data)
    return data


def _one_learner(data: dict[str, Any]) -> dict[str, Any]:
    """Migrate from version 1 to 2: ``algorithm``, ``ppo`` and ``sac`` become ``learner``, chosen by name.

    Settings of the unused learner had no effect. They are dropped, because defaults may have changed since.
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
"""Entry i is the step from version i + 1 to i + 2."""


def with_learner(overrides: dict[str, Any], current: str) -> dict[str, Any]:
    """Return overrides with the settings of a learner moved from its name to ``learner``.

    ``algorithm`` or ``learner`` names the learner. Without a name, the settings are those of the ``current``
    one.
    """
    named = {name: overrides[name] for name in LEARNERS.names() if name in overrides}
    given = _settings_under_learner(overrides)
    if not named and not given and "algorithm" not in overrides:
        return overrides
    wanted = learner_named_in(overrides) or current
    LEARNERS[wanted]
    for name in named:
        if name != wanted:
            raise ConfigError(
                f"The algorithm is {wanted}, but settings of {name} were changed, which would have no "
                "effect. Leave them out."
            )
    settings = named.get(wanted, {})
    if not isinstance(settings, dict):
        raise ConfigError(
            f"config.{wanted} should be an object with the settings of the learner, but is {settings!r}."
        )
    twice = sorted(settings.keys() & given.keys())
    if twice:
        raise ConfigError(
            f"{twice[0]} is given twice, as learner.{twice[0]} and as {wanted}.{twice[0]}. Give it once."
        )
    rest = {key: value for key, value in overrides.items() if key != "algorithm" and key not in named}
    return rest | {"learner": {"name": wanted, **given, **settings}}


def learner_named_in(overrides: dict[str, Any]) -> str | None:
    """Return the learner that overrides name; None if they name none."""
    given = _settings_under_learner(overrides)
    names = [part[key] for part, key in ((overrides, "algorithm"), (given, "name")) if key in part]
    if len(names) == 2 and names[0] != names[1]:
        raise ConfigError(f"algorithm is {names[0]!r}, but learner.name is {names[1]!r}. Give one of them.")
    return names[0] if names else None


def _settings_under_learner(overrides: dict[str, Any]) -> dict[str, Any]:
    given = overrides.get("learner", {})
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, dict):
        raise ConfigError(
            f"config.learner is {given!r}, but it should be the name of a learner or an object with its "
            f"settings."
        )
    return given


def in_first_layout(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of a config in the layout of version 1, from which hashes are computed."""
    if "learner" not in changes:
        return changes
    rest = {key: value for key, value in changes.items() if key != "learner"}
    settings = dict(changes["learner"])
    name = settings.pop("name")
    if name != FIRST_LEARNER:
        rest["algorithm"] = name
    return rest | ({name: settings} if settings else {})
