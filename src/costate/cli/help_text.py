"""Format the output of ``costate COMMAND --help``, one screen, and of ``--help-all``, all settings."""

import dataclasses
import inspect
import shutil
import textwrap
from collections.abc import Mapping, Sequence

from costate.cli.settings import Arguments, Setting, settings_of

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
WIDEST, NARROWEST = 100, 60
# Width of the column of flags and values. Longer ones get a line of their own.
COLUMN = 28
# Choices up to this length are shown beside their flag, longer ones behind the description.
SHORT_CHOICES = 16
OTHERS = "Settings"


@dataclasses.dataclass(frozen=True)
class HelpLayout:
    """Arrangement of a command's settings in its help."""

    examples: tuple[tuple[str, str], ...] = ()
    """Command lines, each with a comment."""
    groups: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Title → places of settings, or of parts of the arguments that hold them.

    Settings in no group follow under a title of their own.
    """
    usual: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Places of the settings on the first screen, with a short description of each.

    If empty, all settings are on it.
    """
    without_defaults: tuple[str, ...] = ()
    """Parts whose defaults are not shown, because settings that are not given come from elsewhere."""
    closing: str = ""
    """A paragraph at the end of the first screen."""


def help_wanted(arguments: Sequence[str]) -> bool:
    return any(argument in (*HELP, HELP_ALL) for argument in arguments)


def help_text(command: str, source: Arguments, layout: HelpLayout, everything: bool) -> str:
    """Format the help of a command, no wider than the terminal."""
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    kind = source if isinstance(source, type) else type(source)
    settings = settings_of(source)
    first_screen = bool(layout.usual) and not everything
    shown = [setting for setting in settings if not first_screen or setting.place in layout.usual]
    positional = " ".join(_by_position(setting) for setting in settings if not setting.names)
    blocks = [f"usage: costate {command} [SETTINGS] {positional}".rstrip()]
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    if layout.examples:
        blocks += [textwrap.fill(" ".join(paragraphs[0].split()), width), _examples(layout.examples)]
        paragraphs = paragraphs[1:] if everything else []
    blocks += [
        textwrap.fill(" ".join(paragraph.split()), width) for paragraph in paragraphs if paragraph.strip()
    ]
    grouped = _grouped(shown, layout)
    for title, group in grouped.items():
        briefs = [layout.usual[each.place] if first_screen else "" for each in group]
        lines = [
            line
            for each, brief in zip(group, briefs, strict=True)
            for line in _lines(each, layout, width, brief)
        ]
        blocks.append("\n".join([f"{title}:", *lines]))
    if first_screen and layout.closing:
        blocks.append(textwrap.fill(layout.closing.format(count=len(settings)), width))
    return "\n\n".join(blocks)


def _by_position(setting: Setting) -> str:
    return setting.value if setting.default is dataclasses.MISSING else f"[{setting.value}]"


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    widest = max(len(example) for example, _ in examples)
    return "\n".join(["Examples:", *(f"  {example:{widest}}  # {what}" for example, what in examples)])


def _grouped(settings: Sequence[Setting], layout: HelpLayout) -> dict[str, list[Setting]]:
    """Group settings by title, in the order of the layout's groups. Empty groups are left out."""
    grouped: dict[str, list[Setting]] = {title: [] for title in layout.groups}
    for setting in settings:
        grouped.setdefault(_title(setting, layout), []).append(setting)
    for title, places in layout.groups.items():
        # Settings that a group names are in its order. The others keep the order of the fields.
        order = {place: number for number, place in enumerate(places)}
        grouped[title].sort(key=lambda setting: order.get(setting.place, len(order)))
    return {title: group for title, group in grouped.items() if group}


def _title(setting: Setting, layout: HelpLayout) -> str:
    """Return the title of the group that names the setting, or else the closest part that contains it."""
    parts = setting.place.split(".")
    for length in range(len(parts), 0, -1):
        for title, places in layout.groups.items():
            if ".".join(parts[:length]) in places:
                return title
    return OTHERS


def _lines(setting: Setting, layout: HelpLayout, width: int, brief: str) -> list[str]:
    """Format a setting with its description, or with a brief one, beside it."""
    listed = len(setting.value) > SHORT_CHOICES and bool(setting.choices) and bool(setting.names)
    value = "NAME" if listed else setting.value
    name = f"  {setting.flag} {value}".rstrip() if setting.names else f"  {value}"
    text = brief or setting.description
    if listed:
        text = f"{text} {'' if brief else 'One of '}{', '.join(setting.choices)}."
    default = "" if setting.place.split(".")[0] in layout.without_defaults else setting.shown_default
    if default and not (brief and default == "None"):
        text = f"{text} (default: {default})"
    described = textwrap.wrap(text, width - COLUMN - 2, break_on_hyphens=False) or [""]
    beside = len(name) <= COLUMN
    first = [f"{name:{COLUMN}}  {described[0]}"] if beside else [name]
    return [line.rstrip() for line in (*first, *(f"{'':{COLUMN}}  {line}" for line in described[beside:]))]
