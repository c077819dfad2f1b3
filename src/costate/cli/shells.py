"""Write completion scripts for bash, zsh, fish and tcsh.

The script contains everything. Asking the program at every press of TAB would take seconds, because it would
import JAX.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

ShellName = Literal["bash", "zsh", "fish", "tcsh"]
SHELLS: tuple[ShellName, ...] = get_args(ShellName)


@dataclasses.dataclass(frozen=True)
class Values:
    """Possible values at one place: some words, and paths if ``paths`` is true."""

    words: tuple[str, ...] = ()
    paths: bool = False


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag and its values."""

    name: str
    description: str
    values: Values | None
    """None if the flag takes no value."""


@dataclasses.dataclass(frozen=True)
class Command:
    """Arguments that can follow the name of a command."""

    description: str
    flags: tuple[Flag, ...]
    positional: Values


Grammar = Mapping[str, Command]


def script(shell: ShellName, grammar: Grammar) -> str:
    """Return the script, which the shell reads when it starts."""
    writers: dict[ShellName, Callable[[Grammar], str]] = {
        "bash": _bash,
        "zsh": _zsh,
        "fish": _fish,
        "tcsh": _tcsh,
    }
    return writers[shell](grammar)


def _quoted(words: Sequence[str]) -> str:
    """Join words between single quotes, inside of which no shell expands anything."""
    return "'" + " ".join(words).replace("'", "'\\''") + "'"


def _cases(grammar: Grammar) -> str:
    """Return the shell code, common to bash and zsh, that sets ``words`` and ``paths``.

    It reads ``command``, ``before`` and ``current``.
    """
    lines = []
    for name, command in grammar.items():
        silent = [flag.name for flag in command.flags if flag.values == Values()]
        lines += [
            f"    {name}:{flag.name}) {_assigned(flag.values)} ;;"
            for flag in command.flags
            if flag.values not in (None, Values())
        ]
        if silent:
            lines.append(f"    {'|'.join(f'{name}:{flag}' for flag in silent)}) ;;")
        flags = _quoted([flag.name for flag in command.flags])
        positional = _assigned(command.positional)
        lines.append(f"    {name}:*) if [[ $current == -* ]]; then words={flags}; else {positional}; fi ;;")
    return "\n".join(lines)


def _assigned(values: Values | None) -> str:
    values = values or Values()
    return f"words={_quoted(values.words)} paths={'yes' if values.paths else ''}"


def _bash(grammar: Grammar) -> str:
    return f"""# bash completion of costate: source this, or `eval "$(costate completion bash)"` in ~/.bashrc
_costate() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=${{COMP_WORDS[1]}} words= paths=
  # --flag=value arrives as three words.
  if [[ $current == '=' ]]; then current=
  elif [[ $before == '=' ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  case $COMP_CWORD:$command:$before in 1:*) command=; before= ;; esac
  case $command:$before in
    :) words={_quoted([*grammar, "--help", "--version"])} ;;
{_cases(grammar)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $paths ]]; then
    local IFS=$'\\n'
    COMPREPLY+=($(compgen -f -- "$current"))
    compopt -o filenames 2> /dev/null
  fi
}}
complete -F _costate costate
"""


def _zsh(grammar: Grammar) -> str:
    commands = "\n".join(
        f"    {_quoted([f'{name}:{command.description}'])}" for name, command in grammar.items()
    )
    return f"""#compdef costate
# zsh completion of costate: save this as _costate in a folder of $fpath,
# or `eval "$(costate completion zsh)"` after compinit in ~/.zshrc
_costate() {{
  local command=$words[2] before=$words[CURRENT-1] current=$PREFIX
  if (( CURRENT == 2 )); then
    local -a commands=(
{commands}
    )
    _describe command commands
    return
  fi
  # Until here, `words` is the command line itself.
  local words= paths=
  case $command:$before in
{_cases(grammar)}
  esac
  [[ -n $words ]] && compadd -- ${{=words}}
  [[ -n $paths ]] && _files
}}
if [[ $funcstack[1] == _costate ]]; then _costate "$@"; else compdef _costate costate; fi
"""


def _fish(grammar: Grammar) -> str:
    lines = [
        "# fish completion of costate: `costate completion fish > ~/.config/fish/completions/costate.fish`",
        "complete -c costate -f",
        *(
            f"complete -c costate -n __fish_use_subcommand -a {name} -d {_quoted([command.description])}"
            for name, command in grammar.items()
        ),
    ]
    for name, command in grammar.items():
        here = f"complete -c costate -n '__fish_seen_subcommand_from {name}'"
        if command.positional.words:
            lines.append(f"{here} -a {_quoted(command.positional.words)}")
        if command.positional.paths:
            lines.append(f"{here} -F")
        lines += [f"{here} {_fish_flag(flag)} -d {_fish_text(flag.description)}" for flag in command.flags]
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Flag) -> str:
    name = f"-l {flag.name.removeprefix('--')}"
    if flag.values is None:
        return name
    words = f" -a {_quoted(flag.values.words)}" if flag.values.words else ""
    return f"{name} -r -F{words}" if flag.values.paths else f"{name} -x{words}"


def _fish_text(text: str) -> str:
    """Quote for fish, which needs a backslash before a quote and before a backslash."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _tcsh(grammar: Grammar) -> str:
    """Return the script for tcsh.

    Tcsh looks at one word at a time, so that flags of all commands are offered everywhere.
    """
    values: dict[str, dict[str, None]] = {}
    paths: set[str] = set()
    for command in grammar.values():
        for flag in command.flags:
            values.setdefault(flag.name, {}).update(dict.fromkeys(flag.values.words if flag.values else ()))
            if flag.values and flag.values.paths:
                paths.add(flag.name)
    rules = [
        f"p/1/({' '.join(grammar)})/",
        f"c/--/({' '.join(sorted(name.removeprefix('--') for name in values))})/",
    ]
    rules += [f"n/{name}/({' '.join(words)})/" for name, words in values.items() if words]
    rules += [f"n/{name}/f/" for name in sorted(paths) if not values[name]]
    rules += [
        f"n/{name}/({' '.join(command.positional.words)})/"
        for name, command in grammar.items()
        if command.positional.words
    ]
    lines = [
        "# tcsh completion of costate: source this file in ~/.tcshrc",
        "complete costate \\",
        *(f"  '{rule}' \\" for rule in rules),
        "  'p/*/f/'",
    ]
    return "\n".join(lines) + "\n"
