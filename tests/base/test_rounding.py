"""Decimals of numbers that are shown together."""

import math

import numpy as np
import pytest

from costate._base.rounding import at_least, decimals, rounded
from costate.experiments.report import _task_tables
from costate.experiments.statistics import Interval
from costate.experiments.tables import Cell


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.9, 2.4), ["0.90", "2.40"]),
        ((12.0, 99.4), ["12.0", "99.4"]),
        ((3.0, 731.4), ["3", "731"]),
        ((0.0123, 0.0045), ["0.0123", "0.0045"]),
        ((-14.52, -3.1), ["-14.5", "-3.1"]),
        ((0.0, 0.0), ["0", "0"]),
        ((math.nan, 5.0), ["nan", "5.00"]),
    ],
)
def test_the_largest_number_has_three_significant_digits(values, texts):
    assert rounded(*values) == texts


def test_there_are_never_fewer_decimals_than_asked_for():
    assert (decimals(512.0, least=1), decimals(2.4, least=1), decimals(least=1)) == (1, 2, 1)


def test_a_report_of_small_returns_tells_them_apart():
    page = _task_tables([Cell("Task", "gru", np.array([0.9, 2.4]), 0, 0, float("nan"))], {})
    assert "0.90 … 2.40" in page
    assert "1.65 ± " in page
    large = _task_tables([Cell("Task", "gru", np.array([412.0, 731.4]), 0, 0, float("nan"))], {})
    assert "412 … 731" in large
    assert "571.7 ± " in large


def test_an_interval_has_the_same_decimals_throughout():
    assert str(Interval(971.2, 969.0, 977.55)) == "971.2 [969.0, 977.5]"
    assert str(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert str(Interval(1.5, math.nan, math.nan)) == "1.50"


@pytest.mark.parametrize(
    ("bound", "digits", "shown"),
    [
        (0.7 / 0.3, 4, "2.334"),
        (1.0 - 0.5**0.5, 2, "0.3"),
        (9.0, 4, "9"),
        (0.123, 3, "0.123"),
        (123456.0, 2, "130000"),
    ],
)
def test_a_lower_bound_holds_as_it_is_shown(bound, digits, shown):
    assert at_least(bound, digits) == shown
    assert float(at_least(bound, digits)) >= bound
