"""Measures of similarity against closed forms, least squares and their invariances."""

import numpy as np
import pytest

from costate.trained.alignment.measures import (
    canonical_correlations,
    cosines,
    linear_cka,
    probe_r2,
    r_squared,
    ridge,
    scaling_of,
    shuffled_in_time,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_cosines_of_known_angles_and_of_nothing():
    one = np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 2.0], [0.0, 0.0]])
    other = np.array([[0.0, 3.0], [-2.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(cosines(one, other), [0.0, -1.0, 1.0 / np.sqrt(2.0), 0.0], atol=1e-15)


def test_a_probe_without_penalty_is_least_squares(rng):
    source, target = rng.normal(size=(200, 5)), rng.normal(size=(200, 3))
    design = np.column_stack([source, np.ones(200)])
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    np.testing.assert_allclose(ridge(source, target, 0.0).predict(source), fitted, rtol=1e-9, atol=1e-9)


def test_a_penalty_shrinks_as_the_normal_equations_say(rng):
    source, target = rng.normal(size=(50, 1)), rng.normal(size=(50, 1))
    x = (source - source.mean()) / source.std()
    y = (target - target.mean()) / target.std()
    # One standardised input: weight = Σxy / (n + n·penalty).
    np.testing.assert_allclose(
        ridge(source, target, 0.5).weights[0, 0], (x * y).sum() / (50 * 1.5), rtol=1e-12
    )


def test_r_squared_is_one_for_the_truth_zero_for_the_mean_and_weighs_components_equally(rng):
    truth = rng.normal(size=(400, 2)) * [1.0, 1e6]
    mean = truth.mean(axis=0)
    half = np.column_stack([truth[:, 0], np.full(400, mean[1])])
    assert r_squared(truth, truth, mean) == 1.0
    assert r_squared(truth, np.broadcast_to(mean, truth.shape), mean) == 0.0
    assert r_squared(truth, half, mean) == pytest.approx(0.5, abs=1e-12)


def _episodes(count: int, length: int) -> np.ndarray:
    return np.repeat(np.arange(count), length)


def test_a_probe_finds_a_linear_map_on_unseen_episodes_and_nothing_in_noise(rng):
    source = rng.normal(size=(600, 4))
    target = source @ rng.normal(size=(4, 2)) + 3.0
    episode = _episodes(6, 100)
    assert probe_r2(source, target, episode, np.array([4, 5])) > 0.9999
    assert probe_r2(source, rng.normal(size=(600, 2)), episode, np.array([4, 5])) < 0.02


def test_a_probe_of_many_units_does_not_pretend_on_what_it_was_fitted_to(rng):
    # 80 units fit 90 rows of noise almost perfectly; unseen episodes tell.
    source, target, episode = rng.normal(size=(180, 80)), rng.normal(size=(180, 1)), _episodes(6, 30)
    seen = ridge(source[:90], target[:90], 0.0)
    assert r_squared(target[:90], seen.predict(source[:90]), target[:90].mean(axis=0)) > 0.7
    assert probe_r2(source, target, episode, np.array([3, 4, 5])) < 0.1


def test_canonical_correlation_with_one_component_is_the_multiple_correlation(rng):
    source = rng.normal(size=(500, 3))
    target = (source @ [1.0, -2.0, 0.5] + rng.normal(size=500))[:, None]
    design = np.column_stack([source, np.ones(500)])
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    every = np.ones(500, bool)
    expected = np.corrcoef(fitted[:, 0], target[:, 0])[0, 1]
    np.testing.assert_allclose(
        canonical_correlations(source, target, every, every, penalty=0.0), [expected], rtol=1e-9
    )


def test_canonical_correlations_find_a_hidden_shared_direction(rng):
    shared = rng.normal(size=1000)
    source = rng.normal(size=(1000, 5))
    target = rng.normal(size=(1000, 4))
    source[:, 2] += 3.0 * shared
    target[:, 1] += 3.0 * shared
    fitting = np.arange(1000) < 700
    found = canonical_correlations(source, target, fitting, ~fitting)
    # Both are 0.9 signal: the correlation is 9 / 10.
    assert found[0] == pytest.approx(0.9, abs=0.03)
    assert np.abs(found[1:]).max() < 0.2


def test_cka_of_single_components_is_the_squared_correlation(rng):
    one = rng.normal(size=(300, 1))
    other = 0.3 * one + rng.normal(size=(300, 1))
    assert linear_cka(one, other) == pytest.approx(np.corrcoef(one[:, 0], other[:, 0])[0, 1] ** 2, rel=1e-9)


def test_cka_does_not_see_rotation_nor_scale_of_standardised_rows(rng):
    rows = rng.normal(size=(4000, 3))
    rows = (rows - rows.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T, bias=True))).T
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert linear_cka(rows, 7.0 * rows @ turn) == pytest.approx(1.0, abs=1e-9)
    assert linear_cka(rows, rng.normal(size=(4000, 3))) < 0.01


def test_components_that_never_move_are_left_alone():
    rows = np.column_stack([np.arange(4.0), np.full(4, 7.0)])
    scaled = scaling_of(rows).apply(rows)
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 0.0], atol=1e-15)
    assert np.isfinite(linear_cka(rows, rows))


def test_shuffling_keeps_every_row_in_its_episode(rng):
    episode = _episodes(3, 20)
    rows = np.column_stack([episode, np.arange(60)]).astype(float)
    mixed = shuffled_in_time(rows, episode, rng)
    np.testing.assert_array_equal(mixed[:, 0], episode)
    assert sorted(mixed[:, 1]) == list(range(60))
    assert (mixed[:, 1] != rows[:, 1]).mean() > 0.8
