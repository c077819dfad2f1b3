"""Checkpoints: a pytree of arrays in safetensors with a JSON record beside it, verified by digests and never executed.

A checkpoint is a folder ``step_000000640000`` that holds ``state.safetensors`` and ``checkpoint.json``.
What an off-policy learner remembers lies beside these folders in ``replay``, because consecutive checkpoints share most of it.
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
# Far more than a run that slows down by itself ever does; a learning rate that was halved more often would be 0.
MOST_SLOWDOWNS = 64
NAME = re.compile(r"step_\d{12}")
LEFT_OVER = re.compile(rf"\.{NAME.pattern}({re.escape(OLD)}|{re.escape(PARTIAL)}(-\d+)?)")

State = TypeVar("State")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A point from which training continues exactly."""

    iteration: int
    env_steps: int
    config: dict[str, Any]
    """What the run computes, as JSON, so that a changed config is noticed."""
    restarts: tuple[int, ...]
    """Episodes started so far in each environment, which is what a simulator that cannot be rewound needs to be brought back."""
    replay: tuple[Chunk, ...] = ()
    """Files with the experience that the learner remembers."""
    slowdowns: int = 0
    """How many times the learning rate was halved because training diverged after this point."""


def save(
    directory: pathlib.Path, checkpoint: Checkpoint, state: Any, replay: Replay | None = None
) -> Checkpoint:
    """Write a checkpoint into ``directory`` and drop all but the last three.

    Of a ``replay``, which is not part of ``state``, only the rows are written that ``checkpoint.replay``, the chunks of the checkpoint before, do not
    hold; the returned checkpoint lists them too.
    """
    tensors = finite_tensors(state, checkpoint)
    if replay is not None:
        checkpoint = dataclasses.replace(
            checkpoint, replay=save_new_rows(directory / REPLAY_FOLDER, replay, checkpoint.replay)
        )
    _write(directory, checkpoint, tensors)
    for old in folders(directory)[:-KEPT]:
        # One into which somebody has put something stays, and is in nobody's way.
        if not foreign_to_checkpoint(old):
            remove_folder(old)
    if replay is not None:
        # Nothing is deleted while there is a checkpoint of which it cannot be told what it needs.
        with contextlib.suppress(CheckpointError):
            remove_unused(directory / REPLAY_FOLDER, _chunks_in_use(directory))
    return checkpoint


def save_milestone(directory: pathlib.Path, checkpoint: Checkpoint, shown: Any) -> None:
    """Write what can be shown of a policy into ``directory``, in the form of a checkpoint, but without what only training needs. It stays."""
    _write(directory, dataclasses.replace(checkpoint, replay=()), finite_tensors(shown, checkpoint))


def finite_tensors(state: Any, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The arrays of a state; raises if any number in them is none."""
    tensors = to_tensors(state)
    for name, tensor in tensors.items():
        if np.issubdtype(tensor.dtype, np.floating) and not np.isfinite(tensor).all():
            raise CheckpointError(
                f"Not saved: {name} is no longer finite after iteration {checkpoint.iteration}. The checkpoints before it are kept."
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
    """What the checkpoints that are kept need of the replay."""
    return [
        chunk
        for folder in folders(directory)
        for chunk in _checkpoint_of(_read_record(folder / RECORD_FILE), folder / RECORD_FILE).replay
    ]


def folders(directory: pathlib.Path) -> list[pathlib.Path]:
    """All checkpoints in ``directory``, oldest first."""
    return sorted(path for path in directory.glob("step_*") if NAME.fullmatch(path.name) and path.is_dir())


def recover(directory: pathlib.Path) -> None:
    """Bring a checkpoint back that was cut off while it was replaced, and remove what a killed process left of one that it was writing.

    For the process that trains the run: another could be replacing it.
    """
    for aside in directory.glob(f".step_*{OLD}"):
        restore(directory / aside.name.removeprefix(".").removesuffix(OLD))
    for left in sorted(path for path in directory.glob(".step_*") if LEFT_OVER.fullmatch(path.name)):
        if not foreign_to_checkpoint(left):
            remove_folder(left)


def foreign_to_checkpoint(folder: pathlib.Path) -> list[str]:
    """What is in the folder of a checkpoint, or in the remains of one, that is no part of it; the folder itself if it is none."""
    if folder.is_symlink() or not folder.is_dir():
        return [folder.name]
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name not in (STATE_FILE, RECORD_FILE) or entry.is_dir() or entry.is_symlink()
    )


def remove_checkpoint(folder: pathlib.Path) -> None:
    """Delete a checkpoint; raises if anything else is in its folder."""
    _check_removable(folder)
    remove_folder(folder)


def _check_removable(folder: pathlib.Path) -> None:
    foreign = foreign_to_checkpoint(folder)
    if foreign:
        raise StorageError(
            f"{folder} has to make way for the checkpoint that is made again, but it holds what costate did not write: {', '.join(foreign)}. "
            "Nothing was removed. Move it away and do the same again."
        )


def readable_records(directory: pathlib.Path) -> list[Checkpoint]:
    """What the checkpoints in ``directory`` say of themselves, oldest first; those whose record is damaged are left out."""
    records = []
    for folder in folders(directory):
        with contextlib.suppress(CheckpointError):
            records.append(_checkpoint_of(_read_record(folder / RECORD_FILE), folder / RECORD_FILE))
    return records


def steps_of(folder: pathlib.Path) -> int:
    """Environment steps at which a checkpoint was taken."""
    return int(folder.name.removeprefix("step_"))


def newest_steps(directory: pathlib.Path) -> int:
    """Environment steps of the newest checkpoint in ``directory``; 0 if there is none, as before training."""
    saved = folders(directory)
    return steps_of(saved[-1]) if saved else 0


def load(
    folder: pathlib.Path, config: RunConfig, template: State, replay: Replay | None = None
) -> tuple[Checkpoint, State, Replay | None]:
    """Read one checkpoint of a run into the structure of ``template``; anything truncated or altered is an error that names the file.

    What the learner remembers is read only where it is asked for, by a ``replay`` of the right shape.
    """
    record = _read_record(folder / RECORD_FILE)
    checkpoint = _checkpoint_of(record, folder / RECORD_FILE)
    if checkpoint.env_steps != steps_of(folder):
        raise CheckpointError(
            f"{folder / RECORD_FILE} was altered: it is of step {checkpoint.env_steps}, which is not that of its folder."
        )
    try:
        # Through a config and back: fields that the version which wrote it did not have are then at their defaults.
        written = to_json(from_json(checkpoint.config))
    except (ConfigError, RecursionError) as error:
        raise CheckpointError(f"{folder} cannot be used with this version of costate: {error}") from error
    changed = differing_fields(without_changeable(written), without_changeable(to_json(config)))
    if changed:
        raise ConfigError(
            f"{folder} was made with another config than the run has now. Changed: {'; '.join(changed)}. Undo the change in config.json, "
            "or start a new run with --out."
        )
    _check_counts(checkpoint, config, folder / RECORD_FILE)
    content = read_bounded(folder / STATE_FILE, _bytes_of(template) + LARGEST_HEADER)
    if hashlib.sha256(content).hexdigest() != record.pop("sha256"):
        raise CheckpointError(
            f"{folder / STATE_FILE} is truncated or was altered: its digest is not the one that was recorded."
        )
    state = from_tensors(template, parse_tensors(content, folder / STATE_FILE), folder / STATE_FILE)
    remembered = (
        None if replay is None else load_rows(folder.parent / REPLAY_FOLDER, checkpoint.replay, replay)
    )
    return checkpoint, state, remembered


def _bytes_of(template: Any) -> int:
    """What the arrays of a state take, random keys as their raw words."""
    raw = [
        jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        for leaf in jax.tree.leaves(template)
    ]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in raw)


def _checkpoint_of(record: dict[str, Any], path: pathlib.Path) -> Checkpoint:
    """A record whose digest is right, which anybody can make, but whose fields may be anything."""
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
    """Raise unless the counts of a record fit together and to its config; a simulator is brought back by doing as many resets as they say."""
    rollout, started = config.rollout, checkpoint.restarts
    if checkpoint.env_steps != checkpoint.iteration * rollout.steps_per_iteration:
        raise CheckpointError(
            f"{path} was altered: it is of iteration {checkpoint.iteration} and step {checkpoint.env_steps}, but an iteration has "
            f"{rollout.steps_per_iteration} steps, so that they do not belong together."
        )
    # One at the start of an iteration, and one for each of its steps.
    most = checkpoint.iteration * (rollout.rollout_length + 1)
    if len(started) != rollout.environments or max(started) > most:
        raise CheckpointError(
            f"{path} was altered: its restarts should be {rollout.environments} counts, one for each environment, of at most {most:,} episodes, but "
            f"they are {len(started)}, the largest {max(started, default=0):,}."
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
    """The newest checkpoint that can be read; says through ``warn`` which ones could not, or were refused by ``check``."""
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
    """Every array of a pytree under the name of its place; random keys as their raw words."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path).lstrip("."): _raw(leaf) for path, leaf in leaves}


def from_tensors(template: State, tensors: dict[str, np.ndarray], source: pathlib.Path) -> State:
    """The inverse of :func:`to_tensors` for a pytree shaped like ``template``."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}
    if wanted.keys() != tensors.keys():
        different = ", ".join(sorted(wanted.keys() ^ tensors.keys()))
        raise CheckpointError(
            f"{source} does not fit this policy; these arrays are in one but not in the other: {different}."
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
            f"{source}: {name} is {tensor.dtype}{list(tensor.shape)}, but this policy needs {shape.dtype}{list(shape.shape)}."
        )
    return jax.random.wrap_key_data(jnp.asarray(tensor)) if _is_key(leaf) else jnp.asarray(tensor)


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _read_record(path: pathlib.Path) -> dict[str, Any]:
    record: dict[str, Any] = read_json(path)
    try:
        whole = isinstance(record, dict) and record.pop("digest", None) == _digest(record)
    except RecursionError as error:
        raise CheckpointError(f"{path} was altered: it is nested more deeply than any record.") from error
    if not whole:
        raise CheckpointError(
            f"{path} is truncated or was altered: its digest is not the one that was recorded."
        )
    known = {field.name for field in dataclasses.fields(Checkpoint)} | {"sha256"}
    # Checkpoints of versions without a replay, or without slowing down, do not mention it.
    if record.pop("format", None) != FORMAT or record.keys() | {"replay", "slowdowns"} != known:
        raise CheckpointError(
            f"{path} was written by another version of costate, in a form that this one does not read."
        )
    return record
