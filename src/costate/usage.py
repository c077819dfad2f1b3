"""What is wrong with a command line, as one paragraph. The parser draws boxes instead; it tells beforehand what it would draw."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from costate._errors import CostateError, UsageError
from costate._other_names import instead_of
from costate._registry import nearest
from costate.settings import settings_of_command


@contextlib.contextmanager
def explained_usage(command: str, module: Any) -> Iterator[None]:
    """While open, what tyro refuses is raised as a :class:`UsageError`; what our own configs refuse, as the error that they raised."""
    import tyro

    # Of all that tyro has, this is not promised to stay. Without it, its boxes are shown instead of our paragraphs.
    hook = getattr(getattr(tyro, "_errors", None), "on_parse_error", None)
    try:
        with contextlib.nullcontext() if hook is None else hook(lambda event: _refuse(command, module, event)):
            yield
    except SystemExit as ending:
        own = _own_error(ending)
        if own is not None:
            raise own from None
        raise


def _refuse(command: str, module: Any, event: Any) -> None:
    # An error of ours inside of tyro's: a config that was read well but cannot work.
    own = _own_error(sys.exception())
    if own is not None:
        raise own
    raise UsageError(f"{_explanation(module, event)} `costate {command} --help-all` shows all settings.")


def _own_error(error: BaseException | None) -> CostateError | None:
    while error is not None and not isinstance(error, CostateError):
        error = error.__context__
    return error


def _explanation(module: Any, event: Any) -> str:
    match type(event).__name__:
        case "UnrecognizedArgs":
            return _unknown(module, event.tokens)
        case "InvalidChoice":
            return f"{_shown(event.argument)} is {event.value!r}. {nearest(event.value, tuple(event.choices))}"
        case "MissingArgs":
            return f"{', '.join(_shown(each.arg) for each in event.missing_arguments)} must be given."
        case "BadValue":
            return f"{_shown(event.argument)} was given without its value."
        case "InstantiationFailure":
            name = "A value" if event.argument is None else _shown(event.argument)
            return f"{name} cannot be read: {str(event.message).rstrip('.')}."
        case other:
            return f"The command line cannot be read ({other})."


def _shown(argument: Any) -> str:
    """An argument as the help shows it: by its flag, or by what stands for it."""
    return str(argument.lowered.metavar if argument.is_positional() else argument.display_name())


def _unknown(module: Any, tokens: list[str]) -> str:
    """The first token that no setting takes; a value behind a misspelt flag is left over as well."""
    flags = [token.partition("=")[0] for token in tokens if token.startswith("--")]
    if not flags:
        return f"Nothing is known to do with {', '.join(map(repr, tokens))}. Perhaps the flag before it is missing."
    known: dict[str, list[list[str]]] = {}
    for words, settings in settings_of_command(module):
        for name in {name for setting in settings for name in setting.names}:
            known.setdefault(name, []).append(words)
    if flags[0] in known:
        ways = " or ".join(" ".join(arguments) for arguments in known[flags[0]])
        where = "no setting of the learner, core or readout that was chosen" if [] in known[flags[0]] else f"a setting only with {ways}"
        return f"{flags[0]} is {where}."
    hint = instead_of(flags[0]) or nearest(flags[0], tuple(known)).partition("Known:")[0].strip()
    return f"There is no setting {flags[0]}. {hint}".strip()
