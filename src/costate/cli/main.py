"""The command line: ``costate COMMAND …``. A command is a file in ``commands/``, imported when it is used.

Exit codes:

- 0: done
- 1: failed, for a reason that is printed
- 2: the command line cannot be parsed
- 130: stopped by Ctrl-C, SIGTERM or SIGHUP
- 141: the reader of the output, or the terminal, has gone
"""

import contextlib
import errno
import importlib
import importlib.metadata
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TextIO

from costate._base.checks import printable
from costate._base.errors import ConfigError, CostateError, UsageError
from costate._base.lean import this_process_is_ours
from costate._base.out_of_memory import out_of_memory
from costate._base.registry import nearest
from costate._base.streams import make_writable
from costate._base.task_files import load_task_files, without_task_files
from costate.cli.usage import explained_usage
from costate.runs.interrupts import INTERRUPTED, signals_as_interrupts

FAILED, MISUSED = 1, 2
# Exit code that a shell reports for a program whose reader has gone.
BROKEN_PIPE = 141
# Accepted by every command, anywhere on the line: show tracebacks.
DEBUG_FLAG, DEBUG_VARIABLE = "--debug", "COSTATE_DEBUG"
# In characters; messages of compilers can be pages long.
LONGEST_MESSAGE = 600

COMMANDS = {
    "train": "Train a recurrent policy, or continue a run.",
    "view": "Show a trained policy in the browser, with its blackouts and co-states.",
    "video": "Film trained policies, without a display.",
    "evaluate": "Run whole episodes with a trained policy.",
    "export": "Write a trained policy as a bundle, for NumPy, ONNX or StableHLO.",
    "robustness": "Evaluate runs without retraining, over a grid of sensor faults.",
    "align": "Compare the hidden states of a trained policy with true co-states.",
    "sweep": "Train variants × tasks × seeds, here or on a Ray cluster.",
    "memory": "Compare policies with no memory, a few frames, a recurrent core, and full sight.",
    "report": "Draw the figures and tables of a folder of runs, as one page.",
    "tasks": "List the tasks with their sizes and training budgets.",
    "solve": "Solve an optimal control problem and draw its co-states.",
    "verify": "Train the first iterations of a run again, and compare every number.",
    "bench": "Measure the speed of training, and the limit of the machine.",
    "completion": "Print a script that lets a shell complete all of this.",
}
# Examples to paste, in this order. Examples of commands that do not exist are left out.
EXAMPLES = (
    ("tasks", "costate tasks", "list what can be trained on"),
    ("train", "costate train CartpoleSwingup --steps 960_000", "train; Ctrl-C saves and stops"),
    ("train", "costate train --resume runs/CartpoleSwingup/nc-gru/seed-0", "continue"),
    (
        "evaluate",
        "costate evaluate runs/CartpoleSwingup/nc-gru/seed-0 --dropout 0.75",
        "more blackouts than in training",
    ),
    ("view", "costate view runs/CartpoleSwingup/nc-gru/seed-0", "watch it act"),
    ("video", "costate video runs/CartpoleSwingup/nc-gru/seed-0", "film it"),
    ("report", "costate report runs", "figures and tables, one page"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if arguments is None:
        this_process_is_ours()
        make_writable()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG_FLAG in arguments or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")
    try:
        with signals_as_interrupts():
            return _flushed([argument for argument in arguments if argument != DEBUG_FLAG])
    except KeyboardInterrupt:
        _print_error("stopped at once; the last checkpoint is kept")
        return INTERRUPTED
    except Exception as error:
        if _reader_is_gone(error):
            _discard(sys.stdout)
            return BROKEN_PIPE
        if isinstance(error, OSError) and error.filename is None:
            # It may be standard output that cannot be written. Its unwritten rest would fail again at exit.
            _drop_unwritable_output()
        if debug:
            _print_error("".join(traceback.format_exception(error)).rstrip())
        text = (
            str(error)
            if isinstance(error, CostateError)
            else out_of_memory(error) or _unexpected(error, debug)
        )
        # The message may quote an untrusted file.
        _print_error(f"error: {printable(text)}")
        return MISUSED if isinstance(error, UsageError) else FAILED


def _flushed(arguments: list[str]) -> int:
    """Run a command, and flush its output while a broken pipe can still be handled.

    At exit Python would complain instead.
    """
    try:
        code = _dispatch(arguments)
    except SystemExit:
        # The parser has printed the help.
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _reader_is_gone(error: Exception) -> bool:
    """Return True if the reader of our output (`costate tasks | head`), or the terminal, has gone.

    A terminal that has gone raises EIO instead of a broken pipe.
    """
    return isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError) and error.errno == errno.EIO and error.filename is None
    )


def _print_error(text: str) -> None:
    """Print to stderr, unless its reader has gone."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Discard the rest of a stream, which Python would try to write at exit, and fail again."""
    # In a notebook a stream is not a file of the operating system.
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _drop_unwritable_output() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)


def _unexpected(error: Exception, debug: bool) -> str:
    """Return a paragraph about an error that is not one of ours."""
    if isinstance(error, OSError) and error.strerror:
        what = (
            "Some output or file could not be written or read"
            if error.filename is None
            else f"{error.filename} cannot be used"
        )
        return f"{what}: {error.strerror}. Check the path, its permissions and the free space, and try again."
    message = " ".join(str(error).split())
    message = f"{message[:LONGEST_MESSAGE]} …" if len(message) > LONGEST_MESSAGE else message.rstrip(".")
    advice = (
        "the traceback above" if debug else f"the traceback that the same command shows with {DEBUG_FLAG}"
    )
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{what}. This is a bug in costate or in a package that it uses. Please report it with {advice}."


def _dispatch(arguments: list[str]) -> int:
    _without_colours_where_asked()
    arguments = without_task_files(arguments)
    if not arguments:
        print(_examples())
        return 0
    if arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"costate {importlib.metadata.version('costate')}")
        return 0
    if arguments[0] not in COMMANDS:
        raise ConfigError(f"Unknown command {arguments[0]!r}. {nearest(arguments[0], tuple(COMMANDS))}")
    load_task_files()
    command = importlib.import_module(f"costate.cli.commands.{arguments[0]}")
    run: Callable[[list[str]], int] = command.run
    with explained_usage(arguments[0], command):
        return run(arguments[1:])


def _without_colours_where_asked() -> None:
    """Pass NO_COLOR on to tyro, the only library here that ignores it.

    Tyro reads this variable when it is imported.
    """
    if os.environ.get("NO_COLOR"):
        os.environ["PYTHON_TYRO_ANSI_CODES"] = "False"


def _examples() -> str:
    shown = [(example, what) for command, example, what in EXAMPLES if command in COMMANDS]
    width = max(len(example) for example, _ in shown)
    lines = [
        "Recurrent policies whose hidden state is trained to be the co-state of optimal control. For "
        "example:",
        "",
    ]
    lines += [f"  {example:{width}}  # {what}" for example, what in shown]
    return "\n".join(
        [*lines, "", "`costate --help` lists all commands, `costate COMMAND --help` explains one."]
    )


def _overview() -> str:
    lines = [
        "usage: costate COMMAND …",
        "",
        "Recurrent policies whose hidden state is trained to be the co-state of optimal control.",
        "",
    ]
    lines += [f"  {name:10} {what}" for name, what in COMMANDS.items()]
    anywhere = [
        "With any command, anywhere on the line:",
        "  --tasks FILE  load tasks of your own from a Python file (or COSTATE_TASKS in the environment)",
        "  --debug       show the traceback of an error (or COSTATE_DEBUG=1)",
    ]
    return "\n".join([*lines, "", *anywhere, "", "`costate COMMAND --help` explains a command."])


if __name__ == "__main__":
    sys.exit(main())
