"""Load a user's own tasks from Python files that register them.

Such a file is executed. So only files that the user names are loaded, with ``--tasks`` or in the environment,
and never a file that a run names. The environment variable also passes them on to the processes that a
command starts.
"""

import importlib.util
import os
import pathlib
import sys
import traceback

from costate._base.errors import ConfigError

FLAG = "--tasks"
VARIABLE = "COSTATE_TASKS"


def without_task_files(arguments: list[str]) -> list[str]:
    """Move the files of every ``--tasks FILE`` from a command's arguments into the environment."""
    rest: list[str] = []
    files = [file for file in os.environ.get(VARIABLE, "").split(os.pathsep) if file]
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, file = argument.partition("=")
        if name != FLAG:
            rest.append(argument)
            continue
        file = file if equals else next(remaining, "")
        if not file:
            raise ConfigError(
                f"{FLAG} needs a file. Give a Python file that registers tasks, such as {FLAG} my_task.py."
            )
        files.append(str(pathlib.Path(file).resolve()))
    if files:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(files))
    return rest


def load_task_files() -> None:
    """Execute each file that the environment names once."""
    for file in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _load(pathlib.Path(file).resolve())


def _load(path: pathlib.Path) -> None:
    # Registered as a module, because dataclasses look theirs up. It is named after the whole path, so that
    # two files in different folders may have the same name.
    name = f"costate_tasks_{path}"
    if name in sys.modules:
        return
    spec = (
        importlib.util.spec_from_file_location(name, path)
        if path.suffix == ".py" and path.is_file()
        else None
    )
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"{path} is not a readable Python file. {FLAG} and {VARIABLE} name Python files that register "
            "tasks."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {frames[-1].lineno}" if frames else ""
        raise ConfigError(f"{path}{where} raised {type(error).__name__}: {error}") from error
