"""Replay against a straightforward reference: lists of rows, random episode ends, rings that wrap."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.learners.replay import (
    ReplayConfig,
    ReplayRows,
    append,
    empty_replay,
    replay_bytes,
    sample,
    windows_at,
)

OBSERVATIONS, ACTIONS, MEMORY = 3, 2, 4


def random_rows(
    rng: np.random.Generator, steps: int, streams: int, started: np.ndarray
) -> tuple[ReplayRows, np.ndarray]:
    """Return rows as environments give them: a first row follows a last one; some episodes are abandoned."""
    first, last = np.zeros((2, steps, streams), bool)
    fresh = started.copy()
    for t in range(steps):
        first[t] = fresh
        last[t] = ~fresh & (rng.random(streams) < 0.15)
        abandoned = rng.random(streams) < 0.05
        fresh = last[t] | abandoned
    rows = ReplayRows(
        observation=jnp.asarray(rng.normal(size=(steps, streams, OBSERVATIONS)), jnp.float32),
        action=jnp.asarray(rng.normal(size=(steps, streams, ACTIONS)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=(steps, streams)), jnp.float32),
        discount=jnp.asarray(rng.random((steps, streams)) > 0.1, jnp.float32),
        is_first=jnp.asarray(first),
        is_last=jnp.asarray(last),
        seen=jnp.asarray(rng.random((steps, streams)) > 0.5),
        memory=jnp.asarray(rng.normal(size=(steps, streams, MEMORY)), jnp.float32),
    )
    return rows, fresh


def filled(seed: int, capacity: int = 13, streams: int = 3, pieces: tuple[int, ...] = (4, 7, 5, 9)):
    """A ring that has wrapped, and the whole history as one long array for each field."""
    rng = np.random.default_rng(seed)
    replay, history, fresh = (
        empty_replay(capacity, streams, OBSERVATIONS, ACTIONS, memory_size=MEMORY),
        [],
        np.ones(streams, bool),
    )
    for steps in pieces:
        rows, fresh = random_rows(rng, steps, streams, fresh)
        replay = append(replay, rows)
        history.append(rows)
    return replay, jax.tree.map(lambda *parts: np.concatenate(parts), *history)


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_slices_of_the_history(seed):
    replay, history = filled(seed)
    total, length = history.reward.shape[0], 5
    starts = np.arange(total - replay.capacity, total - length + 1)
    for stream in range(3):
        windows = windows_at(replay, jnp.asarray(starts), jnp.full(len(starts), stream), length)
        for n, start in enumerate(starts):
            for name in ("observation", "action", "reward", "discount", "is_first", "is_last"):
                expected = getattr(history, name)[start : start + length, stream]
                np.testing.assert_array_equal(getattr(windows.rows, name)[:, n], expected, err_msg=name)
            np.testing.assert_array_equal(windows.memory[n], history.memory[start, stream])
            # The control before the oldest row was overwritten.
            before = np.zeros(ACTIONS) if start == starts[0] else history.action[start - 1, stream]
            np.testing.assert_array_equal(windows.before[n], before)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_usable_where_its_action_counted_and_its_outcome_is_there(seed):
    replay, history = filled(seed)
    start, length = history.reward.shape[0] - replay.capacity, replay.capacity
    usable = windows_at(replay, jnp.array([start]), jnp.array([1]), length).usable[:, 0]
    for t in range(length):
        row = start + t
        ignored = history.is_last[row, 1]
        outcome_is_next = t + 1 < length and not history.is_first[row + 1, 1]
        assert bool(usable[t]) == (not ignored and outcome_is_next)
    assert usable.any()
    assert not usable.all()


def test_a_time_limit_bootstraps_from_the_true_last_observation():
    """The step into a last row is usable, with its observation in the next row; the last row is not."""
    first, last = [True, False, False, True, False], [False, False, True, False, False]
    rows = ReplayRows(
        jnp.arange(5.0)[:, None, None],
        jnp.zeros((5, 1, 1)),
        jnp.ones((5, 1)),
        jnp.ones((5, 1)),
        jnp.array(first)[:, None],
        jnp.array(last)[:, None],
        jnp.ones((5, 1), bool),
    )
    windows = windows_at(append(empty_replay(5, 1, 1, 1), rows), jnp.array([0]), jnp.array([0]), 5)
    assert windows.usable[:, 0].tolist() == [True, True, False, True, False]


def test_samples_are_uniform_over_every_place_where_a_window_fits():
    replay, history = filled(0)
    total, length, count = history.reward.shape[0], 5, 30_000
    windows = jax.jit(lambda key: sample(replay, key, length, count))(jax.random.key(1))
    known = {history.reward[row, stream].item(): (row, stream) for row in range(total) for stream in range(3)}
    places = [known[value] for value in np.asarray(windows.rows.reward[0]).tolist()]
    fitting = total - (total - replay.capacity) - length + 1
    counts = np.zeros((total, 3))
    for row, stream in places:
        counts[row, stream] += 1
    assert (counts > 0).sum() == fitting * 3
    # 27 cells of 1111 each with a standard deviation of 33.
    np.testing.assert_allclose(counts[counts > 0], count / (fitting * 3), atol=5 * 33)


def test_a_ring_that_is_not_full_gives_only_what_was_written():
    rows, _ = random_rows(np.random.default_rng(0), 6, 3, np.ones(3, bool))
    replay = append(empty_replay(50, 3, OBSERVATIONS, ACTIONS, memory_size=MEMORY), rows)
    windows = sample(replay, jax.random.key(0), 4, 200)
    assert set(np.asarray(windows.rows.reward).ravel().tolist()) <= set(
        np.asarray(rows.reward).ravel().tolist()
    )


@pytest.mark.parametrize(("storage", "itemsize"), [("float32", 4), ("float16", 2)])
def test_memory_is_known_beforehand_and_half_precision_halves_it(storage, itemsize):
    replay = empty_replay(100, 4, OBSERVATIONS, ACTIONS, storage, MEMORY)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(replay.rows))
    assert (
        size
        == replay_bytes(jax.eval_shape(lambda: replay))
        == 400 * (itemsize * (OBSERVATIONS + ACTIONS + MEMORY + 2) + 3)
    )
    rows, _ = random_rows(np.random.default_rng(0), 8, 4, np.ones(4, bool))
    windows = windows_at(append(replay, rows), jnp.array([0]), jnp.array([2]), 8)
    assert windows.rows.observation.dtype == jnp.float32
    # Half precision keeps eleven bits.
    np.testing.assert_allclose(
        windows.rows.observation[:, 0], rows.observation[:, 2], rtol=2.0**-11 if storage == "float16" else 0.0
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 9, "burn_in": 8}, "Use a window of at least 10"),
        ({"burn_in": -1}, "burn_in is -1"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_windows_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ReplayConfig(**settings)


def test_a_replay_smaller_than_a_window_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"keeps 47 rows of each of 16 environments, but a window needs 48. "
        r"Use a capacity of at least 768",
    ):
        ReplayConfig(capacity=767, window=48).rows(16)
    assert ReplayConfig(capacity=768, window=48).rows(16) == 48
    with pytest.raises(ConfigError, match="14 rows do not fit into a ring of 13"):
        append(
            empty_replay(13, 3, OBSERVATIONS, ACTIONS),
            random_rows(np.random.default_rng(0), 14, 3, np.ones(3, bool))[0],
        )


def test_an_outlier_stays_finite_in_half_precision():
    rows, _ = random_rows(np.random.default_rng(0), 2, 1, np.ones(1, bool))
    rows = dataclasses.replace(
        rows, observation=rows.observation.at[0, 0, 0].set(1e6).at[0, 0, 1].set(-1e6), memory=None
    )
    kept = append(empty_replay(4, 1, OBSERVATIONS, ACTIONS, "float16"), rows).rows.observation[0, 0]
    assert kept[:2].tolist() == [65504.0, -65504.0]
