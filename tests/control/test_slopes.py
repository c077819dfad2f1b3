"""Derivatives beside kinks and jumps, of functions whose pieces are known."""

import numpy as np
import pytest

from costate.control.linearisation import disagreement
from costate.control.slopes import agreed_slopes

STEPS = (1e-6, 1e-7, 1e-8, 1e-9, 1e-10)


def slopes_at(function, at):
    """Return the slopes of a function from several numbers to several."""
    at, tried = np.asarray(at, float), []
    here = np.asarray(function(at))

    def one_sided(step, columns):
        tried.append((step, list(columns)))
        return np.stack(
            [(np.asarray(function(at + step * np.eye(len(at))[j])) - here) / step for j in columns], axis=1
        )

    return agreed_slopes(one_sided, len(at), STEPS, here), tried


def test_where_both_sides_agree_one_step_suffices():
    found, tried = slopes_at(lambda x: [np.sin(x[0]), x[0] * x[1]], [0.3, 2.0])
    np.testing.assert_allclose(found.best, [[np.cos(0.3), 0.0], [2.0, 0.3]], atol=1e-9)
    np.testing.assert_allclose(found.other, found.best, atol=1e-6)
    assert tried == [(1e-6, [0, 1]), (-1e-6, [0, 1])]


@pytest.mark.parametrize("distance", [3e-7, 4e-9, 2e-10, -3e-7, -4e-9, -2e-10])
def test_beside_a_kink_the_slope_is_that_of_the_own_piece(distance):
    """The slope is 0 below 0 and 5 above it. Only the column with the kink needs smaller steps."""
    found, tried = slopes_at(lambda x: [max(5.0 * x[0], 0.0) + x[1], x[1]], [distance, 0.5])
    np.testing.assert_allclose(found.best[0], [5.0 if distance > 0.0 else 0.0, 1.0], atol=1e-3)
    np.testing.assert_allclose(found.other, found.best, atol=1e-2)
    assert all(columns == [0] for _, columns in tried[2:])
    assert min(abs(step) for step, _ in tried) < abs(distance) < 10 * abs(tried[-2][0])


def test_a_small_kink_is_seen_in_a_small_reward_beside_large_motions():
    """The first row has slopes of a reward in thousandths, the second those of a stiff spring."""
    found, _ = slopes_at(lambda x: [1e-3 * max(x[0], 0.0), 1e5 * x[0]], [4e-8])
    np.testing.assert_allclose(found.best[0], [1e-3], rtol=1e-2)


def test_on_a_kink_the_two_versions_are_of_different_sides():
    found, tried = slopes_at(lambda x: [max(5.0 * x[0], 0.0), x[1]], [0.0, 1.0])
    assert sorted([found.best[0, 0], found.other[0, 0]]) == pytest.approx([0.0, 5.0], abs=1e-9)
    np.testing.assert_allclose(found.best[:, 1], [0.0, 1.0], atol=1e-9)
    assert min(step for step, _ in tried if step > 0.0) == 1e-10, "all steps were tried"


def test_a_jump_is_left_out_and_shows_in_the_other_version():
    found, _ = slopes_at(lambda x: [3.0 * x[0] + (x[0] > 0.0)], [0.0])
    assert found.best[0, 0] == pytest.approx(3.0)
    assert found.other[0, 0] > 1e5
    # A jump that a smaller step does not reach shows in neither version.
    found, _ = slopes_at(lambda x: [3.0 * x[0] + (x[0] > 2e-8)], [0.0])
    np.testing.assert_allclose([found.best[0, 0], found.other[0, 0]], 3.0, rtol=1e-6)


def test_rounding_is_no_kink():
    """For a value of 10⁴, differences of 1e-6 are accurate to about 1e-6 only."""
    found, tried = slopes_at(lambda x: [1e4 + 1e-4 * x[0]], [0.3])
    assert len(tried) == 2
    assert abs(found.best[0, 0]) < 1e-2


def test_disagreement_is_relative_and_of_whole_rows():
    one = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [1e-9, 0.0]])
    other = np.array([[3.0, 4.5], [0.0, 0.0], [0.0, 1.0], [2e-9, 0.0]])
    np.testing.assert_allclose(disagreement(one, other), [0.1, 0.0, np.inf, 1.0])
