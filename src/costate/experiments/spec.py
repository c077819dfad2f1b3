"""Read a sweep from a TOML file into a list of run configs, and report all of its problems at once."""

import dataclasses
import functools
import importlib.resources
import itertools
import pathlib
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from costate._base.checks import (
    LARGEST_COUNT,
    MOST_EPISODES,
    MOST_SEEDS,
    folder_name_problem,
    printable,
    whole,
)
from costate._base.errors import ConfigError
from costate._base.other_names import instead_of
from costate._base.plain_data import encode
from costate._base.registry import nearest
from costate.config.migrations import learner_named_in
from costate.config.presets import check_preset, preset, usual_preset
from costate.config.presets import preset_names as known_presets
from costate.config.run_config import RunConfig, config_hash, to_json, with_overrides
from costate.envs.tasks import PAPER_TASKS, TASKS
from costate.learners import LEARNERS
from costate.trained.robustness import check_grid

ALL_PAPER_TASKS = "paper"
"""Name for all eight tasks of the paper."""
KEYS = (
    "name",
    "description",
    "tasks",
    "variants",
    "seeds",
    "steps",
    "overrides",
    "grid",
    "resources",
    "evaluation",
    "budgets",
)
IN_A_BUDGET = ("description", "tasks", "variants", "seeds", "steps", "resources", "evaluation")
"""Keys that a budget may change: how much is run, but not what a run computes."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """Resources of one training process."""

    cores: int = 1
    """Processor cores.

    With one core each, most runs finish within an hour; more cores finish a single run sooner.
    """
    gpus: float = 0.0
    """Accelerators, as Ray counts them. The local backend provides none."""
    together: int = 0
    """Seeds of one cell that train in one program.

    0 for two if there are enough runs for every core: on one core, two seeds in one program take up to a
    fifth less time than one after the other (docs/performance.md).
    """
    retries: int = 3
    """How often a run is restarted when its worker or node dies.

    Errors of the run itself are not retried automatically.
    """

    def __post_init__(self) -> None:
        for name, lowest in (("cores", 1), ("together", 0), ("gpus", 0), ("retries", 0)):
            if not lowest <= getattr(self, name) <= LARGEST_COUNT:
                raise ConfigError(
                    f"resources.{name} is {getattr(self, name)}, but it must be at least {lowest} and at "
                    f"most {LARGEST_COUNT:,}."
                )


@dataclasses.dataclass(frozen=True)
class EvaluationPlan:
    """Evaluation of every finished run."""

    dropouts: tuple[float, ...] = (0.5, 0.75)
    """Blackout probabilities; none to skip evaluation."""
    episodes: int = 100
    """Episodes at each of them, with varying initial conditions."""

    def __post_init__(self) -> None:
        wrong = (
            [f"evaluation.episodes is {self.episodes}, but at least 1 is needed. The paper uses 100."]
            if self.episodes < 1
            else []
        )
        if self.episodes > MOST_EPISODES:
            wrong.append(
                f"evaluation.episodes is {self.episodes}, but at most {MOST_EPISODES:,} are possible. The "
                "paper uses 100."
            )
        try:
            if self.dropouts:
                check_grid(self.dropouts)
        except ConfigError as error:
            wrong.append(f"evaluation.dropouts: {error}")
        if wrong:
            raise ConfigError(" ".join(wrong))


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    variant: str
    """Name in tables and figures."""
    config: RunConfig

    @property
    def folder(self) -> str:
        return config_hash(self.config)

    @property
    def label(self) -> str:
        return f"{self.config.task} {self.variant} seed {self.config.seed}"


@dataclasses.dataclass(frozen=True)
class SweepSpec:
    """A sweep: its runs, their resources, and their evaluation."""

    name: str
    description: str
    runs: tuple[PlannedRun, ...]
    resources: Resources
    evaluation: EvaluationPlan
    source: str
    """The text that the spec was read from, stored with the results."""

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.variant for run in self.runs))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.config.task for run in self.runs))


def preset_names() -> tuple[str, ...]:
    return tuple(
        sorted(
            file.name.removesuffix(".toml")
            for file in _preset_folder().iterdir()
            if file.name.endswith(".toml")
        )
    )


def load_spec(name: str, budget: str | None = None) -> SweepSpec:
    """Return the sweep in a TOML file, or a preset of the package, with one of its budgets."""
    path = pathlib.Path(name)
    if name in preset_names():
        return parse_spec((_preset_folder() / f"{name}.toml").read_text(encoding="utf-8"), name, budget)
    if not path.is_file():
        raise ConfigError(
            f"There is no sweep {name!r}: it is neither a TOML file nor a preset. "
            f"{nearest(name, preset_names())}"
        )
    try:
        source = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name} is not valid TOML: byte {error.start} is not UTF-8. Save the file as UTF-8."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be read: {error.strerror}. Check the path and its permissions."
        ) from error
    return parse_spec(source, path.stem, budget)


def parse_spec(source: str, default_name: str, budget: str | None = None) -> SweepSpec:
    """Parse a spec, or raise one error that lists all of its problems.

    Without a ``budget``, a spec with several budgets gets the first. The others are added to the sweep's
    name.
    """
    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The sweep {default_name!r} is not valid TOML: {error}.") from error
    return spec_of(table, default_name, source, budget)


def spec_of(table: dict[str, Any], default_name: str, source: str, budget: str | None = None) -> SweepSpec:
    """Return the sweep that a table describes. ``source`` is the text to store with its results."""
    problems = _Problems()
    for key in table.keys() - set(KEYS):
        problems.add(f"unknown key {key!r}. {nearest(key, KEYS)}")
    table, suffix = _at_budget(table, budget, problems)
    name = _text(table, "name", default_name, problems) + suffix
    name_problem = folder_name_problem(name)
    if name_problem is not None:
        given = (
            "name"
            if "name" in table
            else "the name of the file, which names the sweep unless `name` is given,"
        )
        problems.add(
            f"{given} is {name!r}, but {name_problem}. It is also the name of the folder in sweeps/: use "
            "letters, digits, spaces, - and _. To write somewhere else, use --out."
        )
    description = _text(table, "description", "", problems)
    tasks, seeds = _tasks(table, problems), _seeds(table, problems)
    variants = _variants(table, problems)
    resources = problems.guard(lambda: _part(Resources, table, "resources", problems), Resources())
    evaluation = problems.guard(
        lambda: _part(EvaluationPlan, table, "evaluation", problems), EvaluationPlan()
    )
    runs = _plan(table, tasks, seeds, variants, problems)
    if not problems and not runs:
        problems.add("the grid is empty: there is nothing to run. Give at least one task, variant and seed.")
    problems.raise_for(name)
    return SweepSpec(name, description, runs, resources, evaluation, source)


class _Problems:
    """Problems of a spec, collected so that all of them are reported at once."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, text: str) -> None:
        """Add a problem. Control characters, which the file may contain, are escaped."""
        text = printable(text)
        if text not in self._found:
            self._found.append(text)

    def guard(self, build: Callable[[], Any], otherwise: Any) -> Any:
        """Return the result of ``build``, or ``otherwise`` if it raises a ConfigError, which is added."""
        try:
            return build()
        except ConfigError as error:
            self.add(str(error))
            return otherwise

    def raise_for(self, name: str) -> None:
        if self._found:
            listed = "\n".join(f"  - {text}" for text in self._found)
            count = f"{len(self._found)} problem{'s' if len(self._found) > 1 else ''}"
            raise ConfigError(f"The sweep {name!r} has {count}, and nothing was started:\n{listed}")


def _preset_folder() -> Any:
    return importlib.resources.files("costate.experiments") / "presets"


def _text(table: dict[str, Any], key: str, default: str, problems: _Problems) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        problems.add(f"{key} is {value!r}, but it should be a string.")
        return default
    return value


def _at_budget(table: dict[str, Any], budget: str | None, problems: _Problems) -> tuple[dict[str, Any], str]:
    """Return the spec with the changes of one of its budgets, and the suffix of the sweep's name."""
    budgets = table.get("budgets", {})
    if not isinstance(budgets, dict) or not all(isinstance(changes, dict) for changes in budgets.values()):
        problems.add(
            f"budgets is {budgets!r}, but it should be a table of budgets, each a table, for example "
            "[budgets.short] with steps = 3_000_000."
        )
        return table, ""
    if budget is not None and budget not in budgets:
        known = (
            nearest(budget, tuple(budgets)) if budgets else "This sweep has no budgets: leave --budget out."
        )
        raise ConfigError(f"Unknown budget {budget!r}. {known}")
    for name, changes in budgets.items():
        for key in changes.keys() - set(IN_A_BUDGET):
            problems.add(f"budgets.{name} has the key {key!r}. {nearest(key, IN_A_BUDGET)}")
    first = next(iter(budgets), None)
    chosen = budget or first
    return table | budgets.get(chosen, {}), f"-{chosen}" if chosen != first else ""


def _tasks(table: dict[str, Any], problems: _Problems) -> tuple[str, ...]:
    value = table.get("tasks", [])
    if value == ALL_PAPER_TASKS:
        return PAPER_TASKS
    if not isinstance(value, list) or not value:
        problems.add(
            f"tasks is {value!r}, but it should be a list of at least one task, or {ALL_PAPER_TASKS!r} for "
            "the paper's eight."
        )
        return ()
    known = [problems.guard(functools.partial(_task_name, str(task)), None) for task in value]
    return tuple(task for task in known if task is not None)


def _task_name(name: str) -> str:
    return TASKS[name].name


def _seeds(table: dict[str, Any], problems: _Problems) -> tuple[int, ...]:
    value = table.get("seeds", 1)
    value = [whole(each) for each in value] if isinstance(value, list) else whole(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        if value > MOST_SEEDS:
            problems.add(
                f"seeds is {value}, but at most {MOST_SEEDS:,} are possible. Give a smaller number, or a "
                "list of seeds."
            )
            return ()
        return tuple(range(value))
    listed = (
        isinstance(value, list)
        and value
        and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in value)
    )
    if not listed:
        problems.add(
            f"seeds is {value!r}, but it should be a number of seeds (10 for the seeds 0 to 9) or a list of "
            "at least one seed."
        )
        return ()
    if len(set(value)) < len(value):
        problems.add(f"seeds is {value!r}, which lists a seed twice.")
    return tuple(value)


def _variants(table: dict[str, Any], problems: _Problems) -> dict[str, dict[str, Any]]:
    """Return name → overrides, with the preset under its key."""
    value = table.get("variants", [])
    if isinstance(value, list) and value:
        value = {str(name): {"preset": name} for name in value}
    if not isinstance(value, dict) or not value:
        problems.add(
            f"variants is {value!r}, but it should list at least one preset ({', '.join(known_presets())}) "
            "or be a table of named variants."
        )
        return {}
    variants = {}
    for name, settings in value.items():
        if not name.strip() or not name.isprintable():
            problems.add(
                f"variants has the name {name!r}, but names are printed in tables and figures: use letters, "
                "digits, spaces and punctuation."
            )
        elif not isinstance(settings, dict):
            problems.add(
                f"variants.{name} is {settings!r}, but it should be a table with a preset and its changes."
            )
        elif settings.get("preset", "nc-gru") not in known_presets():
            problems.add(
                f"variants.{name} has the unknown preset {settings['preset']!r}. "
                f"{nearest(str(settings['preset']), known_presets())}"
            )
        else:
            variants[name] = settings
    return variants


def _part(kind: type, table: dict[str, Any], key: str, problems: _Problems) -> Any:
    """Build a dataclass from the table ``key``. Unknown entries and wrong types are errors."""
    data = table.get(key, {})
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(data, dict):
        raise ConfigError(f"{key} is {data!r}, but it should be a table with {', '.join(fields)}.")
    for name in data.keys() - fields.keys():
        problems.add(f"{key} has the unknown key {name!r}. {nearest(name, tuple(fields))}")
    known = {
        name: _int_if_default_is(value, fields[name].default)
        for name, value in data.items()
        if name in fields
    }
    for name, value in known.items():
        expected = type(fields[name].default)
        numbers = value if isinstance(value, list) else [value]
        fits = isinstance(value, list) == (expected is tuple) and all(
            isinstance(number, int | float)
            and not isinstance(number, bool)
            and (expected is not int or isinstance(number, int))
            for number in numbers
        )
        if not fits:
            raise ConfigError(f"{key}.{name} is {value!r}, but it should look like {fields[name].default!r}.")
    return kind(**{name: _as_field(value, fields[name].default) for name, value in known.items()})


def _int_if_default_is(value: Any, default: Any) -> Any:
    return whole(value) if isinstance(default, int) else value


def _as_field(value: Any, default: Any) -> Any:
    """Convert a TOML value to the type of a field. TOML's 0 is an integer, even if the field is a float."""
    if isinstance(value, list):
        return tuple(map(float, value))
    return float(value) if isinstance(default, float) else value


def _plan(
    table: dict[str, Any],
    tasks: tuple[str, ...],
    seeds: tuple[int, ...],
    variants: dict[str, dict[str, Any]],
    problems: _Problems,
) -> tuple[PlannedRun, ...]:
    common = problems.guard(lambda: _table(table, "overrides"), {})
    steps = whole(table.get("steps"))
    if "steps" in table and _steps_fit(steps, problems):
        common = {"steps": steps} | common
    grid = problems.guard(lambda: _table(table, "grid"), {})
    cells = problems.guard(lambda: list(_cells(grid)), [])
    # Checked here too, so that a wrong task or variant does not hide a wrong field.
    sources = {"overrides": common, "grid": grid} | {
        f"variants.{name}": settings for name, settings in variants.items()
    }
    if _check_fields(sources, problems):
        return ()
    runs: list[PlannedRun] = []
    refused: dict[str, list[str]] = {}
    for task, (name, settings), cell in itertools.product(tasks, variants.items(), cells):
        overrides = {key: value for key, value in settings.items() if key != "preset"}
        variant = printable(f"{name} {_cell_label(cell)}".strip())
        try:
            # Applied at once: an override that contradicts the preset alone may fit together with the next
            # one.
            config = _config(
                settings.get("preset"), task, functools.reduce(_merged, (common, overrides, cell))
            )
            runs += [PlannedRun(variant, dataclasses.replace(config, seed=seed)) for seed in seeds]
        except ConfigError as error:
            refused.setdefault(str(error), []).append(task)
    for message, where in refused.items():
        # A preset may use different learners on different tasks.
        problems.add(
            message if set(where) == set(tasks) else f"on {', '.join(dict.fromkeys(where))}: {message}"
        )
    _check_distinct(runs, problems)
    return tuple(runs)


def _config(preset_name: str | None, task: str, overrides: dict[str, Any]) -> RunConfig:
    """Return a preset with overrides.

    Without a preset, use the algorithm's usual one, as the command line does.
    """
    algorithm = learner_named_in(overrides)
    name = preset_name or usual_preset(algorithm)
    if preset_name is not None and algorithm in LEARNERS:
        check_preset(name, task, str(algorithm))
    return with_overrides(preset(name, task), overrides)


def _steps_fit(steps: Any, problems: _Problems) -> bool:
    """Return True if ``steps`` is a valid budget; add a problem if not.

    This is checked early, so that a wrong task or variant does not hide it.
    """
    fits = isinstance(steps, int) and not isinstance(steps, bool) and steps > 0
    if not fits:
        problems.add(
            f"steps is {steps!r}, but it should be a whole number of environment steps above 0. Leave it out "
            "to use each task's own budget."
        )
    return fits


def _merged(first: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Merge nested overrides; the later ones win. A part chosen by name replaces the earlier part."""
    result = dict(first)
    for name, value in then.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict) and "name" not in value
        result[name] = _merged(result[name], value) if both else value
    return result


def _check_fields(sources: dict[str, dict[str, Any]], problems: _Problems) -> bool:
    """Add a problem for each overridden field that does not exist or has a key of its own in a spec.

    Return True if there are any.
    """
    # The settings of a learner stand under `learner`, or under its name.
    parts = {
        name: {field: value for field, value in encode(LEARNERS[name]()).items() if field != "name"}
        for name in LEARNERS.names()
    }
    everything = to_json(preset("nc-gru", PAPER_TASKS[0])) | {"algorithm": ""} | parts
    found = [
        f"{where} {problem}"
        for where, overrides in sources.items()
        for path, _ in _leaves({name: value for name, value in overrides.items() if name != "preset"}, ())
        if (problem := _field_problem(path, everything)) is not None
    ]
    for text in found:
        problems.add(text)
    return bool(found)


def _field_problem(path: tuple[str, ...], everything: dict[str, Any]) -> str | None:
    """Return why the field at ``path`` cannot be overridden; None if it can."""
    if path in (("task",), ("seed",)):
        return f"sets {path[0]!r}, but tasks and seeds are set by the keys `tasks` and `seeds`."
    inside: Any = everything
    for name in path:
        # The fields of a core or readout depend on its name. They are checked when it is built.
        if not isinstance(inside, dict) or "name" in inside:
            return None
        if name not in inside:
            hint = instead_of(name) or nearest(name, tuple(inside))
            return f"has the unknown field {'.'.join(path)!r}. {hint}"
        inside = inside[name]
    return None


def _check_distinct(runs: list[PlannedRun], problems: _Problems) -> None:
    first: dict[str, PlannedRun] = {}
    same: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        other = first.setdefault(run.folder, run)
        if other is not run:
            same.setdefault((other.variant, run.variant), []).append(run.config.task)
    for (one, another), tasks in same.items():
        problems.add(
            f"the variants {one!r} and {another!r} are the same config on {', '.join(dict.fromkeys(tasks))}, "
            "so a comparison there is meaningless. Remove one of them or these tasks, or remove the "
            "override or grid entry that makes them equal."
        )


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{key} is {value!r}, but it should be a table of config fields.")
    return value


def _cells(grid: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the listed values, as nested overrides; one empty cell if nothing varies."""
    axes = list(_leaves(grid, ()))
    for path, values in axes:
        if not isinstance(values, list) or not values:
            raise ConfigError(
                f"grid.{'.'.join(path)} is {values!r}, but it should be a list of at least one value to try."
            )
    for values in itertools.product(*(values for _, values in axes)):
        cell: dict[str, Any] = {}
        for (path, _), value in zip(axes, values, strict=True):
            inner = cell
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = value
        yield cell


def _leaves(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _cell_label(cell: dict[str, Any]) -> str:
    return " ".join(
        f"{path[-1]}={value:g}" if isinstance(value, float) else f"{path[-1]}={value}"
        for path, value in _leaves(cell, ())
    )
