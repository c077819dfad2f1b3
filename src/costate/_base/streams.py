"""Standard output and error that take whatever is printed: any character in any encoding, and nothing at all where they are closed."""

import codecs
import io
import os
import re
import sys
import unicodedata
from typing import TextIO

HANDLER = "costate.plain"
"""Name of the error handler that writes a plain form of what an encoding lacks."""

# What has no decomposition into ASCII, or a misleading one.
PLAIN = {
    "→": "->", "←": "<-", "↔": "<->", "↦": "->", "↑": "^", "−": "-", "–": "-", "—": "-", "─": "-", "│": "|", "…": "...", "⋯": "...", "·": ".",
    "×": "x", "±": "+-", "≤": "<=", "≥": ">=", "≈": "~", "∼": "~", "∝": "~", "√": "sqrt", "∂": "d", "∇": "grad ", "∫": "integral ", "∞": "inf",
    "½": "1/2", "¼": "1/4", "ℓ": "l", "█": "#", "■": "#", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "━": "-", "╸": "-", "╺": "-",
    "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
# Letters whose name in Unicode is not the usual one.
GREEK = {"LAMDA": "lambda"}


def make_writable() -> None:
    """Let standard output and error of this process take everything that is printed.

    Without it, an arrow ends a command whose output is in ASCII or Latin-1, and so does any output where streams are closed.
    """
    _fill_closed_descriptors()
    sys.stdout = _writable(sys.stdout)
    sys.stderr = _writable(sys.stderr)


def _fill_closed_descriptors() -> None:
    """Open the standard descriptors that are closed, or the next file that is opened would get their number and their output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The operating system gives the lowest number that is free.
            os.open(os.devnull, os.O_RDWR)


def _writable(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=HANDLER)
    return stream


def plain(character: str) -> str:
    """A form in ASCII of one character; a question mark where there is none."""
    if character in PLAIN:
        return PLAIN[character]
    decomposed = unicodedata.normalize("NFKD", character)
    letters = "".join(PLAIN.get(part, part) for part in decomposed if not unicodedata.combining(part))
    if letters.isascii():
        # Nothing is left of an accent that stands by itself.
        return letters
    greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(letters[0], ""))
    if greek is None:
        return "?"
    name = GREEK.get(greek[2], greek[2]).lower()
    return name if greek[1] == "SMALL" else name.capitalize()


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return b"".join(map(_bytes_of, error.object[error.start : error.end])), error.end


def _bytes_of(character: str) -> bytes:
    # Names of files that are no text carry their bytes in this range.
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00])
    return plain(character).encode("ascii")


codecs.register_error(HANDLER, _replace)
