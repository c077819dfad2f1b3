"""Parse the arguments of a command."""

import contextlib
import decimal
import functools
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from costate._base.other_names import with_our_names
from costate.cli.help_text import HELP_ALL, HelpLayout, help_text, help_wanted
from costate.cli.settings import settings_of

ArgumentsType = TypeVar("ArgumentsType")
# More digits than any setting has. Without a limit, 1e999999999 would take all memory.
MOST_DIGITS = 30


def read_arguments(
    command: str,
    kind: type[ArgumentsType],
    arguments: Sequence[str],
    default: ArgumentsType | None = None,
    layout: HelpLayout | None = None,
) -> ArgumentsType:
    """Parse the arguments of a command. If help is requested, print it and exit."""
    source = kind if default is None else default
    if help_wanted(arguments):
        print(help_text(command, source, layout or HelpLayout(), everything=HELP_ALL in arguments))
        raise SystemExit(0)
    flags = {flag for setting in settings_of(source) for flag in setting.names}
    words = with_our_names(arguments, flags)
    given = tyro.MISSING_NONPROP if default is None else default
    return tyro.cli(kind, prog=f"costate {command}", args=words, default=given, registry=_registry())


def whole_number(text: str) -> int:
    """Parse an integer as people write it: 1000000, 1_000_000, 1e6 or 1.5e6."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"{text!r} is not a whole number") from None
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number")
    if number.adjusted() >= MOST_DIGITS:
        raise ValueError(f"{text!r} is too large")
    return int(number)


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _first_that_reads(readers: Sequence[Callable[[str], Any]], text: str) -> Any:
    """Return the result of the first reader that accepts ``text``.

    Raise the last reader's error if none does.
    """
    for read in readers[:-1]:
        with contextlib.suppress(ValueError):
            return read(text)
    return readers[-1](text)


def _word(words: tuple[Any, ...], text: str) -> Any:
    if text not in words:
        raise ValueError(f"{text!r} is not one of {', '.join(map(str, words))}")
    return text


def _nothing(text: str) -> None:
    if text.lower() != "none":
        raise ValueError(f"{text!r} is not None")


def _readers(kind: Any) -> list[Callable[[str], Any]]:
    """Return a reader for each type in ``kind``, the number's own last; none if it is not a number."""
    members = get_args(kind) if get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    numbers = [member for member in members if member in (int, float)]
    others = [member for member in members if member not in numbers]
    if len(numbers) != 1 or any(
        member is not type(None) and get_origin(member) is not Literal for member in others
    ):
        return []
    first = [
        _nothing if member is type(None) else functools.partial(_word, get_args(member)) for member in others
    ]
    return [*first, whole_number if numbers[0] is int else _fraction]


@functools.cache
def _registry() -> ConstructorRegistry:
    """Return tyro rules that parse numbers by our readers.

    Tyro's own reader does not accept 1e6 as an integer, and answers a wrong value with everything that it
    tried.
    """
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        readers = _readers(info.type)
        if not readers:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="NUMBER",
            instance_from_str=lambda words: _first_that_reads(readers, words[0]),
            is_instance=lambda value: value is None or isinstance(value, int | float | str),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
