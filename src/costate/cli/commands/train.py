"""``costate train``: start a run, train several seeds together, or continue a run."""

import argparse
import contextlib
import dataclasses
import itertools
import pathlib
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from costate._base.checks import MOST_SEEDS, require_at_most
from costate._base.errors import ConfigError, RunDirectoryError
from costate._base.other_names import task_by_position, with_our_names
from costate._base.plain_data import chosen_parts, with_parts
from costate.cli.arguments import read_arguments
from costate.cli.choices import AlgorithmName, CoreName, PresetName, ReadoutName, named_by
from costate.cli.help_text import HelpLayout
from costate.cli.settings import flag_of, sentences_of, settings_of
from costate.config.flat_names import places_of
from costate.config.loss_settings import flat_losses, loss_settings, losses_of
from costate.config.naming import variant_name
from costate.config.presets import check_preset, preset, preset_names, usual_preset
from costate.config.run_config import RunConfig
from costate.config.run_settings import RunSettings, run_settings
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import TASKS
from costate.learners import DEFAULT_LEARNER, LEARNERS, LearnerConfig, other_learners
from costate.learners.rollout import RolloutConfig
from costate.losses import LOSSES
from costate.policies.cores import CORES
from costate.policies.policy import PolicyConfig
from costate.policies.readouts import READOUTS
from costate.runs.interrupts import INTERRUPTED
from costate.runs.run_directory import CONFIG_FILE, check_free, open_run, runs_in
from costate.training.continuation import refusals

if TYPE_CHECKING:
    from costate.training.console import AbstractReporter

# Choices that add settings of their own, so that the full list of settings includes them.
BESIDE: tuple[list[str], ...] = (
    [],
    *(["--algorithm", name] for name in other_learners()),
    *(["--core", name] for name in CORES.names() if dataclasses.fields(CORES[name])),
    *(["--readout", name] for name in READOUTS.names() if dataclasses.fields(READOUTS[name])),
    *(
        ["--algorithm", learner, flag_of(part), name]
        for learner in LEARNERS.names()
        for part, registry in chosen_parts(LEARNERS[learner]).items()
        for name in registry.names()
        if registry[name] is not type(getattr(LEARNERS[learner], part))
    ),
)
LEARNER_PARTS = tuple(
    dict.fromkeys(part for name in LEARNERS.names() for part in chosen_parts(LEARNERS[name]))
)
"""Parts of learners that are chosen by name, each by a flag beside the settings of the learner."""


@dataclasses.dataclass(frozen=True)
class CommonArguments(RunSettings):
    """Training settings that do not depend on the learner."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = ""
    """Task to train on; `costate tasks` lists them. gym:ID is a task of Gymnasium. Not given with --resume.
    """
    algorithm: AlgorithmName = DEFAULT_LEARNER  # type: ignore[valid-type]
    """Learner: PPO as in the paper, or recurrent soft actor-critic, which needs far fewer steps.

    Each has its own settings.
    """
    preset: PresetName = "nc-gru"  # type: ignore[valid-type]
    """Variant that supplies the defaults below."""
    core: CoreName = "gru"  # type: ignore[valid-type]
    """Recurrent core."""
    readout: ReadoutName = "quadratic"  # type: ignore[valid-type]
    """Control law that turns the hidden state into an action."""
    seeds: int = 1
    """Number of seeds to train together in one program, counted from --seed. Each has its own folder."""
    devices: int | None = None
    """Number of devices that share the learner's work; None for all that can be used."""
    out: pathlib.Path | None = None
    """Folder of the run; None for runs/TASK/VARIANT/seed-SEED.

    With several seeds, the folder that contains theirs.
    """
    resume: pathlib.Path | None = None
    """Folder of a run to continue instead of starting a new one, or a folder of several seeds to continue
    together.
    """
    overwrite: bool = False
    """Delete the run that is already in the folder."""
    wandb: str | None = None
    """Weights & Biases project to log to as well.

    Without it nothing is sent anywhere. WANDB_MODE=offline keeps the log on disk.
    """
    live: bool = False
    """Show learning curves and the newest policy in the browser during training."""
    port: int = 8080
    """Port of --live, or the first free one after it."""
    sensors: Annotated[SensorConfig, tyro.conf.arg(name="")] = SensorConfig()
    policy: Annotated[PolicyConfig, tyro.conf.arg(name="")] = PolicyConfig()
    rollout: Annotated[RolloutConfig, tyro.conf.arg(name="")] = RolloutConfig()


def _arguments_of(name: str) -> type[Any]:
    """Return the class of train's arguments with the settings of a learner."""
    kind, others = LEARNERS[name], [other for other in LEARNERS.names() if other != name]
    places_of(kind, *(field.name for field in dataclasses.fields(CommonArguments)))
    settings = Annotated[kind, tyro.conf.arg(name="")]  # type: ignore[valid-type]
    usual, described = kind(), sentences_of(kind)
    parts = [
        (
            part,
            Annotated[named_by(registry), tyro.conf.arg(help=described.get(part, ""))],
            registry.name_of(type(getattr(usual, part))),
        )
        for part, registry in chosen_parts(kind).items()
    ]
    losses = [
        (
            flat,
            Annotated[field.type, tyro.conf.arg(help=_about_loss(loss, field.name))],
            getattr(LOSSES[loss](), field.name),
        )
        for flat, (loss, field) in loss_settings().items()
    ]
    made = dataclasses.make_dataclass(
        "TrainArguments",
        [("learner", settings, usual), *parts, *losses],
        bases=(CommonArguments,),
        frozen=True,
    )
    listed = ", ".join(f"with --algorithm {other}, those of {LEARNERS[other].label}" for other in others)
    made.__doc__ = (
        f"Train a recurrent policy on a task whose sensors fail, or continue a run.\n\n"
        f"The learner's settings are those of {kind.label}; {listed}."
    )
    return made


def _about_loss(name: str, field: str) -> str:
    """Return the help of a setting of an auxiliary loss: what the loss does, and what the setting is."""
    summary = (LOSSES[name].__doc__ or "").strip().partition("\n")[0]
    return f"Auxiliary loss {name}: {summary} {sentences_of(LOSSES[name]).get(field, '')}".strip()


ARGUMENTS_OF = {name: _arguments_of(name) for name in LEARNERS.names()}
"""Learner → the class of train's arguments with its settings."""


LAYOUT = HelpLayout(
    examples=(
        ("costate train CartpoleSwingup --steps 1e6", "Ctrl-C saves and stops"),
        ("costate train WalkerStand --preset fast", "stands half blind within a minute"),
        ("costate train --resume runs/CartpoleSwingup/nc-gru/seed-0", "continue"),
    ),
    groups={
        "Run": ("preset", "steps", "seed", "seeds", "out", "overwrite", "resume", "devices", "diverged"),
        "Task and sensors": ("task", "sensors"),
        "Learner": ("algorithm", *LEARNER_PARTS, "learner", *loss_settings(), "rollout"),
        "Policy": ("core", "readout", "policy"),
        "Logging": ("evaluate_every", "checkpoint_every", "live", "port", "wandb"),
    },
    usual={
        "preset": "Variant:",
        "steps": "Environment steps, if not the budget of the task; 1e6 is a million.",
        "seed": "Seed of weights, noise, sensor faults and episodes.",
        "seeds": "Seeds to train together, counted from --seed.",
        "out": "Folder of the run, if not runs/TASK/VARIANT/seed-SEED.",
        "overwrite": "Delete the run that is already in the folder.",
        "resume": "Folder of a run to continue.",
        "task": "Task to train on; `costate tasks` lists them.",
        "sensors.dropout": "Probability of a blackout of all sensors at a step.",
        "sensors.group_dropout": "The same for each group of sensors by itself.",
        "sensors.burst_length": "Mean length of blackouts in steps, if longer than one.",
        "sensors.noise": "Standard deviation of noise on every sensor.",
        "sensors.hide": "Groups of sensors to leave out; `velocity` for all velocities.",
        "algorithm": "PPO, or soft actor-critic, which needs fewer steps.",
        "rollout.environments": "Number of parallel environments.",
        "learner.costate_coef": "Weight of the co-state loss.",
        "learner.learning_rate": "Adam's initial learning rate.",
        "core": "Recurrent core:",
        "policy.hidden_size": "Size of the hidden state.",
        "evaluate_every": "Environment steps between two evaluations; 0 for none.",
        "checkpoint_every": "Iterations between two checkpoints.",
        "live": "Watch training in the browser.",
        "wandb": "Weights & Biases project to log to as well.",
    },
    closing="All {count} settings: `costate train --help-all`; "
    + ", ".join(f"for {LEARNERS[name].label}, add --algorithm {name}" for name in other_learners())
    + ".",
)  # fmt: skip


def arguments_for(words: list[str]) -> CommonArguments:
    """Return the arguments of train, with defaults, for the learner, core and readout chosen in ``words``."""
    return _train_defaults(words)


def run(arguments: list[str]) -> int:
    """Train a recurrent policy, or continue a run."""
    from costate.runs.closing_words import closing_words
    from costate.training.console import reporter_for_stdout
    from costate.training.loop import resume_together, train_together

    arguments = with_our_names(task_by_position(arguments), _all_flags())
    defaults = _train_defaults(arguments)
    parsed = read_arguments("train", type(defaults), arguments, defaults, LAYOUT)
    if parsed.resume is not None:
        runs = runs_in(parsed.resume)
        changes = _changes(parsed.resume, open_run(runs[0]).config, parsed, arguments)
        with (
            contextlib.closing(reporter_for_stdout()) as reporter,
            _live_view(parsed, open_run(runs[0]).config, runs[0], reporter),
        ):
            outcomes = resume_together(
                runs,
                steps=changes.steps,
                checkpoint_every=changes.checkpoint_every,
                evaluate_every=changes.evaluate_every,
                diverged=changes.diverged,
                devices=parsed.devices,
                wandb=parsed.wandb,
                reporter=reporter,
            )
        where = parsed.resume
    else:
        configs = _seed_configs(_run_config(parsed), parsed.seeds)
        folder = (
            pathlib.Path("runs") / configs[0].task_record.folder / variant_name(configs[0], parsed.preset)
        )
        many = len(configs) > 1
        where = (parsed.out or folder) if many else (parsed.out or folder / f"seed-{configs[0].seed}")
        if many and (where / CONFIG_FILE).is_file():
            raise RunDirectoryError(
                f"{where} is a run itself, so it cannot contain the folders of several seeds. Choose another "
                "folder with --out."
            )
        outs = [where / f"seed-{config.seed}" if many else where for config in configs]
        with (
            contextlib.closing(reporter_for_stdout()) as reporter,
            _live_view(parsed, configs[0], outs[0], reporter),
        ):
            outcomes = train_together(
                configs,
                outs,
                overwrite=parsed.overwrite,
                devices=parsed.devices,
                wandb=parsed.wandb,
                reporter=reporter,
            )
    if not all(outcome.finished for outcome in outcomes):
        print(f"stopped and saved; continue with: costate train --resume {where}")
        return INTERRUPTED
    for outcome in outcomes:
        for line in closing_words(
            outcome.run, f"seed {outcome.run.config.seed}: " if len(outcomes) > 1 else ""
        ):
            print(line)
    run = outcomes[0].run
    folders = ", ".join(outcome.run.path.name for outcome in outcomes)
    what = f"{where}/ ({folders}, each with" if len(outcomes) > 1 else f"{run.path} ("
    line = f"done: {what} metrics.jsonl, {run.learning_curve.name}, checkpoints/); "
    print(f"{line}evaluate with: costate evaluate {run.path}".replace("( ", "("))
    return 0


def _all_flags() -> set[str]:
    """Return the flags of train for all learners."""
    return {flag for kind in ARGUMENTS_OF.values() for setting in settings_of(kind) for flag in setting.names}


def _live_view(
    arguments: CommonArguments, config: RunConfig, out: pathlib.Path, reporter: "AbstractReporter"
) -> contextlib.AbstractContextManager[None]:
    """Return a context with the live view of the first run, if it was requested."""
    if not arguments.live:
        return contextlib.nullcontext()
    from costate.show.live import check_watchable, watched

    if arguments.resume is None:
        # Checked before the view starts, which would show the run that is in the folder now.
        check_free(out, overwrite=arguments.overwrite)
    check_watchable(config, arguments.port)
    return watched(out, arguments.port, arguments.resume is not None, reporter.say)


def _seed_configs(config: RunConfig, seeds: int) -> list[RunConfig]:
    if seeds < 1:
        raise ConfigError(
            f"seeds is {seeds}, but at least 1 seed is needed. --seeds 4 trains four, counted from --seed."
        )
    require_at_most("seeds", seeds, MOST_SEEDS)
    return [dataclasses.replace(config, seed=config.seed + i) for i in range(seeds)]


def _train_defaults(arguments: list[str]) -> CommonArguments:
    """Return the defaults implied by the task, preset, core and readout on the command line.

    With --resume they are the settings of the run.
    """
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--algorithm", "--preset", "--core", "--readout", "--resume", *map(flag_of, LEARNER_PARTS)):
        peek.add_argument(flag)
    chosen, rest = peek.parse_known_args(arguments)
    if chosen.resume is not None:
        config = open_run(runs_in(pathlib.Path(chosen.resume))[0]).config
        return _as_arguments(config, config.learner.usual_preset())
    # An unknown preset is left to the full parser, whose error shows the choices.
    name = chosen.preset if chosen.preset in preset_names() else usual_preset(chosen.algorithm)
    task = _task_among(rest)
    config = preset(name, task or next(iter(TASKS)).name)
    if task is not None and chosen.algorithm in LEARNERS:
        check_preset(name, task, chosen.algorithm)
    names = vars(chosen)
    config = dataclasses.replace(
        config, policy=with_parts(config.policy, names), learner=with_parts(config.learner, names)
    )
    return dataclasses.replace(_as_arguments(config, name), task="")


def _task_among(words: list[str]) -> str | None:
    """Return the task on a command line.

    None if there is none: the full parser says what is missing or unknown.
    """
    behind_flags = [
        word
        for before, word in itertools.pairwise(["", *words])
        if before.startswith("--") and "=" not in before
    ]
    # A word behind a flag is more likely its value, but some flags take no value.
    for word in (*(word for word in words if word not in behind_flags), *behind_flags):
        with contextlib.suppress(ConfigError):
            return TASKS[word].name
    return None


def _as_arguments(config: RunConfig, preset_name: str) -> CommonArguments:
    common = CommonArguments(
        task=config.task,
        algorithm=config.learner_name,
        preset=preset_name,
        core=CORES.name_of(type(config.policy.core)),
        readout=READOUTS.name_of(type(config.policy.readout)),
        **run_settings(config),
        sensors=config.sensors,
        policy=config.policy,
        rollout=config.rollout,
    )
    shared = {field.name: getattr(common, field.name) for field in dataclasses.fields(common)}
    for part, registry in chosen_parts(type(config.learner)).items():
        shared[part] = registry.name_of(type(getattr(config.learner, part)))
    kind, losses = ARGUMENTS_OF[config.learner_name], flat_losses(config.losses)
    arguments: CommonArguments = kind(**shared, **losses, learner=config.learner)
    return arguments


def _run_config(arguments: CommonArguments) -> RunConfig:
    if not arguments.task:
        raise ConfigError(
            "No task was given. For example: costate train WalkerStand. `costate tasks` lists all of them."
        )
    return RunConfig(
        task=arguments.task,
        **run_settings(arguments),
        policy=arguments.policy,
        sensors=arguments.sensors,
        rollout=arguments.rollout,
        learner=_learner(arguments),
        losses=losses_of({name: getattr(arguments, name) for name in loss_settings()}),
    )


def _learner(arguments: CommonArguments) -> LearnerConfig:
    """Return the learner's settings, a field of every class in ``ARGUMENTS_OF``."""
    settings: LearnerConfig = arguments.learner  # type: ignore[attr-defined]
    return settings


class _Changes(NamedTuple):
    """New values of the settings that may change when a run is resumed; None for settings that stay."""

    steps: int | None
    checkpoint_every: int | None
    evaluate_every: int | None
    diverged: str | None


def _changes(run: pathlib.Path, config: RunConfig, parsed: CommonArguments, arguments: list[str]) -> _Changes:
    """Return the requested changes of a resumed run. Raise for settings that may not change."""
    flags = {argument.split("=")[0].replace("_", "-") for argument in arguments}
    meaningless = sorted(flags & {"--preset", "--out", "--overwrite", "--seeds"})
    if meaningless:
        raise ConfigError(
            f"{', '.join(meaningless)} cannot be given with --resume, which continues {run} with its own "
            f"settings. Leave {'it' if len(meaningless) == 1 else 'them'} out."
        )
    # A part with another name gets its default settings.
    names = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(parsed)}
    policy, learner = with_parts(parsed.policy, names), with_parts(_learner(parsed), names)
    changed = dataclasses.replace(parsed, policy=policy, learner=learner)  # type: ignore[call-arg]
    wanted = _run_config(changed)
    if set(wanted.losses) == set(config.losses):
        # The order of flags has no meaning.
        wanted = dataclasses.replace(wanted, losses=config.losses)
    refused = refusals(config, wanted)
    if refused:
        raise ConfigError(
            f"{run} cannot be resumed with a different config. Changed: {'; '.join(refused)}. Leave these "
            "flags out, or start a new run with --out. Only --steps, --checkpoint-every, --evaluate-every "
            "and --diverged can change when a run is resumed."
        )
    if wanted.evaluate_every is None and config.evaluate_every is not None:
        raise ConfigError(
            f"evaluate_every is {config.evaluate_every} in {run}. To change it, give a number of steps, or 0 "
            "for no evaluation."
        )
    return _Changes(
        # A flag with the value of the first run can still be a change for the other seeds.
        wanted.total_steps if "--steps" in flags or wanted.steps != config.steps else None,
        wanted.checkpoint_every
        if "--checkpoint-every" in flags or wanted.checkpoint_every != config.checkpoint_every
        else None,
        wanted.evaluate_every
        if "--evaluate-every" in flags or wanted.evaluate_every != config.evaluate_every
        else None,
        wanted.diverged if "--diverged" in flags or wanted.diverged != config.diverged else None,
    )
