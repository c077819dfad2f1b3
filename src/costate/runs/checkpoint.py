"""Save and load checkpoints: a pytree of arrays in safetensors with a JSON record, verified by digests.

A checkpoint is a folder ``step_000000640000`` that holds ``state.safetensors`` and ``checkpoint.json``.
Nothing in it is ever executed. An off-policy learner's replay lies beside these folders in ``replay``,
because consecutive checkpoints share most of it.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from costate._base.distrust import LARGEST_HEADER, parse_tensors, read_bounded, read_json
from costate._base.errors import CheckpointError, ConfigError, StorageError
from costate._base.files import OLD, PARTIAL, remove_folder, replace_folder, restore, write_through
from costate.config.run_config import RunConfig, differing_fields, from_json, to_json, without_changeable
from costate.learners.replay import Replay
from costate.runs.replay_store import Chunk, load_rows, remove_unused, save_new_rows

KEPT = 3
FORMAT = 1
STATE_FILE = "state.safetensors"
RECORD_FILE = "checkpoint.json"
REPLAY_FOLDER = "replay"
# Far more than a run reaches. A learning rate that was halved more often would be 0.
MOST_SLOWDOWNS = 64
NAME = re.compile(r"step_\d{12}")
LEFT_OVER = re.compile(rf"\.{NAME.pattern}({re.escape(OLD)}|{re.escape(PARTIAL)}(-\d+)?)")

State = TypeVar("State")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A point from which training can continue exactly."""

    iteration: int
    env_steps: int
    config: dict[str, Any]
    """Config of the run as JSON, so that a changed config is noticed."""
    restarts: tuple[int, ...]
    """Episodes started so far in each environment.

    A simulator that cannot be rewound needs them to return to this point.
    """
    replay: tuple[Chunk, ...] = ()
    """Files of the learner's replay."""
    slowdowns: int = 0
    """Number of times that the learning rate was halved because training diverged after this point."""


def save(
    directory: pathlib.Path, checkpoint: Checkpoint, state: Any, replay: Replay | None = None
) -> Checkpoint:
    """Write a checkpoint into ``directory`` and delete all but the last three.

    The ``replay`` is not part of ``state``. Pass the previous checkpoint's chunks in ``checkpoint.replay``:
    only rows that they lack are written. The returned checkpoint lists the new chunks too.
    """
    tensors = finite_tensors(state, checkpoint)
    if replay is not None:
        checkpoint = dataclasses.replace(
            checkpoint, replay=save_new_rows(directory / REPLAY_FOLDER, replay, checkpoint.replay)
        )
    _write(directory, checkpoint, tensors)
    for old in folders(directory)[:-KEPT]:
        # A checkpoint to which somebody has added files is kept.
        if not foreign_to_checkpoint(old):
            remove_folder(old)
    if replay is not None:
        # Nothing is deleted while any checkpoint is unreadable: it might need the chunk.
        with contextlib.suppress(CheckpointError):
            remove_unused(directory / REPLAY_FOLDER, _chunks_in_use(directory))
    return checkpoint


def save_milestone(directory: pathlib.Path, checkpoint: Checkpoint, shown: Any) -> None:
    """Write the part of a policy that can be shown into ``directory``, in the form of a checkpoint.

    State that only training needs is left out. Milestones are never deleted.
    """
    _write(directory, dataclasses.replace(checkpoint, replay=()), finite_tensors(shown, checkpoint))


def finite_tensors(state: Any, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Return the arrays of a state. Raise if any of them contains NaN or Inf."""
    tensors = to_tensors(state)
    for name, tensor in tensors.items():
        if np.issubdtype(tensor.dtype, np.floating) and not np.isfinite(tensor).all():
            raise CheckpointError(
                f"Not saved: {name} is no longer finite after iteration {checkpoint.iteration}. Earlier "
                "checkpoints are kept."
            )
    return tensors


def _write(directory: pathlib.Path, checkpoint: Checkpoint, tensors: dict[str, np.ndarray]) -> None:
    content = safetensors.numpy.save(tensors)
    record = dataclasses.asdict(checkpoint) | {
        "format": FORMAT,
        "sha256": hashlib.sha256(content).hexdigest(),
    }

    def write(temporary: pathlib.Path) -> None:
        write_through(temporary / STATE_FILE, content)
        write_through(
            temporary / RECORD_FILE, json.dumps(record | {"digest": _digest(record)}, indent=1).encode()
        )

    replace_folder(directory / f"step_{checkpoint.env_steps:012d}", write, _check_removable, remove_folder)


def _chunks_in_use(directory: pathlib.Path) -> list[Chunk]:
    """Return the replay chunks that the remaining checkpoints need."""
    return [
        chunk
        for folder in folders(directory)
        for chunk in _checkpoint_of(_read_record(folder / RECORD_FILE), folder / RECORD_FILE).replay
    ]


def folders(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return all checkpoints in ``directory``, oldest first."""
    return sorted(path for path in directory.glob("step_*") if NAME.fullmatch(path.name) and path.is_dir())


def recover(directory: pathlib.Path) -> None:
    """Restore a checkpoint whose replacement was interrupted, and remove unfinished ones.

    Only the process that trains the run may call this: another process could be replacing a checkpoint.
    """
    for aside in directory.glob(f".step_*{OLD}"):
        restore(directory / aside.name.removeprefix(".").removesuffix(OLD))
    for left in sorted(path for path in directory.glob(".step_*") if LEFT_OVER.fullmatch(path.name)):
        if not foreign_to_checkpoint(left):
            remove_folder(left)


def foreign_to_checkpoint(folder: pathlib.Path) -> list[str]:
    """Return the entries in a checkpoint's folder, or in its remains, that do not belong to it.

    If ``folder`` is not a folder, it is foreign itself.
    """
    if folder.is_symlink() or not folder.is_dir():
        return [folder.name]
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name not in (STATE_FILE, RECORD_FILE) or entry.is_dir() or entry.is_symlink()
    )


def remove_checkpoint(folder: pathlib.Path) -> None:
    """Delete a checkpoint. Raise if its folder contains anything else."""
    _check_removable(folder)
    remove_folder(folder)


def _check_removable(folder: pathlib.Path) -> None:
    foreign = foreign_to_checkpoint(folder)
    if foreign:
        raise StorageError(
            f"{folder} has to be replaced by a new checkpoint, but it holds files that costate did not "
            f"write: {', '.join(foreign)}. Nothing was removed. Move them away and try again."
        )


def readable_records(directory: pathlib.Path) -> list[Checkpoint]:
    """Return the records of the checkpoints in ``directory``, oldest first, without damaged ones."""
    records = []
    for folder in folders(directory):
        with contextlib.suppress(CheckpointError):
            records.append(_checkpoint_of(_read_record(folder / RECORD_FILE), folder / RECORD_FILE))
    return records


def steps_of(folder: pathlib.Path) -> int:
    """Return the environment steps at which a checkpoint was taken."""
    return int(folder.name.removeprefix("step_"))


def newest_steps(directory: pathlib.Path) -> int:
    """Return the environment steps of the newest checkpoint in ``directory``; 0 if there is none."""
    saved = folders(directory)
    return steps_of(saved[-1]) if saved else 0


def load(
    folder: pathlib.Path, config: RunConfig, template: State, replay: Replay | None = None
) -> tuple[Checkpoint, State, Replay | None]:
    """Read one checkpoint of a run into the structure of ``template``.

    Anything truncated or altered raises an error that names the file. The replay is read only if a ``replay``
    of the right shape is given.
    """
    record = _read_record(folder / RECORD_FILE)
    checkpoint = _checkpoint_of(record, folder / RECORD_FILE)
    if checkpoint.env_steps != steps_of(folder):
        raise CheckpointError(
            f"{folder / RECORD_FILE} was altered: it says step {checkpoint.env_steps}, which is not the step "
            "of its folder."
        )
    try:
        # Converted to a config and back, so that fields added since it was written get their defaults.
        written = to_json(from_json(checkpoint.config))
    except (ConfigError, RecursionError) as error:
        raise CheckpointError(f"{folder} cannot be used with this version of costate: {error}") from error
    changed = differing_fields(without_changeable(written), without_changeable(to_json(config)))
    if changed:
        raise ConfigError(
            f"{folder} was made with a different config than the run has now. Changed: {'; '.join(changed)}. "
            "Undo the change in config.json, or start a new run with --out."
        )
    _check_counts(checkpoint, config, folder / RECORD_FILE)
    content = read_bounded(folder / STATE_FILE, _bytes_of(template) + LARGEST_HEADER)
    if hashlib.sha256(content).hexdigest() != record.pop("sha256"):
        raise CheckpointError(
            f"{folder / STATE_FILE} is truncated or was altered: its digest does not match the recorded one."
        )
    state = from_tensors(template, parse_tensors(content, folder / STATE_FILE), folder / STATE_FILE)
    remembered = (
        None if replay is None else load_rows(folder.parent / REPLAY_FOLDER, checkpoint.replay, replay)
    )
    return checkpoint, state, remembered


def _bytes_of(template: Any) -> int:
    """Return the bytes that the arrays of a state take. Random keys count as their raw words."""
    raw = [
        jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        for leaf in jax.tree.leaves(template)
    ]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in raw)


def _checkpoint_of(record: dict[str, Any], path: pathlib.Path) -> Checkpoint:
    """Convert a record to a Checkpoint, checking every field.

    The digest of a record protects against damage only: anybody can compute it.
    """
    try:
        chunks = tuple(Chunk(**chunk) for chunk in record.get("replay", ()))
        counts = {name: record.get(name, 0) for name in ("iteration", "env_steps", "slowdowns")}
        restarts = tuple(record["restarts"])
    except (TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} was altered: {error}.") from error
    numbers = [*counts.values(), *restarts]
    if not isinstance(record["config"], dict) or not all(
        type(number) is int and 0 <= number < 2**62 for number in numbers
    ):
        raise CheckpointError(
            f"{path} was altered: its counts should be whole numbers, and its config an object."
        )
    return Checkpoint(
        counts["iteration"], counts["env_steps"], record["config"], restarts, chunks, counts["slowdowns"]
    )


def _check_counts(checkpoint: Checkpoint, config: RunConfig, path: pathlib.Path) -> None:
    """Raise unless the counts of a record agree with each other and with the config.

    Returning a simulator to this point takes as many resets as they say, so a huge count would run for ever.
    """
    rollout, started = config.rollout, checkpoint.restarts
    if checkpoint.env_steps != checkpoint.iteration * rollout.steps_per_iteration:
        raise CheckpointError(
            f"{path} was altered: it says iteration {checkpoint.iteration} and step {checkpoint.env_steps}, "
            f"but an iteration has {rollout.steps_per_iteration} steps, so these do not agree."
        )
    # An environment starts at most one episode at the start of an iteration and one at each of its steps.
    most = checkpoint.iteration * (rollout.rollout_length + 1)
    if len(started) != rollout.environments or max(started) > most:
        raise CheckpointError(
            f"{path} was altered: its restarts should be {rollout.environments} counts, one for each "
            f"environment, of at most {most:,} episodes, but there are {len(started)}, the largest "
            f"{max(started, default=0):,}."
        )
    if checkpoint.slowdowns > MOST_SLOWDOWNS:
        raise CheckpointError(
            f"{path} was altered: the learning rate cannot have been halved {checkpoint.slowdowns:,} times."
        )


def load_latest(
    directory: pathlib.Path,
    config: RunConfig,
    template: State,
    warn: Callable[[str], None],
    replay: Replay | None = None,
    check: Callable[[pathlib.Path], None] = lambda folder: None,
) -> tuple[Checkpoint, State, Replay | None]:
    """Load the newest checkpoint that can be read.

    Checkpoints that cannot be read, or that ``check`` refuses, are reported through ``warn``.
    """
    failures = []
    for folder in reversed(folders(directory)):
        try:
            check(folder)
            loaded = load(folder, config, template, replay)
        except CheckpointError as error:
            failures.append(str(error))
            continue
        for failure in failures:
            warn(f"{failure} Falling back to {folder.name}.")
        return loaded
    reasons = " ".join(failures) or "There is none."
    raise CheckpointError(
        f"No usable checkpoint in {directory}. {reasons} Start the run again with --overwrite."
    )


def to_tensors(state: Any) -> dict[str, np.ndarray]:
    """Return every array of a pytree under the name of its path. Random keys become their raw words."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path).lstrip("."): _raw(leaf) for path, leaf in leaves}


def from_tensors(template: State, tensors: dict[str, np.ndarray], source: pathlib.Path) -> State:
    """Invert :func:`to_tensors` for a pytree shaped like ``template``."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}
    if wanted.keys() != tensors.keys():
        different = ", ".join(sorted(wanted.keys() ^ tensors.keys()))
        raise CheckpointError(
            f"{source} does not fit this policy: these arrays are in only one of them: {different}."
        )
    state: State = jax.tree_util.tree_unflatten(
        structure, [_like(leaf, tensors[name], name, source) for name, leaf in wanted.items()]
    )
    return state


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _like(leaf: Any, tensor: np.ndarray, name: str, source: pathlib.Path) -> Any:
    shape = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    if (shape.shape, shape.dtype) != (tensor.shape, tensor.dtype):
        raise CheckpointError(
            f"{source}: {name} is {tensor.dtype}{list(tensor.shape)}, but this policy needs "
            f"{shape.dtype}{list(shape.shape)}."
        )
    return jax.random.wrap_key_data(jnp.asarray(tensor)) if _is_key(leaf) else jnp.asarray(tensor)


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _read_record(path: pathlib.Path) -> dict[str, Any]:
    record: dict[str, Any] = read_json(path)
    try:
        intact = isinstance(record, dict) and record.pop("digest", None) == _digest(record)
    except RecursionError as error:
        raise CheckpointError(f"{path} was altered: it is nested more deeply than any record.") from error
    if not intact:
        raise CheckpointError(
            f"{path} is truncated or was altered: its digest does not match the recorded one."
        )
    known = {field.name for field in dataclasses.fields(Checkpoint)} | {"sha256"}
    # Checkpoints of versions without a replay, or without slowdowns, lack these entries.
    if record.pop("format", None) != FORMAT or record.keys() | {"replay", "slowdowns"} != known:
        raise CheckpointError(
            f"{path} was written by another version of costate, in a format that this version does not read."
        )
    return record
