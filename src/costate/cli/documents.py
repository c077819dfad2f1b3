"""Print one JSON document to stdout if ``--json`` requests it, and all text for people to stderr."""

import contextlib
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Emit = Callable[[Mapping[str, Any]], None]


@contextlib.contextmanager
def document_on_stdout(wanted: bool) -> Iterator[Emit]:
    """Yield a function that prints a document to stdout if ``wanted``.

    Inside this block all other output then goes to stderr. If no document is wanted, the function does
    nothing.
    """
    if not wanted:
        yield lambda document: None
        return
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield lambda document: print(_encodable(as_json(document), stdout.encoding or "utf-8"), file=stdout)


def _encodable(text: str, encoding: str) -> str:
    """Escape characters that an encoding lacks, so that a script reads the same text in any encoding."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=1)
    return text


def as_json(document: Mapping[str, Any]) -> str:
    """Convert to strict JSON: NaN and infinity, which it lacks, become null."""
    return json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, pathlib.Path) else value
