"""The command line: ``costate train | evaluate | tasks | bench``."""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, cast

import tyro

from costate._errors import ConfigError, CostateError, RunDirectoryError
from costate._registry import nearest
from costate.config import PRESETS, PresetName, RunConfig, differing_fields, preset, to_json, variant_name
from costate.cores import CORES
from costate.envs.sensors import BlackoutConfig
from costate.envs.tasks import TASKS
from costate.policy import PolicyConfig
from costate.ppo import PPOConfig
from costate.readouts import READOUTS
from costate.rollout import RolloutConfig
from costate.run_directory import CONFIG_FILE, open_run, runs_in

# What a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 130
BROKEN_PIPE = 141

CoreName = tyro.extras.literal_type_from_choices(CORES.names())
ReadoutName = tyro.extras.literal_type_from_choices(READOUTS.names())


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train a recurrent policy on a task whose sensors fail, or continue a run."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = ""
    """Task to train on; `costate tasks` lists them. Not given with --resume."""
    preset: PresetName = "nc-gru"
    """Variant of the paper that supplies the defaults below."""
    core: CoreName = "gru"  # type: ignore[valid-type]
    """Recurrent core."""
    readout: ReadoutName = "quadratic"  # type: ignore[valid-type]
    """Control law that turns the hidden state into an action."""
    seed: int = 0
    """Seed of weights, noise, sensor faults and episodes."""
    seeds: int = 1
    """Train so many seeds together in one program, counted from --seed; each has a folder of its own."""
    devices: int | None = None
    """Devices that share the learner's work; None for all that can be used."""
    steps: int | None = None
    """Environment steps; None for the task's budget in the paper."""
    out: pathlib.Path | None = None
    """Folder of the run; None for runs/TASK/VARIANT/seed-SEED. With several seeds, the folder that holds their folders."""
    resume: pathlib.Path | None = None
    """Folder of a run to continue, instead of starting a new one; or a folder of several seeds, to continue them together."""
    overwrite: bool = False
    """Delete the run that is already in the folder."""
    checkpoint_every: int = 20
    """Iterations between two checkpoints."""
    sensors: Annotated[BlackoutConfig, tyro.conf.arg(name="")] = BlackoutConfig()
    policy: Annotated[PolicyConfig, tyro.conf.arg(name="")] = PolicyConfig()
    rollout: Annotated[RolloutConfig, tyro.conf.arg(name="")] = RolloutConfig()
    ppo: Annotated[PPOConfig, tyro.conf.arg(name="")] = PPOConfig()


@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """Play whole episodes with a trained policy: deterministic actions, frozen normaliser."""

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    dropout: float | None = None
    """Probability that an observation is replaced by zeros; None for the one used in training."""
    episodes: int = 100
    """Episodes to play."""
    seed: int = 0
    """Seed of episodes and sensor faults."""
    step: int | None = None
    """Training step of the checkpoint; None for the newest."""


@dataclasses.dataclass(frozen=True)
class BenchArguments:
    """Measure how fast this machine trains at the paper's configuration, and how fast it could. Leave it alone for the while."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "WalkerStand"
    """Task to train on."""
    preset: PresetName = "nc-gru"
    """Variant of the paper."""
    seeds: int = 1
    """Seeds that train together."""
    devices: int | None = None
    """Devices that share the learner's work; None for all that can be used."""
    repeats: int = 7
    """Iterations, each followed by as many steps of the raw engine; medians are reported."""
    starts: bool = True
    """Whether to measure also how long a process takes to its first iteration, with an empty and with a full compilation cache."""
    json: bool = False
    """Print the numbers as JSON instead of a table."""


@dataclasses.dataclass(frozen=True)
class TasksArguments:
    """List the tasks with their sizes and training budgets."""


def train_command(arguments: list[str]) -> int:
    """Train a recurrent policy, or continue a run."""
    from costate.console import reporter_for_stdout
    from costate.training import resume_together, train_together

    parsed = tyro.cli(TrainArguments, prog="costate train", args=arguments, default=_train_defaults(arguments))
    if parsed.resume is not None:
        _check_unchanged(parsed.resume, parsed, arguments)
        with contextlib.closing(reporter_for_stdout()) as reporter:
            outcomes = resume_together(runs_in(parsed.resume), devices=parsed.devices, reporter=reporter)
        where = parsed.resume
    else:
        configs = _seed_configs(_run_config(parsed), parsed.seeds)
        folder = pathlib.Path("runs") / configs[0].task / variant_name(configs[0])
        many = len(configs) > 1
        where = (parsed.out or folder) if many else (parsed.out or folder / f"seed-{configs[0].seed}")
        if many and (where / CONFIG_FILE).is_file():
            raise RunDirectoryError(f"{where} is a run itself, so the folders of several seeds cannot go into it. Choose another folder with --out.")
        outs = [where / f"seed-{config.seed}" if many else where for config in configs]
        with contextlib.closing(reporter_for_stdout()) as reporter:
            outcomes = train_together(configs, outs, overwrite=parsed.overwrite, devices=parsed.devices, reporter=reporter)
    if not all(outcome.finished for outcome in outcomes):
        print(f"stopped and saved; continue with: costate train --resume {where}")
        return INTERRUPTED
    run = outcomes[0].run
    folders = ", ".join(outcome.run.path.name for outcome in outcomes)
    what = f"{where}/ ({folders}, each with" if len(outcomes) > 1 else f"{run.path} ("
    print(f"done: {what} metrics.jsonl, {run.learning_curve.name}, checkpoints/); evaluate with: costate evaluate {run.path}".replace("( ", "("))
    return 0


def _seed_configs(config: RunConfig, seeds: int) -> list[RunConfig]:
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}, but at least 1 seed is needed. --seeds 4 trains four, counted from --seed.")
    return [dataclasses.replace(config, seed=config.seed + i) for i in range(seeds)]


def evaluate_command(arguments: list[str]) -> int:
    """Play whole episodes with a trained policy."""
    from costate.evaluation import evaluate

    parsed = tyro.cli(EvaluateArguments, prog="costate evaluate", args=arguments)
    print(f"evaluating {parsed.run}: {parsed.episodes} episodes", flush=True)
    result, path = evaluate(
        parsed.run, dropout=parsed.dropout, episodes=parsed.episodes, seed=parsed.seed, step=parsed.step, warn=lambda text: print(f"warning: {text}")
    )
    low, high = result.quartiles
    print(f"{result.task} at {result.dropout:.0%} blackout, {len(result.returns)} episodes, checkpoint of step {result.env_steps:,}")
    print(f"return: mean {result.mean:.1f}, median {result.median:.1f}, interquartile range {low:.1f} to {high:.1f}")
    print(f"written: {path}")
    return 0


def bench_command(arguments: list[str]) -> int:
    """Measure the speed of training, and the limit of the machine."""
    from costate.benchmark import run_benchmark, table

    parsed = tyro.cli(BenchArguments, prog="costate bench", args=arguments)
    for name in ("seeds", "repeats"):
        if getattr(parsed, name) < 1:
            raise ConfigError(f"{name} is {getattr(parsed, name)}, but it must be at least 1.")
    TASKS[parsed.task]  # an unknown task is said before a minute has passed
    result = run_benchmark(parsed.task, parsed.preset, seeds=parsed.seeds, devices=parsed.devices, repeats=parsed.repeats, starts=parsed.starts)
    print(json.dumps(dataclasses.asdict(result) | {"fraction_of_limit": result.fraction}, indent=1) if parsed.json else table(result))
    return 0


def tasks_command(arguments: list[str]) -> int:
    """List the tasks with their sizes and training budgets."""
    tyro.cli(TasksArguments, prog="costate tasks", args=arguments)
    print(f"{'task':24} {'observed':>8} {'actions':>8} {'step (s)':>9} {'episode':>8} {'budget':>12}  {'in paper'}")
    for task in sorted(TASKS, key=lambda task: (not task.in_paper, task.name)):
        mark = "yes" if task.in_paper else ""
        sizes = f"{task.observation_size:>8} {task.action_size:>8} {task.control_timestep:>9g} {task.episode_steps:>8}"
        print(f"{task.name:24} {sizes} {task.budget:>12,}  {mark}".rstrip())
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train_command,
    "evaluate": evaluate_command,
    "tasks": tasks_command,
    "bench": bench_command,
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
    return COMMANDS[arguments[0]](arguments[1:])


def _overview() -> str:
    lines = ["usage: costate COMMAND …", "", "Recurrent policies whose hidden state is trained to be the co-state of optimal control.", ""]
    lines += [f"  {name:10} {command.__doc__}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "`costate COMMAND --help` explains a command."])


def _train_defaults(arguments: list[str]) -> TrainArguments:
    """Defaults as the preset, the core and the readout on the command line imply them; those of the run itself where one is resumed."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--preset", "--core", "--readout", "--resume"):
        peek.add_argument(flag)
    chosen, _ = peek.parse_known_args(arguments)
    if chosen.resume is not None:
        return _as_arguments(open_run(runs_in(pathlib.Path(chosen.resume))[0]).config, "nc-gru")
    # An unknown preset is left to the parser proper, whose error shows the choices.
    name = chosen.preset if chosen.preset in PRESETS else "nc-gru"
    config = preset(name, next(iter(TASKS)).name)
    policy = config.policy
    if chosen.core is not None:
        policy = dataclasses.replace(policy, core=CORES[chosen.core]())
    if chosen.readout is not None:
        policy = dataclasses.replace(policy, readout=READOUTS[chosen.readout]())
    return dataclasses.replace(_as_arguments(dataclasses.replace(config, policy=policy), name), task="")


def _as_arguments(config: RunConfig, preset_name: str) -> TrainArguments:
    return TrainArguments(
        task=config.task,
        preset=cast(PresetName, preset_name),
        core=CORES.name_of(type(config.policy.core)),
        readout=READOUTS.name_of(type(config.policy.readout)),
        seed=config.seed,
        steps=config.steps,
        checkpoint_every=config.checkpoint_every,
        sensors=config.sensors,
        policy=config.policy,
        rollout=config.rollout,
        ppo=config.ppo,
    )


def _run_config(arguments: TrainArguments) -> RunConfig:
    if not arguments.task:
        raise ConfigError("No task was given. For example: costate train WalkerStand. `costate tasks` lists all of them.")
    return RunConfig(
        task=arguments.task,
        seed=arguments.seed,
        steps=arguments.steps,
        checkpoint_every=arguments.checkpoint_every,
        policy=arguments.policy,
        sensors=arguments.sensors,
        rollout=arguments.rollout,
        ppo=arguments.ppo,
    )


def _check_unchanged(run: pathlib.Path, parsed: TrainArguments, arguments: list[str]) -> None:
    """A resumed run keeps its config: anything else would not continue the same curve."""
    flags = {argument.split("=")[0] for argument in arguments}
    meaningless = sorted(flags & {"--preset", "--out", "--overwrite", "--seeds"})
    if meaningless:
        raise ConfigError(f"{', '.join(meaningless)} cannot be given with --resume, which continues {run} as it is. Leave it out.")
    # A core or readout of another name stands for its default settings.
    policy = parsed.policy
    if CORES[parsed.core] is not type(policy.core):
        policy = dataclasses.replace(policy, core=CORES[parsed.core]())
    if READOUTS[parsed.readout] is not type(policy.readout):
        policy = dataclasses.replace(policy, readout=READOUTS[parsed.readout]())
    wanted = _run_config(dataclasses.replace(parsed, policy=policy))
    changed = differing_fields(to_json(open_run(runs_in(run)[0]).config), to_json(wanted))
    if changed:
        raise ConfigError(
            f"{run} cannot be resumed with another config. Changed: {'; '.join(changed)}. Leave these flags out, or start a new run with --out."
        )


if __name__ == "__main__":
    sys.exit(main())
