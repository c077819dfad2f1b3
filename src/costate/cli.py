"""The command line: ``costate COMMAND …``. A command is a file in ``commands/``, imported when it is asked for."""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence

from costate._errors import ConfigError, CostateError
from costate._registry import nearest
from costate._task_files import load_task_files, without_task_files
from costate.interrupts import INTERRUPTED

# What a shell reports for a program whose reader went away.
BROKEN_PIPE = 141

COMMANDS = {
    "train": "Train a recurrent policy, or continue a run.",
    "view": "Look at a trained policy in the browser, with its blackouts and co-states.",
    "video": "Film trained policies, without a display.",
    "evaluate": "Play whole episodes with a trained policy.",
    "export": "Write a trained policy as a bundle, for NumPy, ONNX or StableHLO.",
    "robustness": "Evaluate runs, never retrained, over a grid of sensor faults.",
    "align": "Compare the hidden states of a trained policy with true co-states.",
    "sweep": "Train variants × tasks × seeds, here or on a Ray cluster.",
    "memory": "Measure what memory is worth on a task: nothing, some frames, recurrent, full sight.",
    "report": "Draw the figures and tables of a folder of runs, as one page.",
    "tasks": "List the tasks with their sizes and training budgets.",
    "solve": "Solve a problem of optimal control and draw its co-states.",
    "bench": "Measure the speed of training, and the limit of the machine.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(arguments)
        # While a vanished reader can still be answered below; at exit Python would complain instead.
        sys.stdout.flush()
        return code
    except CostateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped at once; the last checkpoint is kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`costate tasks | head`). Python must not try to flush what is left at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"costate {importlib.metadata.version('costate')}")
        return 0
    if arguments[0] not in COMMANDS:
        raise ConfigError(f"Unknown command {arguments[0]!r}. {nearest(arguments[0], tuple(COMMANDS))}")
    rest = without_task_files(arguments[1:])
    load_task_files()
    run: Callable[[list[str]], int] = importlib.import_module(f"costate.commands.{arguments[0]}").run
    return run(rest)


def _overview() -> str:
    lines = ["usage: costate COMMAND …", "", "Recurrent policies whose hidden state is trained to be the co-state of optimal control.", ""]
    lines += [f"  {name:10} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [*lines, "", "`costate COMMAND --help` explains a command.", "`--tasks FILE` with any command loads tasks of your own from a Python file."]
    )


if __name__ == "__main__":
    sys.exit(main())
