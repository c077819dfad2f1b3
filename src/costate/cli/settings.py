"""The settings of a command as data, read from the fields of its arguments: names, values, defaults and the sentence below each field."""

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
"""A dataclass of arguments, or one of its instances where the defaults are others than those of the class."""
_ARG: Any = type(tyro.conf.arg())


@dataclasses.dataclass(frozen=True)
class Setting:
    """What can be given to a command by one flag, or by its position."""

    place: str
    """Where it is in the arguments: ``out``, ``sensors.dropout``, ``policy.core.damping``."""
    names: tuple[str, ...]
    """Flags that set it: one, or two for a switch; none for what is given by its position."""
    value: str
    """What it takes: INT, FLOAT, TEXT, PATH, RUN, or its choices; empty for a switch. An ellipsis at the end if it takes several."""
    description: str
    default: Any
    choices: tuple[str, ...] = ()
    """The values that it can have, if they are a few words."""
    paths: bool = False
    """Whether it is a file or a folder."""

    @property
    def flag(self) -> str:
        """The flag that changes something: of a switch, the one that differs from its default; of a positional one, what stands for it."""
        if not self.names:
            return self.value
        return self.names[-1] if self.default is True else self.names[0]

    @property
    def shown_default(self) -> str:
        """The default as it would be typed; empty where there is none worth showing."""
        if self.default is dataclasses.MISSING or isinstance(self.default, bool) or self.default in ("", ()):
            return ""
        if isinstance(self.default, tuple):
            return " ".join(map(str, self.default))
        return str(self.default)


def settings_of(arguments: Arguments) -> tuple[Setting, ...]:
    """All settings of the arguments of a command, in the order of their fields."""
    return tuple(_walk(arguments, "", ""))


def settings_of_command(module: Any) -> Iterator[tuple[list[str], tuple[Setting, ...]]]:
    """The settings of a command, and those that it has beside some words: ``BESIDE`` lists these where there are any."""
    variants: tuple[list[str], ...] = getattr(module, "BESIDE", ([],))
    for words in variants:
        yield (
            words,
            settings_of(
                module.arguments_for(words) if hasattr(module, "arguments_for") else module.ARGUMENTS
            ),
        )


def flag_of(name: str) -> str:
    """A field's name as a flag."""
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
            # tyro writes a part without a name of its own as if its fields stood here.
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
    """A type without its annotations, and these."""
    return (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is typing.Annotated else (hint, ())


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _flags(name: str, hint: Any) -> tuple[str, ...]:
    before, dot, last = name.rpartition(".")
    flag = flag_of(name)
    return (flag, flag_of(f"{before}{dot}no_{last}")) if hint is bool else (flag,)


def _value(hint: Any) -> tuple[str, tuple[str, ...]]:
    """What a type looks like on a command line, and its choices. That it may also be None is left to its description."""
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
    """The plain types inside of a type."""
    return {hint} if get_origin(hint) is None else {kind for each in get_args(hint) for kind in _kinds(each)}


@functools.cache
def sentences_of(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass and of those that it inherits from; empty where the source cannot be read."""
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
