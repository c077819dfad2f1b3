"""Names of variants: a preset, or the nearest preset and the settings that differ from it.

Folders, reports, legends and everything else that names a run use them.
"""

import hashlib
import json
import re
from typing import Any

from costate._base.first_release import CHOSEN, changes
from costate._base.plain_data import chosen_parts
from costate.config.presets import preset, preset_names
from costate.config.run_config import RunConfig, flat_json

APART = frozenset({"task", "seed", "steps", "checkpoint_every", "evaluate_every"})
"""Fields that are in no name: folders name task and seed, and another budget is not another variant."""

BASES = (
    "nc-gru", "gru", "nc-ctrnn", "ctrnn", "authors-code", "ncp",
    "nc-sac-gru", "sac-gru", "nc-sac-ctrnn", "sac-ctrnn", "fast",
)  # fmt: skip
"""Presets from which names are made. Of equally near ones the first is used.

Do not add presets, because that would rename runs.
"""

LONGEST = 90
"""Most letters of a name, so that a folder with its parents and files stays below every system's limit."""

# Letters without a meaning for file systems and shells. No capitals, because some file systems ignore case.
PLAIN = re.compile(r"-?[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")


def variant_name(config: RunConfig, wanted: str = "") -> str:
    """Return the name of a config's variant, for any task, seed and budget.

    A config that is no preset is named by the nearest one and the differences: ``nc-gru+costate-coef=0.1``.
    Two presets can be equal on a task, where ``wanted`` is the one that was asked for.
    """
    if wanted in preset_names() and not differences(config, preset(wanted, config.task)):
        return wanted
    found = {name: differences(config, base) for name, base in _bases(config).items()}
    nearest = min(found, key=lambda name: len(found[name]))
    return joined(nearest, found[nearest])


def _bases(config: RunConfig) -> dict[str, RunConfig]:
    """Return the presets from which a config's name can be made: those of its learner."""
    kind = type(config.learner)
    presets = {name: preset(name, config.task) for name in (*BASES, *kind.presets())}
    return {name: base for name, base in presets.items() if type(base.learner) is kind}


def differences(config: RunConfig, base: RunConfig) -> dict[str, Any]:
    """Return the settings in which a config differs from another of its learner, by command-line name."""
    ours, theirs = _settings(config), _settings(base)
    # A part with another name has other settings, so these are compared with their own defaults.
    chosen = {
        _flag(part): getattr(holder, part)
        for holder in (config.policy, config.learner)
        for part in chosen_parts(type(holder))
        if ours[_flag(part)] != theirs[_flag(part)]
    }
    different = {
        name: value
        for name, value in ours.items()
        if name.split(".")[0] not in chosen and theirs.get(name, ...) != value
    }
    for part, value in chosen.items():
        name = ours[part]
        own = changes(value, CHOSEN.get(part, {}).get(name, {}))
        different |= {part: name} | {_flag(f"{part}.{field}"): given for field, given in own.items()}
    return dict(sorted(different.items()))


def _settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a config by command-line name, without the name of the learner."""
    flat = {
        path: value
        for path, value in flat_json(config).items()
        if path not in APART and path != "learner.name"
    }
    for loss in flat.pop("losses"):
        flat |= {f"{loss['name']}_{field}": value for field, value in loss.items() if field != "name"}
    return {
        _flag(re.sub(r"^(policy|sensors|rollout|learner)\.", "", path).removesuffix(".name")): value
        for path, value in flat.items()
    }


def _flag(path: str) -> str:
    return path.replace("_", "-")


def joined(base: str, different: dict[str, Any]) -> str:
    """Join a base and what differs from it into one name.

    A name that is too long, or not safe as a file name, is cut or changed and ends with a digest.
    """
    parts = [f"{name}={_text(value)}" for name, value in different.items()]
    name = "+".join([base, *parts])
    if (
        len(name) <= LONGEST
        and all(PLAIN.fullmatch(setting) for setting in different)
        and all(map(_is_plain, different.values()))
    ):
        return name
    # Two configs may differ only in what was cut off or replaced.
    digest = hashlib.sha256(json.dumps([base, different], sort_keys=True).encode()).hexdigest()[:8]
    safe = re.sub(r"[^a-z0-9.,_+=-]", "-", name.lower())
    return f"{safe[: LONGEST - 9].rstrip('.,+=-')}+{digest}"


def _text(value: Any) -> str:
    """Return a value as the shortest unambiguous text."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("e+", "e")
    return "none" if value is None else str(value)


def _is_plain(value: Any) -> bool:
    """Return whether a value's text is safe in a name and no other value has the same."""
    if isinstance(value, list | tuple):
        return not value or (
            all(isinstance(each, str) and _is_plain(each) for each in value) and list(value) != ["none"]
        )
    return bool(PLAIN.fullmatch(_text(value)))
