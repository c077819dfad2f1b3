"""Checkpoints are exact, verified and atomic."""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import os
import pathlib
import shutil
import stat

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import CheckpointError, ConfigError, StorageError
from costate._base.files import make_folders, write_atomically
from costate.config.run_config import RunConfig, to_json
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.update import TrainState, initial_state
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig, build_policy
from costate.runs.checkpoint import RECORD_FILE, STATE_FILE, Checkpoint, folders, load, load_latest, save

# An iteration has ten steps, from two environments.
CONFIG = RunConfig(
    "WalkerStand", rollout=RolloutConfig(environments=2, rollout_length=5), learner=PPOConfig(minibatches=2)
)


@functools.partial(jax.jit, static_argnames="width")
def state(seed: int = 0, width: int = 8) -> TrainState:
    policy = build_policy(PolicyConfig(hidden_size=width), jax.random.key(seed), 5, 2)
    return initial_state(PPOConfig(), policy, jax.random.key(seed + 100), 5)


def save_at(directory, step: int) -> None:
    save(directory, Checkpoint(step // 10, step, to_json(CONFIG), (step // 10, step // 10 + 1)), state(step))


def assert_same(left: TrainState, right: TrainState) -> None:
    def same(a, b):
        raw = jax.random.key_data if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(raw(a), raw(b))
        assert a.dtype == b.dtype

    jax.tree.map(same, left, right)


def test_what_is_loaded_is_what_was_saved_bit_for_bit(tmp_path):
    save_at(tmp_path, 40)
    checkpoint, loaded, _ = load(folders(tmp_path)[0], CONFIG, state(1))
    assert checkpoint == Checkpoint(4, 40, to_json(CONFIG), (4, 5))
    assert_same(loaded, state(40))


def test_the_last_three_are_kept(tmp_path):
    for step in (10, 20, 100, 1000, 200):
        save_at(tmp_path, step)
    assert [folder.name for folder in folders(tmp_path)] == [
        "step_000000000100",
        "step_000000000200",
        "step_000000001000",
    ]


@pytest.mark.parametrize("file", [STATE_FILE, RECORD_FILE])
@pytest.mark.parametrize("damage", ["truncate", "alter", "remove"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, file, damage):
    save_at(tmp_path, 10)
    save_at(tmp_path, 20)
    path = folders(tmp_path)[-1] / file
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "alter":
        path.write_bytes(
            content.replace(b'"env_steps": 20', b'"env_steps": 30')
            if file == RECORD_FILE
            else content[:-1] + bytes([content[-1] ^ 1])
        )
    else:
        path.unlink()
    warnings = []
    checkpoint, loaded, _ = load_latest(tmp_path, CONFIG, state(), warnings.append)
    assert checkpoint.env_steps == 10
    assert_same(loaded, state(10))
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert "Falling back to step_000000000010" in warnings[0]


def test_no_usable_checkpoint_is_an_error_that_says_why(tmp_path):
    save_at(tmp_path, 10)
    (folders(tmp_path)[0] / STATE_FILE).write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"No usable checkpoint .*state.safetensors is truncated or was altered"
    ):
        load_latest(tmp_path, CONFIG, state(), print)
    with pytest.raises(CheckpointError, match="There is none"):
        load_latest(tmp_path / "nowhere", CONFIG, state(), print)


def test_a_checkpoint_of_another_width_is_refused_by_name(tmp_path):
    save_at(tmp_path, 10)
    with pytest.raises(
        CheckpointError, match=r"policy.* is float32\[.*8.*\], but this policy needs float32\[.*16.*\]"
    ):
        load(folders(tmp_path)[0], CONFIG, state(width=16))


def test_a_changed_config_is_refused_by_field_and_not_taken_for_damage(tmp_path):
    save_at(tmp_path, 10)
    save_at(tmp_path, 20)
    with pytest.raises(ConfigError, match=r"Changed: seed: 0 → 7. Undo the change"):
        load_latest(tmp_path, dataclasses.replace(CONFIG, seed=7), state(), print)


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    save_at(tmp_path, 10)
    path = folders(tmp_path)[0] / RECORD_FILE
    record = json.loads(path.read_text())
    del record["digest"], record["restarts"]
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(record | {"digest": digest}))
    with pytest.raises(CheckpointError, match="written by another version of costate"):
        load(folders(tmp_path)[0], CONFIG, state())


def reseal(folder, **changes) -> None:
    """Change entries of a record, and make its digest right again, as somebody would who means harm."""
    path = folder / RECORD_FILE
    record = json.loads(path.read_text()) | changes
    del record["digest"]
    path.write_text(
        json.dumps(
            record | {"digest": hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()}
        )
    )


def config_with(**changes):
    return to_json(CONFIG) | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": config_with(task=5)}, "config.task is 5, but it should be str"),
        (
            {"config": config_with(policy={"core": {"name": 5}})},
            "The name of a core is 5, but it should be a string",
        ),
        (
            {"config": config_with(policy={"readout": {"name": ["quadratic"]}})},
            r"The name of a readout is \['quadratic'\], but it should be a string",
        ),
        (
            {"config": config_with(seed=99_999_999_999_999_999_999)},
            "seed is 99999999999999999999, but seeds are whole numbers",
        ),
        (
            {"config": config_with(learner={"name": "ppo", "learning_rate": 10**400})},
            "config.learner.learning_rate is a number of 401 digits",
        ),
        (
            {"config": config_with(learner={"name": "ppo", "learning_rate": float("nan")})},
            "learning_rate is nan",
        ),
        ({"iteration": 3}, "iteration 3 and step 20, but an iteration has 10 steps"),
        (
            {"restarts": [2]},
            "its restarts should be 2 counts, one for each environment, of at most 12 episodes, "
            "but there are 1, the largest 2",
        ),
        ({"restarts": []}, "its restarts should be 2 counts"),
        # So many resets of a simulator would take for ever.
        ({"restarts": [2, 10**9]}, "the largest 1,000,000,000"),
        ({"slowdowns": 10**9}, "the learning rate cannot have been halved 1,000,000,000 times"),
    ],
)
def test_a_checkpoint_that_was_altered_and_sealed_anew_is_named_and_the_one_before_is_used(
    tmp_path, changes, message
):
    save_at(tmp_path, 10)
    save_at(tmp_path, 20)
    newest = folders(tmp_path)[-1]
    reseal(newest, **changes)
    with pytest.raises(CheckpointError, match=message):
        load(newest, CONFIG, state())
    warnings = []
    checkpoint, _, _ = load_latest(tmp_path, CONFIG, state(), warnings.append)
    assert checkpoint.env_steps == 10
    assert [
        str(newest) in warning and "Falling back to step_000000000010" in warning for warning in warnings
    ] == [True]


def test_a_checkpoint_that_was_sealed_anew_and_not_altered_is_read(tmp_path):
    """The new digest alone is no reason to refuse a checkpoint."""
    save_at(tmp_path, 20)
    reseal(folders(tmp_path)[0])
    assert load(folders(tmp_path)[0], CONFIG, state())[0].env_steps == 20


def test_writing_the_same_step_again_replaces_it_whole(tmp_path):
    save_at(tmp_path, 10)
    save(tmp_path, Checkpoint(1, 10, to_json(CONFIG), (5, 6)), state(99))
    checkpoint, loaded, _ = load(folders(tmp_path)[0], CONFIG, state())
    assert checkpoint.restarts == (5, 6)
    assert_same(loaded, state(99))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_state_that_is_not_finite_is_never_saved(tmp_path):
    save_at(tmp_path, 10)
    broken = eqx.tree_at(lambda s: s.policy.critic.bias, state(), jnp.asarray(jnp.nan))
    with pytest.raises(CheckpointError, match=r"policy.critic.bias is no longer finite"):
        save(tmp_path, Checkpoint(2, 20, to_json(CONFIG), ()), broken)
    assert [folder.name for folder in folders(tmp_path)] == ["step_000000000010"]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    save_at(tmp_path, 10)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match=r"Could not write .*No space left on device.* MiB are free"):
        save_at(tmp_path, 20)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000010"]
    assert load_latest(tmp_path, CONFIG, state(), print)[0].env_steps == 10


@pytest.fixture
def on_disk(monkeypatch):
    """Events in order: names of files and folders that were flushed to disk or renamed."""
    events, sync, rename = [], os.fsync, os.replace

    def fsync(descriptor):
        events.append(f"flush {pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        sync(descriptor)

    def replace(source, target):
        events.append(f"rename {pathlib.Path(source).name} to {pathlib.Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return events


def test_a_checkpoint_and_its_name_are_on_the_disk_before_the_one_that_it_replaces_goes(
    tmp_path, on_disk, monkeypatch
):
    directory, name = tmp_path / "checkpoints", "step_000000000010"
    save_at(directory, 10)
    whole = [f"flush {STATE_FILE}", f"flush {RECORD_FILE}", f"flush .{name}.partial"]
    # The folder of checkpoints is new, and its name must be flushed as well.
    assert on_disk == [
        f"flush {tmp_path.name}",
        *whole,
        f"rename .{name}.partial to {name}",
        "flush checkpoints",
    ]
    on_disk.clear()
    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: (on_disk.append(f"remove {path.name}"), remove(path)))
    save_at(directory, 10)
    renamed = [f"rename {name} to .{name}.old", f"rename .{name}.partial to {name}"]
    assert on_disk == [*whole, *renamed, "flush checkpoints", f"remove .{name}.old"]


def test_a_new_file_and_its_name_are_on_the_disk(tmp_path, on_disk):
    write_atomically(tmp_path / "config.json", b"{}")
    assert on_disk == [
        "flush .config.json.partial",
        "rename .config.json.partial to config.json",
        f"flush {tmp_path.name}",
    ]
    on_disk.clear()
    make_folders(tmp_path / "task" / "variant" / "seed")
    assert on_disk == [f"flush {tmp_path.name}", "flush task", "flush variant"]


@pytest.mark.parametrize(
    ("number", "fails"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)]
)
def test_a_file_system_that_cannot_flush_names_is_no_obstacle_but_a_broken_disk_is(
    tmp_path, monkeypatch, number, fails
):
    def refuse(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match="Input/output error") if fails else contextlib.nullcontext():
        save_at(tmp_path, 10)


def test_nothing_is_pickled(tmp_path):
    save_at(tmp_path, 10)
    folder = folders(tmp_path)[0]
    assert sorted(path.name for path in folder.iterdir()) == [RECORD_FILE, STATE_FILE]
    header_length = int.from_bytes((folder / STATE_FILE).read_bytes()[:8], "little")
    header = json.loads((folder / STATE_FILE).read_bytes()[8 : 8 + header_length])
    assert "policy.core.recurrent_weights" in header
