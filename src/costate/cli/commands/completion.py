"""``costate completion``: print a script that lets a shell complete commands, settings, tasks and runs."""

import dataclasses
import importlib
import pkgutil
from typing import Any

import tyro

from costate.cli import commands
from costate.cli.arguments import read_arguments
from costate.cli.settings import Setting, settings_of_command
from costate.cli.shells import Command, Flag, Grammar, ShellName, Values, script
from costate.control.catalogue import PROBLEMS
from costate.envs.tasks import TASKS
from costate.experiments.spec import preset_names

ANYWHERE = (
    Flag("--tasks", "Load tasks of your own from a Python file.", Values(paths=True)),
    Flag("--debug", "Show the traceback of an error.", None),
    Flag("--help", "Show the settings.", None),
    Flag("--help-all", "Show all settings.", None),
)


@dataclasses.dataclass(frozen=True)
class CompletionArguments:
    """Print a script that lets a shell complete commands, settings, tasks and runs.

    For example, in ~/.bashrc: eval "$(costate completion bash)"

    With --tasks FILE, the tasks of that file are completed too.
    """

    shell: tyro.conf.Positional[ShellName]
    """Shell to print the script for."""


ARGUMENTS = CompletionArguments


def run(arguments: list[str]) -> int:
    """Print a script that lets a shell complete all of this."""
    parsed = read_arguments("completion", CompletionArguments, arguments)
    print(script(parsed.shell, grammar()), end="")
    return 0


def grammar() -> Grammar:
    """Return all commands with their settings."""
    modules: dict[str, Any] = {
        info.name: importlib.import_module(f"{commands.__name__}.{info.name}")
        for info in pkgutil.iter_modules(commands.__path__)
    }
    return {name: _command(module) for name, module in modules.items() if hasattr(module, "run")}


def _command(module: Any) -> Command:
    settings = [setting for _, found in settings_of_command(module) for setting in found]
    # In reverse, so that the first setting of a name wins.
    flags = {
        flag: _flag(flag, setting)
        for setting in reversed(settings)
        for flag in setting.names
        if flag.startswith("--")
    }
    positional = next((setting for setting in settings if not setting.names), None)
    # The docstring of `run` describes the command.
    return Command(
        str(module.run.__doc__),
        (*reversed(flags.values()), *ANYWHERE),
        Values() if positional is None else _values(positional),
    )


def _flag(name: str, setting: Setting) -> Flag:
    return Flag(name, setting.description, _values(setting) if setting.value else None)


def _values(setting: Setting) -> Values:
    if setting.choices:
        return Values(setting.choices)
    match setting.value.rstrip(" …"):
        case "TASK":
            return Values(tuple(task.name for task in TASKS))
        case "PROBLEM":
            return Values(PROBLEMS.names())
        case "SPEC":
            return Values(preset_names(), paths=True)
        case _:
            return Values(paths=setting.paths)
