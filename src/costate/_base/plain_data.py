"""Convert config dataclasses to JSON and back, with errors that name the field that does not fit."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from costate._base.checks import whole
from costate._base.errors import ConfigError
from costate._base.other_names import instead_of
from costate._base.registry import Registry, nearest

CHOICES: dict[type, Registry[Any]] = {}
"""Base class of the parts of a config that are chosen by name → the registry of their names."""


def chosen_from(kind: str, base: Any) -> Registry[Any]:
    """Return a registry of config classes, subclasses of ``base``, which appear in JSON under their names."""
    registry: Registry[Any] = Registry(kind)
    CHOICES[base] = registry
    return registry


def chosen_parts(kind: Any) -> dict[str, Registry[Any]]:
    """Return the fields of a config class whose parts are chosen by name, with their registries."""
    fields = dataclasses.fields(kind)
    return {one.name: CHOICES[one.type] for one in fields if one.type in CHOICES}  # type: ignore[index]


def with_parts(part: Any, names: Mapping[str, Any]) -> Any:
    """Return a config with the parts that ``names`` asks for. Entries of any other field are ignored.

    A part with another name starts from its own defaults. A part that the config has anyway keeps its
    settings.
    """
    wanted = {
        field: registry[names[field]]
        for field, registry in chosen_parts(type(part)).items()
        if names.get(field) is not None
    }
    others = {field: kind() for field, kind in wanted.items() if kind is not type(getattr(part, field))}
    return dataclasses.replace(part, **others)


def encode(part: Any) -> Any:
    """Convert a config to plain data. A part that was chosen by name carries that name."""
    if isinstance(part, tuple):
        return [encode(each) for each in part]
    if not dataclasses.is_dataclass(part):
        return part
    return choice(part) | {
        field.name: encode(getattr(part, field.name)) for field in dataclasses.fields(part)
    }


def choice(part: Any) -> dict[str, Any]:
    """Return ``{"name": …}`` for a part that was chosen by name, and an empty dict for any other."""
    return next(
        (
            {"name": registry.name_of(type(part))}
            for base, registry in CHOICES.items()
            if isinstance(part, base)
        ),
        {},
    )


def decode(kind: type, data: Any, where: str) -> Any:
    """Invert :func:`encode`. An unknown or ill-typed entry raises an error that names it."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where} should be an object with the fields of {kind.__name__}, but is {data!r}.")
    data = dict(data)
    for base, registry in CHOICES.items():
        if kind is base:
            kind = registry[data.pop("name", "")]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in data.keys() - fields.keys():
        raise ConfigError(
            f"{where} has an unknown field {name!r}. {instead_of(name) or nearest(name, tuple(fields))}"
        )
    for name, field in fields.items():
        if name not in data and field.default is dataclasses.MISSING:
            raise ConfigError(
                f"{where} lacks the field {name!r}, which has no default. Add it, or use the config that "
                "`costate train` wrote."
            )
    values = {
        name: _decode_value(fields[name].type, value, f"{where}.{name}") for name, value in data.items()
    }
    try:
        return kind(**values)
    except ConfigError:
        raise
    except ValueError as error:
        # A part from another package may raise an error of its own.
        raise ConfigError(f"A setting of {where} is out of range: {error}") from error


def _decode_value(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return decode(kind, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} is {value!r}, but it should be a list.")
        return tuple(_decode_value(get_args(kind)[0], each, f"{where}[{i}]") for i, each in enumerate(value))
    # Literal["a", "b"] lists values, float | None lists types, a plain type is itself.
    allowed = get_args(kind) or (kind,)
    if int in allowed and float not in allowed:
        value = whole(value)
    fits = (
        value in allowed
        or any(isinstance(value, a) for a in allowed if isinstance(a, type))
        or (isinstance(value, int) and float in allowed)
    )
    if not fits or isinstance(value, bool):
        raise ConfigError(f"{where} is {value!r}, but it should be {' or '.join(map(_in_words, allowed))}.")
    if isinstance(value, int) and float in allowed:
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(
                f"{where} is a number of {len(str(value))} digits, but it must be a finite number."
            ) from None
    return value


def _in_words(allowed: Any) -> str:
    """Describe an allowed type or value in a message."""
    words: dict[Any, str] = {int: "a whole number", type(None): "None"}
    return words.get(allowed) or str(getattr(allowed, "__name__", repr(allowed)))
