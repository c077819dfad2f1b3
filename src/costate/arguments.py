"""Arguments of a command from the words of a command line."""

import decimal
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from costate._other_names import in_our_words
from costate.help_text import HELP_ALL, Layout, help_text, help_wanted
from costate.settings import settings_of

Shape = TypeVar("Shape")
# More digits than any setting has; 1e999999999 would fill the memory.
MOST_DIGITS = 30


def read_arguments(command: str, kind: type[Shape], arguments: Sequence[str], default: Shape | None = None, layout: Layout | None = None) -> Shape:
    """The arguments of a command. Where help is asked for, print it and exit."""
    shape = kind if default is None else default
    if help_wanted(arguments):
        print(help_text(command, shape, layout or Layout(), everything=HELP_ALL in arguments))
        raise SystemExit(0)
    flags = {flag for setting in settings_of(shape) for flag in setting.names}
    words = in_our_words(arguments, flags)
    given = tyro.MISSING_NONPROP if default is None else default
    return tyro.cli(kind, prog=f"costate {command}", args=words, default=given, registry=_registry())


def whole_number(text: str) -> int:
    """A whole number as people write it: 1000000, 1_000_000, 1e6 or 1.5e6."""
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


def _or_none(read: Callable[[str], Any], text: str) -> Any:
    return None if text.lower() == "none" else read(text)


@functools.cache
def _registry() -> ConstructorRegistry:
    """How numbers are read; tyro's own reader takes no 1e6 for a whole one, and answers a wrong one with all that it has tried."""
    registry = ConstructorRegistry()
    readers: dict[Any, tuple[str, Callable[[str], Any]]] = {
        int: ("INT", whole_number),
        float: ("FLOAT", _fraction),
        int | None: ("INT", functools.partial(_or_none, whole_number)),
        float | None: ("FLOAT", functools.partial(_or_none, _fraction)),
    }

    @registry.primitive_rule
    def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        found = next((reader for kind, reader in readers.items() if info.type == kind), None)
        if found is None:
            return None
        metavar, read = found
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=lambda words: read(words[0]),
            is_instance=lambda value: value is None or isinstance(value, int | float),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
