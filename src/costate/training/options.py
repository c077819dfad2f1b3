"""Train from Python as from the shell: a task, with options named as on the command line."""

import contextlib
import dataclasses
import pathlib
import warnings
from typing import Any

from costate._base.errors import ConfigError
from costate._base.other_names import OTHER_NAMES, instead_of
from costate._base.plain_data import chosen_parts, encode
from costate._base.registry import nearest
from costate.config.flat_names import places_of
from costate.config.loss_settings import flat_losses, loss_settings, losses_of
from costate.config.naming import variant_name
from costate.config.presets import check_preset, preset, usual_preset
from costate.config.run_config import RunConfig, with_overrides
from costate.learners import LEARNERS, LearnerConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import Run
from costate.training.console import SilentReporter, reporter_for_stdout
from costate.training.loop import train as train_run


def train(
    task: str | RunConfig,
    out: str | pathlib.Path | None = None,
    *,
    preset: str | None = None,
    algorithm: str | None = None,
    overwrite: bool = False,
    devices: int | None = None,
    wandb: str | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train a policy and return its run, for ``evaluate``, ``load`` and ``export``.

    ``options`` are the settings of ``costate train`` with underscores: ``steps``, ``seed``, ``dropout``,
    ``costate_coef``, ``hidden_size``, ``core``, …. A core or a readout is a name, or a name with settings:
    ``core={"name": "cornn", "time_step": 0.3}``. The default of ``out`` is runs/TASK/VARIANT/seed-SEED. A
    whole ``RunConfig`` can be given instead of a task and options.

    An interrupted run is saved and returned with a warning; ``costate.resume`` continues it.
    """
    config = run_config(task, preset, algorithm, options)
    usual = (
        pathlib.Path("runs")
        / config.task_record.folder
        / variant_name(config, preset or "")
        / f"seed-{config.seed}"
    )
    where = usual if out is None else pathlib.Path(out)
    with contextlib.closing(reporter_for_stdout() if progress else SilentReporter()) as reporter:
        outcome = train_run(
            config, where, overwrite=overwrite, devices=devices, wandb=wandb, reporter=reporter
        )
    if not outcome.finished:
        warnings.warn(
            f'Stopped and saved before the end. Continue with costate.resume("{where}").', stacklevel=2
        )
    return outcome.run


def run_config(
    task: str | RunConfig, preset_name: str | None, algorithm: str | None, options: dict[str, Any]
) -> RunConfig:
    """Return the config of a task and options.

    Raise a ConfigError for an unknown option, with the nearest known one.
    """
    options = dict(options)
    if isinstance(task, RunConfig):
        given = [*options, *(["preset"] if preset_name else []), *(["algorithm"] if algorithm else [])]
        if given:
            raise ConfigError(
                f"{', '.join(given)} cannot be given beside a RunConfig, which has its own value. "
                "Change the config instead."
            )
        return task
    if algorithm is not None and algorithm not in LEARNERS:
        raise ConfigError(f"Unknown algorithm {algorithm!r}. {nearest(str(algorithm), LEARNERS.names())}")
    chosen = preset_name or usual_preset(algorithm)
    base = preset(chosen, task)
    if algorithm is not None:
        check_preset(chosen, task, algorithm)
    losses = {name: options.pop(name) for name in loss_settings() if name in options}
    if losses and "losses" in options:
        raise ConfigError(
            f"losses and {', '.join(losses)} were both given. Give the losses in one of the two ways."
        )
    if losses:
        options["losses"] = [encode(loss) for loss in losses_of(flat_losses(base.losses) | losses)]
    return with_overrides(base, _nested(options, base.learner))


def _nested(options: dict[str, Any], learner: LearnerConfig) -> dict[str, Any]:
    """Return options as the nested fields of a config."""
    places = places_of(type(learner))
    by_name = chosen_parts(PolicyConfig) | chosen_parts(type(learner))
    nested: dict[str, Any] = {}
    for given, value in options.items():
        # As on the command line, names of other libraries are accepted, and dots name a part's field, as in
        # `replay.capacity`.
        path = (given if given in places else OTHER_NAMES.get(given, given)).split(".")
        if path[0] not in places:
            hint = (
                _elsewhere(path[0], learner)
                or instead_of(given)
                or nearest(given, tuple(sorted(places)), " of `costate train`")
            )
            raise ConfigError(f"Unknown option {given!r}. {hint}")
        inside = nested
        for part in (*places[path[0]], *path[:-1]):
            inside = inside.setdefault(part, {})
        name = path[-1]
        # A part that is chosen by name can be given as the name only.
        inside[name] = {"name": value} if name in by_name and isinstance(value, str) else value
    return nested


def _elsewhere(name: str, learner: LearnerConfig) -> str:
    """Return a hint if an option is a setting of other learners, else an empty text."""
    owners = [
        other
        for other in LEARNERS.names()
        if name in {field.name for field in dataclasses.fields(LEARNERS[other])}
    ]
    if not owners:
        return ""
    return (
        f"It is one of {' and '.join(owners)}, and the algorithm is {LEARNERS.name_of(type(learner))}: give "
        f"algorithm={' or '.join(map(repr, owners))}, or leave it out."
    )
