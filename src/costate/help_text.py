"""The settings of a command as data, read from what its ``--help`` shows, which is the one place where all of them stand."""

import contextlib
import dataclasses
import io
import os
import re
from collections.abc import Callable, Iterator

# No flag and no sentence is longer than this, so that none is broken over two lines.
COLUMNS = "2000"

Run = Callable[[list[str]], int]
_LINE = re.compile(r"^│ (\S+(?: \S+)*)(?:  +(\S.*?))? *│$")
_CONTINUED = re.compile(r"^│    +(\S.*?) *│$")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One line of a help text."""

    names: tuple[str, ...]
    """Flags that mean the same, or none for a value that is given by its position."""
    value: str
    """What it takes, as the help says it: INT, RUN, {None}|PATH, {ppo,sac}; empty for a flag that takes nothing."""
    description: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it can have; empty if they are not a few words."""
        listed = re.fullmatch(r"\{([^{}|]+)\}", self.value)
        return tuple(listed[1].split(",")) if listed else ()


def settings_of(run: Run, arguments: list[str] | None = None) -> tuple[Setting, ...]:
    """All settings of a command; with arguments, those that it has beside them."""
    return read_settings(_help(run, arguments or []))


def read_settings(text: str) -> tuple[Setting, ...]:
    """The settings in a help text."""
    found: list[Setting] = []
    for line in text.splitlines():
        if continued := _CONTINUED.match(line):
            found[-1] = dataclasses.replace(found[-1], description=continued[1])
        elif begun := _LINE.match(line):
            names, value = _split(begun[1])
            found.append(Setting(names, value, begun[2] or ""))
    return tuple(found)


def _split(what: str) -> tuple[tuple[str, ...], str]:
    """Flags and the value behind them."""
    flags = re.match(r"-{1,2}[\w.-]+(?:, -{1,2}[\w.-]+)*", what)
    return (tuple(flags[0].split(", ")), what[flags.end() :].strip()) if flags else ((), what)


def _help(run: Run, arguments: list[str]) -> str:
    # With an encoding, as a terminal has one: tyro draws other frames where it does not know that.
    written = io.BytesIO()
    shown = io.TextIOWrapper(written, "utf-8")
    with _wide_screen(), contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        run([*arguments, "--help"])
    shown.flush()
    return written.getvalue().decode()


@contextlib.contextmanager
def _wide_screen() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
