"""Let standard output and error accept any character in any encoding, or be closed."""

import codecs
import io
import os
import re
import sys
import unicodedata
from typing import TextIO

HANDLER = "costate.plain"
"""Name of the error handler that writes a plain form of characters that an encoding lacks."""

# Characters without a decomposition into ASCII, or with a misleading one.
PLAIN = {
    "→": "->", "←": "<-", "↔": "<->", "↦": "->", "↑": "^", "−": "-", "–": "-", "—": "-", "─": "-", "│": "|",
    "…": "...", "⋯": "...", "·": ".", "×": "x", "±": "+-", "≤": "<=", "≥": ">=", "≈": "~", "∼": "~", "∝": "~",
    "√": "sqrt", "∂": "d", "∇": "grad ", "∫": "integral ", "∞": "inf", "½": "1/2", "¼": "1/4", "ℓ": "l",
    "█": "#", "■": "#", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "━": "-", "╸": "-", "╺": "-",
    "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
# Letters whose name in Unicode is not the usual one.
GREEK = {"LAMDA": "lambda"}


def make_writable() -> None:
    """Let standard output and error of this process accept everything that is printed.

    Without this, an arrow ends a command whose output is ASCII or Latin-1, and any output ends one whose
    streams are closed.
    """
    _fill_closed_descriptors()
    sys.stdout = _writable(sys.stdout)
    sys.stderr = _writable(sys.stderr)


def _fill_closed_descriptors() -> None:
    """Open the standard descriptors that are closed.

    Otherwise the next file that is opened would get their number, and with it everything that is printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The operating system assigns the lowest free number.
            os.open(os.devnull, os.O_RDWR)


def _writable(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=HANDLER)
    return stream


def plain(character: str) -> str:
    """Return an ASCII form of one character; a question mark if there is none."""
    if character in PLAIN:
        return PLAIN[character]
    decomposed = unicodedata.normalize("NFKD", character)
    letters = "".join(PLAIN.get(part, part) for part in decomposed if not unicodedata.combining(part))
    if letters.isascii():
        # An accent on its own becomes an empty string.
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
    # Python keeps undecodable bytes of file names in this range.
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00])
    return plain(character).encode("ascii")


codecs.register_error(HANDLER, _replace)
