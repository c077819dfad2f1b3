"""Replay on disk: each row is written once, and read back into the ring that it came from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import CheckpointError
from costate.learners.replay import Replay, ReplayRows, append, empty_replay
from costate.runs.replay_store import load_rows, remove_unused, save_new_rows

CAPACITY, STREAMS, OBSERVATION, ACTION, MEMORY = 10, 3, 2, 1, 4


def rows(random: np.random.Generator, count: int) -> ReplayRows:
    def normal(*shape):
        return jnp.asarray(random.normal(size=(count, STREAMS, *shape)), jnp.float32)

    flags = (jnp.asarray(random.random((count, STREAMS)) < 0.3) for _ in range(3))
    return ReplayRows(normal(OBSERVATION), normal(ACTION), normal(), normal(), *flags, normal(MEMORY))


def grown(random: np.random.Generator, replay: Replay, count: int) -> Replay:
    return append(replay, rows(random, count))


@pytest.mark.quick("float16")
@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_a_ring_comes_back_as_it_was_after_any_number_of_saves(tmp_path, storage):
    random = np.random.default_rng(0)
    replay, chunks = empty_replay(CAPACITY, STREAMS, OBSERVATION, ACTION, storage, MEMORY), ()
    for count in (0, 3, 4, 0, 1, 6, 10, 2):
        replay = grown(random, replay, count)
        chunks = save_new_rows(tmp_path, replay, chunks)
        restored = load_rows(tmp_path, chunks, jax.eval_shape(lambda replay=replay: replay))
        jax.tree.map(np.testing.assert_array_equal, restored, replay)
        assert jax.tree.map(lambda leaf: leaf.dtype, restored) == jax.tree.map(
            lambda leaf: leaf.dtype, replay
        )


def test_only_rows_that_are_new_are_written(tmp_path):
    random = np.random.default_rng(0)
    replay = grown(random, empty_replay(CAPACITY, STREAMS, OBSERVATION, ACTION, memory_size=MEMORY), 4)
    first = save_new_rows(tmp_path, replay, ())
    content = (tmp_path / first[0].file).read_bytes()
    replay = grown(random, replay, 3)
    second = save_new_rows(tmp_path, replay, first)
    assert [(chunk.start, chunk.stop) for chunk in second] == [(0, 4), (4, 7)]
    assert (tmp_path / first[0].file).read_bytes() == content
    # Without new rows nothing is written.
    assert save_new_rows(tmp_path, replay, second) == second
    # After seven more rows a ring of ten holds rows 4 to 13 only: the first chunk is not needed any more.
    third = save_new_rows(tmp_path, grown(random, replay, 7), second)
    assert [(chunk.start, chunk.stop) for chunk in third] == [(4, 7), (7, 14)]
    remove_unused(tmp_path, third)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(chunk.file for chunk in third)


def test_rows_that_were_overwritten_before_a_save_are_not_missed(tmp_path):
    random = np.random.default_rng(0)
    replay = empty_replay(CAPACITY, STREAMS, OBSERVATION, ACTION, memory_size=MEMORY)
    for count in (8, 8, 8):
        replay = grown(random, replay, count)
    chunks = save_new_rows(tmp_path, replay, ())
    assert [(chunk.start, chunk.stop) for chunk in chunks] == [(14, 24)]
    jax.tree.map(np.testing.assert_array_equal, load_rows(tmp_path, chunks, replay), replay)


def test_a_damaged_or_missing_chunk_is_named(tmp_path):
    replay = grown(
        np.random.default_rng(0), empty_replay(CAPACITY, STREAMS, OBSERVATION, ACTION, memory_size=MEMORY), 4
    )
    chunks = save_new_rows(tmp_path, replay, ())
    file = tmp_path / chunks[0].file
    other = empty_replay(CAPACITY, STREAMS, OBSERVATION + 1, ACTION, memory_size=MEMORY)
    with pytest.raises(
        CheckpointError, match=r"does not fit this run's replay: observation should be float32\[4, 3, 3\]"
    ):
        load_rows(tmp_path, chunks, other)
    file.write_bytes(file.read_bytes()[:-1] + b"\7")
    with pytest.raises(CheckpointError, match=f"{file.name} is truncated or was altered"):
        load_rows(tmp_path, chunks, replay)
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{file.name} cannot be read"):
        load_rows(tmp_path, chunks, replay)


def test_rows_that_are_not_finite_are_not_stored(tmp_path):
    replay = empty_replay(CAPACITY, STREAMS, OBSERVATION, ACTION, memory_size=MEMORY)
    broken = rows(np.random.default_rng(0), 2)
    broken = ReplayRows(
        broken.observation.at[0, 0, 0].set(jnp.nan),
        *(
            getattr(broken, name)
            for name in ("action", "reward", "discount", "is_first", "is_last", "seen", "memory")
        ),
    )
    with pytest.raises(CheckpointError, match="observation of the newest rows"):
        save_new_rows(tmp_path, append(replay, broken), ())
    assert not list(tmp_path.iterdir())
