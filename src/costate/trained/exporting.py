"""Export a run's policy to files that work without the run.

Each is compared with the policy before it is written.
"""

import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import warnings
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from costate._base.errors import ConfigError, ExportError
from costate._base.files import (
    check_of_costate,
    check_replaceable,
    output_file,
    output_folder,
    write_atomically,
)
from costate._base.plain_data import decode, encode
from costate._base.progress import Tell, nobody
from costate._base.registry import nearest
from costate.config.run_config import config_hash, stored
from costate.deploy import numpy_runtime
from costate.deploy.absent import inputs_without, without_groups
from costate.deploy.bundle import Bundle, pack, read, to_tensors
from costate.deploy.latency import step_microseconds
from costate.deploy.numpy_runtime import FORMAT, VERSION
from costate.deploy.parity import Parity, Step, check_parity
from costate.deploy.policy import Policy
from costate.deploy.runners import bundle_step, numpy_step, onnx_step, stablehlo_step, trained_step
from costate.envs.sensors import SensorConfig, absent_sensors
from costate.policies.controllers import AbstractController, AbstractNetworkController
from costate.runs.run_directory import Run, open_run
from costate.trained.trained import Point, load_controller

FormatName = Literal["bundle", "numpy", "onnx", "stablehlo"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)
BUNDLE_FILE, RUNTIME_FILE, GUIDE_FILE = "policy.costate", "costate_policy.py", "README.md"
# In every guide, and in no README of somebody else.
GUIDE_MARK = f"`{RUNTIME_FILE}` needs Python"
FOLDER = "export"
# The files of each format, in the order in which they are made.
FILES: dict[str, tuple[str, ...]] = {
    "bundle": (BUNDLE_FILE,),
    "numpy": (BUNDLE_FILE, RUNTIME_FILE, GUIDE_FILE),
    "onnx": ("policy.onnx",),
    "stablehlo": ("policy.stablehlo",),
}


@dataclasses.dataclass(frozen=True)
class Exported:
    """The files of an export, and how the exported policy compares with the original."""

    files: tuple[pathlib.Path, ...]
    parity: Parity
    microseconds: float
    """Median time of one step for batch 1."""
    reads: str
    """Sensor groups that the policy reads."""
    trained_with: str
    """Sensors in training."""


def load_policy(
    source: Run | str | os.PathLike[str], step: Point = None, warn: Callable[[str], None] = warnings.warn
) -> Policy:
    """Load the policy of a run's newest checkpoint (or of that at ``step``), or of a bundle."""
    if not isinstance(source, Run) and pathlib.Path(source).is_file():
        if step is not None:
            raise ConfigError(
                f"step is {step}, but {os.fspath(source)} is a bundle, which holds one policy only. "
                "Leave step out."
            )
        return Policy(read(source))
    return Policy(
        bundle_of(source if isinstance(source, Run) else open_run(pathlib.Path(source)), step, warn)
    )


def bundle_of(run: Run, step: Point = None, warn: Callable[[str], None] = warnings.warn) -> Bundle:
    """Return a run's policy as a bundle that does not read the sensors hidden in training."""
    return without_groups(trained_bundle(run, step, warn), hidden_groups(run))


def hidden_groups(run: Run) -> tuple[str, ...]:
    """Return the sensor groups of the run's task that were hidden in training."""
    layout = run.config.task_record.observation
    absent = np.split(
        absent_sensors(run.config.sensors, layout), np.cumsum([size for _, size in layout])[:-1]
    )
    return tuple(name for (name, _), hidden in zip(layout, absent, strict=True) if hidden.any())


def trained_bundle(run: Run, step: Point, warn: Callable[[str], None]) -> Bundle:
    """Return a run's policy as it was trained, with inputs for all sensors of its task."""
    checkpoint, controller = load_controller(run, step, warn)
    config = run.config
    if not isinstance(controller, AbstractNetworkController):
        raise ExportError(
            f"{run.path} cannot be exported: its controller, a {type(controller).__name__}, has no form that "
            f"exports know. Let the learner return a PolicyController or a SquashedController, or subclass "
            f"AbstractNetworkController."
        )
    tensors = _normaliser(controller) | to_tensors(controller.weights)
    # Only the engine knows the bounds.
    env = config.task_record.build(1, [0])
    low, high = np.asarray(env.action_low, float).tolist(), np.asarray(env.action_high, float).tolist()
    env.close()
    description = {
        "format": FORMAT,
        "version": VERSION,
        "algorithm": controller.form,
        "policy": encode(config.policy),
        "observation": [list(group) for group in config.task_record.observation],
        "mask_input": config.sensors.mask_input,
        "action": {"low": low, "high": high},
        "observation_clip": controller.observation_clip,
        "sensors": encode(config.sensors),
        "provenance": {
            "task": config.task,
            # Some environments do not report how long a step takes, and JSON has no NaN.
            "control_timestep": timestep
            if math.isfinite(timestep := config.task_record.control_timestep)
            else None,
            "seed": config.seed,
            "env_steps": checkpoint.env_steps,
            "costate": importlib.metadata.version("costate"),
            "config_hash": config_hash(config),
            "config": stored(config),
        },
    }
    return Bundle(json.loads(json.dumps(description)), tensors, str(run.path))


def _normaliser(controller: AbstractController) -> dict[str, np.ndarray]:
    return {f"normaliser.{name}": tensor for name, tensor in to_tensors(controller.stats).items()}


def export(
    source: Run | str | os.PathLike[str],
    format: str,
    out: pathlib.Path | None = None,
    step: Point = None,
    tell: Tell = nobody,
) -> Exported:
    """Write a policy in another format; raise and write nothing if it acts differently.

    The exported policy is compared with the original over 1,000 random steps.
    """
    if format not in FORMATS:
        raise ConfigError(f"Unknown format {format!r}. {nearest(format, FORMATS)}")
    # Fail before anything is computed.
    targets = _targets(_default_place(source, format) if out is None else out, format)
    tell(0.0, "reading the policy")
    policy = load_policy(source, step)
    _check_narrowed(policy, source, step)
    tell(0.3, f"converting it to {format}")
    contents, runner = _form(policy, format)
    tell(0.5, "comparing both over 1,000 random steps")
    parity = check_parity(policy, runner, format)
    files = dict(zip(targets, contents.values(), strict=True))
    for path, content in files.items():
        output_folder(path.parent)
        write_atomically(path, content)
    tell(0.8, "timing steps")
    return Exported(
        tuple(files),
        parity,
        float(np.median(step_microseconds(policy, runner))),
        reads(policy),
        trained_with(policy),
    )


def reads(policy: Policy) -> str:
    """Return the sensor groups that a policy reads, with their sizes."""
    return ", ".join(f"{name} ({size})" for name, size in policy.observation_layout)


def trained_with(policy: Policy) -> str:
    """Describe the sensors in training: their faults, which were hidden, and the policy's mask input."""
    recorded = {name: value for name, value in policy.description["sensors"].items() if name != "absent"}
    if "dropout" not in recorded:
        return "sensors of training not recorded"
    try:
        failing = str(decode(SensorConfig, recorded, "sensors"))
    except ConfigError:
        # Written by a later version or by another program.
        failing = json.dumps(recorded)
    absent = ", ".join(f"{name} ({size})" for name, size in policy.absent_sensors)
    told = {
        "none": "",
        "bit": "; told whether anything was seen",
        "bits": "; told of every sensor whether it was seen",
    }
    hidden = f"; without {absent}, which it does not read" if absent else ""
    return f"{failing}{hidden}{told[policy.description['mask_input']]}"


def _check_narrowed(policy: Policy, source: Run | str | os.PathLike[str], step: Point) -> None:
    """Raise unless a policy without inputs for hidden sensors acts like the trained one, with 0 there."""
    if not policy.absent_sensors or (not isinstance(source, Run) and pathlib.Path(source).is_file()):
        return
    run = source if isinstance(source, Run) else open_run(pathlib.Path(source))
    trained = trained_bundle(run, step, lambda _: None)
    check_parity(
        policy,
        trained_step(trained, inputs_without(trained, hidden_groups(run))),
        "reduced (without hidden sensors)",
    )


def _targets(where: pathlib.Path, format: str) -> list[pathlib.Path]:
    """Return the files that an export writes; raise if they cannot be written.

    A format of several files needs a folder. A single file goes into an existing folder or under the given
    name.
    """
    names = FILES[format]
    if len(names) == 1:
        return [output_file(where, names[0])]
    if where.exists() and not where.is_dir():
        raise ExportError(
            f"{where} is a file, but the format {format} is a folder of {', '.join(names)}. "
            "Give a folder with --out."
        )
    for name in names:
        check_replaceable(where / name)
    check_of_costate(where / GUIDE_FILE, GUIDE_MARK)
    return [where / name for name in names]


def _form(policy: Policy, format: str) -> tuple[dict[str, bytes], Step]:
    """Return the contents of a format's files by name, and the exported policy as it runs from them."""
    bundle = pack(policy.bundle)
    if format == "bundle":
        return {BUNDLE_FILE: bundle}, bundle_step(bundle)
    if format == "numpy":
        runtime = pathlib.Path(numpy_runtime.__file__).read_bytes()
        return {BUNDLE_FILE: bundle, RUNTIME_FILE: runtime, GUIDE_FILE: _guide(policy).encode()}, numpy_step(
            bundle
        )
    if format == "onnx":
        # Imported here, because the package onnx is optional.
        from costate.deploy.onnx_graph import onnx_model

        model = onnx_model(policy.bundle)
        return {"policy.onnx": model}, onnx_step(model)
    from costate.deploy.stablehlo import stablehlo_program

    program = stablehlo_program(policy.function, policy.bundle.sizes.observation)
    return {"policy.stablehlo": program}, stablehlo_step(program)


def _default_place(source: Run | str | os.PathLike[str], format: str) -> pathlib.Path:
    path = source.path if isinstance(source, Run) else pathlib.Path(source)
    folder = path.parent if path.is_file() else path / FOLDER
    return folder / (FILES[format][0] if len(FILES[format]) == 1 else format)


def _guide(policy: Policy) -> str:
    timestep = policy.provenance["control_timestep"]
    every = "for each observation" if timestep is None else f"every {timestep:g} s"
    layout = "\n".join(f"- `{name}`: {size}" for name, size in policy.observation_layout)
    sizes, provenance = policy.bundle.sizes, policy.provenance
    return f"""# {provenance["task"]}: a policy in NumPy

{GUIDE_MARK} 3.11 and NumPy, nothing else. It reads `{BUNDLE_FILE}`, checks it, and acts:

```python
from costate_policy import Policy

policy = Policy("{BUNDLE_FILE}")
policy.reset()                          # at the start of every episode
action = policy.step(observation)       # {sizes.observation} numbers, or a dictionary of the names below
```

It observes, in this order:

{layout}

and gives {sizes.action} controls between {policy.action_low.tolist()} and {policy.action_high.tolist()}, one
{every}.
Give 0 where a sensor shows nothing. `policy.predict(observation, state, is_first)` leaves the memory
to you.

It was trained on {provenance["task"]} for {provenance["env_steps"]:,} steps.
Sensors in training: {trained_with(policy)}.
"""
