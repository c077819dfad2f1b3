"""Parts of README and docs that tests check: Python snippets, command lines, and inline code."""

import pathlib
import re
import shlex
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SHELL = ("", "sh", "bash", "console")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?:^|(?<=\$ )|(?<=\$\())costate (?P<rest>.*)")


class Shown(NamedTuple):
    """A part of a page, and its position."""

    page: str
    line: int
    text: str
    inline: bool

    @property
    def label(self) -> str:
        """A label for test names. Inline code has no line number, because pages change."""
        return f"{self.page}: {self.text.splitlines()[0]}" if self.inline else f"{self.page}:{self.line}"


def snippets() -> list[Shown]:
    """Return every block of Python."""
    return [block for language, block in _blocks() if language == "python"]


def files(page: str) -> dict[str, str]:
    """Return the files in a page: blocks whose first line is a comment with a file name."""
    blocks = [block.text for _, block in _blocks() if block.page == page]
    return {
        match[1]: text
        for text in blocks
        if (match := re.match(r"(?:# |<!-- )([\w-]+\.\w+)(?: -->)?\n", text))
    }


def commands() -> list[Shown]:
    """Return the arguments of every command line of costate, without shell syntax."""
    found = []
    for language, block in _blocks():
        if language in SHELL:
            for number, line in enumerate(block.text.splitlines(), block.line + 1):
                found += [
                    Shown(block.page, number, _before_shell(match["rest"]), False)
                    for match in _COMMAND.finditer(line)
                ]
    found += [
        code._replace(text=_before_shell(code.text.removeprefix("costate ")))
        for code in inline()
        if code.text.startswith("costate ")
    ]
    return list({(each.page, each.text): each for each in found}.values())


def inline() -> list[Shown]:
    """Return all text in single backticks."""
    found = []
    for page in PAGES:
        # Blocks are replaced by as many empty lines, so that lines keep their numbers.
        text = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            found += [
                Shown(_name(page), number, match[1].replace("\\|", "|"), True)
                for match in _INLINE.finditer(line)
            ]
    return found


def links() -> list[tuple[pathlib.Path, str]]:
    """Return every relative link to a file, without its fragment."""
    found = (
        (page, target.partition("#")[0])
        for page in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    )
    return [(page, target) for page, target in found if target and "://" not in target]


def _blocks() -> list[tuple[str, Shown]]:
    return [
        (match[1], Shown(_name(page), text[: match.start()].count("\n") + 1, match[2], False))
        for page in PAGES
        for text in [page.read_text()]
        for match in _FENCE.finditer(text)
    ]


def _before_shell(line: str) -> str:
    """Return the part before a comment, a pipe or a redirection."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>)")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word[0] in "|>)":
            break
        words.append(word)
    return shlex.join(words)


def _name(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))
