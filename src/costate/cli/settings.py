"""Settings of a command as data: names, values, defaults and descriptions.

They are read from the fields of its arguments. The docstring below a field is its description.
"""

import ast
import dataclasses
import functools
import inspect
import pathlib
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import tyro

Arguments = Any
"""A dataclass of arguments, or an instance if the defaults differ from those of the class."""
_ARG: Any = type(tyro.conf.arg())


@dataclasses.dataclass(frozen=True)
class Setting:
    """An argument of a command, given by a flag or by position."""

    place: str
    """Path in the arguments: ``out``, ``sensors.dropout``, ``policy.core.damping``."""
    names: tuple[str, ...]
    """Flags that set it: one, or two for a switch; none for a positional argument."""
    value: str
    """Kind of value: INT, FLOAT, TEXT, PATH, RUN, or the choices; empty for a switch.

    Ends with an ellipsis if there can be several.
    """
    description: str
    default: Any
    choices: tuple[str, ...] = ()
    """The possible values, if they are a few words."""
    paths: bool = False
    """True if the value is a file or a folder."""

    @property
    def flag(self) -> str:
        """The flag to show.

        For a switch, this is the one that changes the default; for a positional argument, its placeholder.
        """
        if not self.names:
            return self.value
        return self.names[-1] if self.default is True else self.names[0]

    @property
    def shown_default(self) -> str:
        """The default as a user would type it; empty if there is none worth showing."""
        if self.default is dataclasses.MISSING or isinstance(self.default, bool) or self.default in ("", ()):
            return ""
        if isinstance(self.default, tuple):
            return " ".join(map(str, self.default))
        return str(self.default)


def settings_of(arguments: Arguments) -> tuple[Setting, ...]:
    """Return all settings of the arguments of a command, in the order of their fields."""
    return tuple(_walk(arguments, "", ""))


def settings_of_command(module: Any) -> Iterator[tuple[list[str], tuple[Setting, ...]]]:
    """Yield the settings of a command, for each choice of words that adds settings.

    A module lists these choices in ``BESIDE``. For example, ``--algorithm sac`` adds the settings of soft
    actor-critic.
    """
    variants: tuple[list[str], ...] = getattr(module, "BESIDE", ([],))
    for words in variants:
        yield (
            words,
            settings_of(
                module.arguments_for(words) if hasattr(module, "arguments_for") else module.ARGUMENTS
            ),
        )


def flag_of(name: str) -> str:
    """Convert a field's name to a flag."""
    return f"--{name.replace('_', '-')}"


def _walk(part: Arguments, place: str, prefix: str) -> Iterator[Setting]:
    kind = part if isinstance(part, type) else type(part)
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint, notes = _unwrapped(hints[field.name])
        default = _default(field) if isinstance(part, type) else getattr(part, field.name)
        note = next((each for each in notes if isinstance(each, _ARG)), None)
        where = f"{place}{field.name}"
        inside = default if dataclasses.is_dataclass(default) else hint
        if dataclasses.is_dataclass(inside):
            # With an empty name, tyro flattens a part: its fields become fields of the parent.
            own = field.name if note is None or note.name is None else note.name
            yield from _walk(inside, f"{where}.", f"{prefix}{own}." if own else prefix)
            continue
        described = (note.help if note is not None else None) or sentences_of(kind).get(field.name, "")
        positional = any(each is tyro.conf.Positional for each in notes)
        names = () if positional else _flags(f"{prefix}{field.name}", hint)
        value, choices = ("", ()) if hint is bool else _value(hint)
        if note is not None and note.metavar is not None:
            value = note.metavar
        yield Setting(
            where,
            names,
            value,
            described,
            default,
            choices,
            _kinds(hint) & {pathlib.Path, pathlib.PurePath} != set(),
        )


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split an annotated type into the type and its annotations."""
    return (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is typing.Annotated else (hint, ())


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _flags(name: str, hint: Any) -> tuple[str, ...]:
    before, dot, last = name.rpartition(".")
    flag = flag_of(name)
    return (flag, flag_of(f"{before}{dot}no_{last}")) if hint is bool else (flag,)


def _value(hint: Any) -> tuple[str, tuple[str, ...]]:
    """Describe a type on the command line, and list its choices.

    The description of the setting says if it may be None.
    """
    if get_origin(hint) in (typing.Union, types.UnionType):
        parts = [_value(each) for each in get_args(hint) if each is not type(None)]
        return "|".join(value for value, _ in parts), parts[0][1] if len(parts) == 1 else ()
    if get_origin(hint) is tuple:
        value, choices = _value(get_args(hint)[0])
        return f"{value} …", choices
    if get_origin(hint) is Literal:
        choices = tuple(map(str, get_args(hint)))
        return "|".join(choices), choices
    return {int: "INT", float: "FLOAT", str: "TEXT", pathlib.Path: "PATH"}.get(hint, "VALUE"), ()


def _kinds(hint: Any) -> set[Any]:
    """Return the plain types inside a type."""
    return {hint} if get_origin(hint) is None else {kind for each in get_args(hint) for kind in _kinds(each)}


@functools.cache
def sentences_of(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass and of its bases.

    Empty if the source cannot be read.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if dataclasses.is_dataclass(each):
            found |= _own_sentences(each)
    return found


def _own_sentences(kind: type) -> dict[str, str]:
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    found: dict[str, str] = {}
    before: ast.stmt | None = None
    for statement in definition.body if isinstance(definition, ast.ClassDef) else ():
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(statement, ast.Expr)
        ):
            text = getattr(statement.value, "value", None)
            if isinstance(text, str):
                found[before.target.id] = " ".join(text.split())
        before = statement
    return found
