"""One JSON document on stdout for scripts, where ``--json`` asks for it, and everything that is meant for people on stderr."""

import contextlib
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Give = Callable[[Mapping[str, Any]], None]


@contextlib.contextmanager
def document_on_stdout(wanted: bool) -> Iterator[Give]:
    """While open, and if it is wanted, whatever is printed goes to stderr, but for the document that is given."""
    if not wanted:
        yield lambda document: None
        return
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield lambda document: print(_encodable(as_json(document), stdout.encoding or "utf-8"), file=stdout)


def _encodable(text: str, encoding: str) -> str:
    """JSON with escapes where an encoding lacks a character: a script is to read the same text in any encoding."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=1)
    return text


def as_json(document: Mapping[str, Any]) -> str:
    """JSON that every parser reads, which knows neither NaN nor infinity: these become null."""
    return json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, pathlib.Path) else value
