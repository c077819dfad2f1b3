"""Explain errors on the command line in one paragraph, instead of tyro's boxes."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from costate._base.errors import CostateError, UsageError
from costate._base.other_names import instead_of
from costate._base.registry import nearest
from costate.cli.settings import settings_of_command


@contextlib.contextmanager
def explained_usage(command: str, module: Any) -> Iterator[None]:
    """Raise tyro's errors as a :class:`UsageError` inside this block, and errors of our configs unchanged."""
    import tyro

    # This hook is not part of tyro's public interface. Without it, tyro's boxes are shown instead of our
    # paragraphs.
    hook = getattr(getattr(tyro, "_errors", None), "on_parse_error", None)
    try:
        with (
            contextlib.nullcontext() if hook is None else hook(lambda event: _refuse(command, module, event))
        ):
            yield
    except SystemExit as ending:
        own = _own_error(ending)
        if own is not None:
            raise own from None
        raise


def _refuse(command: str, module: Any, event: Any) -> None:
    # One of our errors inside tyro's: the config was parsed, but cannot work.
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
            return (
                f"{_shown(event.argument)} is {event.value!r}. {nearest(event.value, tuple(event.choices))}"
            )
        case "MissingArgs":
            return f"{', '.join(_shown(each.arg) for each in event.missing_arguments)} must be given."
        case "BadValue":
            return f"{_shown(event.argument)} needs a value, but none was given."
        case "InstantiationFailure":
            # A config that refuses a value explains it in its own message. A value that is not a number is
            # shown with its flag.
            what = (
                "A setting is out of range"
                if event.argument is None
                else f"{_shown(event.argument)} cannot be parsed"
            )
            return f"{what}: {_first_line(event.message)}."
        case other:
            return f"The command line cannot be parsed ({other})."


def _shown(argument: Any) -> str:
    """Return an argument as the help shows it: its flag, or its placeholder.

    A list of choices is no placeholder.
    """
    if not argument.is_positional():
        return str(argument.display_name())
    metavar = str(argument.lowered.metavar)
    return str(argument.field.intern_name).upper() if metavar.startswith("{") else metavar


def _first_line(message: Any) -> str:
    """Return the first line of the parser's message.

    If several types are possible, the parser lists all of them and what it tried; this is shortened.
    """
    line = str(message).strip().partition("\n")[0].rstrip(".")
    several = re.fullmatch(r"no type matching .* could be instantiated from (\[.*\])", line)
    return line if several is None else f"{several[1]} has a wrong type"


def _unknown(module: Any, tokens: list[str]) -> str:
    """Explain the first token that no setting takes.

    A value behind a misspelt flag is left over as well, so flags are looked at first.
    """
    flags = [token.partition("=")[0] for token in tokens if token.startswith("--")]
    if not flags:
        several = len(tokens) > 1
        shown = ", ".join(map(repr, tokens))
        pronoun = "them" if several else "it"
        return f"Unexpected argument{'s' * several} {shown}. Is a flag missing before {pronoun}?"
    known: dict[str, list[list[str]]] = {}
    for words, settings in settings_of_command(module):
        for name in {name for setting in settings for name in setting.names}:
            known.setdefault(name, []).append(words)
    if flags[0] in known:
        return _not_applicable(flags[0], known[flags[0]])
    hint = instead_of(flags[0]) or nearest(flags[0], tuple(known)).partition("Known:")[0].strip()
    return f"There is no setting {flags[0]}. {hint}".strip()


def _not_applicable(flag: str, ways: list[list[str]]) -> str:
    """Say which learner or part a flag belongs to, if it is not the chosen one.

    ``ways`` are the choices with which the flag exists.
    """
    chosen = [(way[-2].removeprefix("--"), way[-1]) for way in ways if way]
    # A part of a learner is no answer where another learner is all that is missing.
    of_a_learner = any(part == "algorithm" for part, _ in chosen)
    for part in dict.fromkeys(part for part, _ in chosen):
        if flag.startswith(f"--{part}.") and (part in ("core", "readout") or not of_a_learner):
            names = list(dict.fromkeys(name for choice, name in chosen if choice == part))
            listed = f"the {part} {names[0]}" if len(names) == 1 else f"the {part}s {', '.join(names)}"
            return (
                f"{flag} is a setting of {listed}, and another {part} was chosen. "
                f"Add --{part} {' or '.join(names)}, or leave {flag} out."
            )
    from costate.learners import DEFAULT_LEARNER, LEARNERS, other_learners

    default: dict[str, list[str]] = {DEFAULT_LEARNER: []}
    chosen_by = default | {name: ["--algorithm", name] for name in other_learners()}
    owners = [name for name, words in chosen_by.items() if words in ways]
    listed = " or ".join(LEARNERS[name].label for name in owners)
    others = [LEARNERS[name].label for name in LEARNERS.names() if name not in owners]
    return (
        f"{flag} is a setting of {listed}, and {' and '.join(others)} {'have' if len(others) > 1 else 'has'} "
        f"no such setting. Leave {flag} out, or choose {listed} with --algorithm {' or '.join(owners)} or a "
        "preset of it."
    )
