"""Statistics against published definitions, SciPy, and cases calculated by hand."""

import itertools

import numpy as np
import pytest
import scipy.stats

from costate._base.errors import ConfigError
from costate.experiments import statistics as st


def test_interquartile_mean_cuts_a_quarter_of_the_runs_rounded_down_at_either_end():
    assert st.interquartile_mean(np.array([8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 100.0])) == pytest.approx(
        (3 + 5 + 6 + 7) / 4
    )
    # Ten runs lose two at either end, five lose one, three none.
    assert st.interquartile_mean(np.arange(10.0) ** 2) == pytest.approx(np.mean([4, 9, 16, 25, 36, 49]))
    assert st.interquartile_mean(np.array([0.0, 1.0, 2.0, 6.0, 1000.0])) == pytest.approx(3.0)
    assert st.interquartile_mean(np.array([0.0, 1.0, 11.0])) == pytest.approx(4.0)


def test_the_standard_deviation_estimates_the_population_and_needs_two_runs():
    assert st.standard_deviation(np.array([1.0, 3.0])) == pytest.approx(np.sqrt(2.0))
    assert np.isnan(st.standard_deviation(np.array([1.0])))


def test_the_percentile_interval_of_two_runs_is_that_of_all_four_resamples():
    # Resampled means of {0, 1} are 0, ½, ½, 1 with equal probability: 95 % spans all of them, the middle 40 %
    # only ½.
    scores = [np.array([0.0, 1.0])]
    wide = st.percentile_bootstrap(scores, st.mean)
    assert (wide.estimate, wide.low, wide.high) == (0.5, 0.0, 1.0)
    narrow = st.percentile_bootstrap(scores, st.mean, confidence=0.4)
    assert (narrow.low, narrow.high) == (0.5, 0.5)


def test_the_percentiles_agree_with_every_resample_of_four_runs():
    runs = np.array([3.0, 7.0, 11.0, 40.0])
    every = [np.mean(draw) for draw in itertools.product(runs, repeat=4)]
    interval = st.percentile_bootstrap([runs], st.mean, resamples=100_000, confidence=0.8)
    low, high = np.quantile(every, [0.1, 0.9])
    # 256 equally likely means, some of which coincide: the quantile is one of them or its neighbour.
    assert abs(interval.low - low) <= 1.0
    assert abs(interval.high - high) <= 1.0


def test_the_bootstrap_resamples_within_tasks():
    # Within a task nothing varies, so nothing is uncertain; resampling across tasks would mix zeros and ones.
    interval = st.stratified_bootstrap([np.zeros(5), np.ones(5)], st.mean)
    assert (interval.low, interval.high) == (0.5, 0.5)


def test_the_percentiles_agree_with_scipy_for_one_task():
    runs = np.random.default_rng(3).normal(100.0, 15.0, size=30)
    ours = st.percentile_bootstrap([runs], st.mean, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (runs,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(0)
    ).confidence_interval
    # The standard error of a 2.5 % quantile of 20,000 draws is about 0.02 standard errors of the mean (2.7
    # here).
    assert ours.low == pytest.approx(theirs.low, abs=0.3)
    assert ours.high == pytest.approx(theirs.high, abs=0.3)


def test_an_interval_is_stretched_for_a_biased_spread_and_for_few_degrees_of_freedom():
    # Four runs: variances of resamples are 3/4 of what they should be, and Student's t with 3 degrees of
    # freedom is 3.182 at 97.5 %.
    assert st.stretch([4]) == pytest.approx(np.sqrt(4 / 3) * 3.18245 / 1.95996, rel=1e-5)
    # Eight tasks of four runs have 24 degrees of freedom: 2.064. At 90 % the quantiles are those of 95 %:
    # 1.711 and 1.645.
    assert st.stretch([4] * 8) == pytest.approx(np.sqrt(4 / 3) * 2.06390 / 1.95996, rel=1e-5)
    assert st.stretch([4] * 8, confidence=0.9) == pytest.approx(np.sqrt(4 / 3) * 1.71088 / 1.64485, rel=1e-5)
    assert st.stretch([1000]) == pytest.approx(1.0, abs=0.002)
    with pytest.raises(ConfigError, match=r"Groups of \[1, 1\] runs have no spread"):
        st.stretch([1, 1])


def test_the_interval_of_a_mean_is_about_students():
    """The percentile interval of a mean has half-length z √((n − 1) / n) standard errors.

    Stretching it gives Student's interval.
    """
    runs = np.random.default_rng(5).normal(300.0, 80.0, size=6)
    found = st.stratified_bootstrap([runs], st.mean, resamples=50_000)
    low, high = scipy.stats.t.interval(0.95, 5, loc=runs.mean(), scale=scipy.stats.sem(runs))
    # Means of resamples of six are not quite normal: their tails are up to a tenth shorter.
    assert found.high - found.low == pytest.approx(high - low, rel=0.1)
    assert found.estimate == pytest.approx(runs.mean())
    percentiles = st.percentile_bootstrap([runs], st.mean, resamples=50_000)
    factor = np.sqrt(6 / 5) * 2.57058 / 1.95996
    assert found.estimate - found.low == pytest.approx(
        factor * (percentiles.estimate - percentiles.low), rel=1e-5
    )
    assert found.high - found.estimate == pytest.approx(
        factor * (percentiles.high - percentiles.estimate), rel=1e-5
    )


def test_bounds_of_probabilities_stay_between_zero_and_one():
    left, right = [np.array([1.0, 2.0, 3.0, 9.0])], [np.array([0.0, 1.5, 2.5, 2.6])]
    interval = st.improvement_interval(left, right)
    assert 0.0 <= interval.low < interval.estimate < interval.high == 1.0
    low, high = st.profile_band(left, np.array([0.5, 2.5, 8.0]))
    assert (low >= 0.0).all()
    assert (high <= 1.0).all()


def test_intervals_of_four_runs_cover_a_normal_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    trials = [
        st.stratified_bootstrap([rng.normal(size=4)], resamples=500, seed=trial) for trial in range(300)
    ]
    # 95 % of 300 is 285 with a standard deviation of 4. Percentiles alone would give 258.
    assert 276 <= sum(each.low <= 0.0 <= each.high for each in trials) <= 297


@pytest.mark.thorough
@pytest.mark.parametrize("tasks", [1, 8])
@pytest.mark.parametrize("seeds", [4, 10])
@pytest.mark.parametrize(
    ("draw", "lowest"),
    [
        (lambda rng, shape: rng.normal(500.0, 100.0, shape), 0.92),
        (lambda rng, shape: np.exp(rng.normal(5.0, 0.8, shape)), 0.91),
        # A third of the seeds fail. Every fifth time, four seeds of one task all succeed or all fail, and
        # then say nothing about the other outcome.
        (
            lambda rng, shape: np.where(
                rng.random(shape) < 0.35, rng.normal(50.0, 20.0, shape), rng.normal(800.0, 50.0, shape)
            ),
            0.80,
        ),
    ],
    ids=["normal", "skewed", "bimodal"],
)
def test_intervals_cover_the_truth_better_than_percentiles_do(draw, lowest, seeds, tasks):
    rng = np.random.default_rng(seeds)
    truth = float(st.interquartile_mean(draw(rng, 400_000)))
    ours, percentiles, trials = 0, 0, 500
    for trial in range(trials):
        scores = list(draw(rng, (tasks, seeds)))
        stretched, plain = (
            found(scores, resamples=400, seed=trial)
            for found in (st.stratified_bootstrap, st.percentile_bootstrap)
        )
        ours += stretched.low <= truth <= stretched.high
        percentiles += plain.low <= truth <= plain.high
    # Of 500 trials the standard deviation of a share of 0.95 is 0.01.
    assert ours / trials >= lowest
    assert ours >= percentiles


@pytest.mark.thorough
def test_intervals_of_many_runs_are_hardly_stretched():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        interval = st.stratified_bootstrap(
            [rng.normal(size=40), rng.normal(size=40)], st.mean, resamples=500, seed=trial
        )
        hits += interval.low <= 0.0 <= interval.high
    # 95 % of 300 is 285 with a standard deviation of 4.
    assert 270 <= hits <= 297


def test_intervals_are_seeded():
    runs = [np.random.default_rng(1).normal(size=7)]
    assert st.stratified_bootstrap(runs, seed=1) == st.stratified_bootstrap(runs, seed=1)
    assert st.stratified_bootstrap(runs, seed=1) != st.stratified_bootstrap(runs, seed=2)


@pytest.mark.parametrize("scores", [[np.array([5.0])], [np.full(9, 5.0), np.full(3, 5.0)]])
def test_too_few_runs_on_any_task_have_no_interval(scores):
    interval = st.stratified_bootstrap(scores)
    assert interval.estimate == 5.0
    assert np.isnan(interval.low)
    assert np.isnan(st.improvement_interval(scores, [np.ones(9)] * len(scores)).low)
    assert np.isnan(st.profile_band(scores, np.arange(3.0))[0]).all()
    assert str(interval) == "5.00"


def test_an_interval_is_written_with_its_bounds():
    assert str(st.Interval(1.0, 0.5, 2.0)) == "1.00 [0.50, 2.00]"


def test_probability_of_improvement_is_mann_whitneys_statistic():
    x, y = np.array([1.0, 5.0, 5.0]), np.array([0.0, 5.0])
    # Pairs won: 1>0, 5>0, 5>0; tied: 5=5 twice; lost: 1<5.
    assert st.probability_of_improvement([x], [y]) == pytest.approx((3 + 0.5 * 2) / 6)
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.3, size=12), rng.normal(size=9)
    assert st.probability_of_improvement([x], [y]) == pytest.approx(
        scipy.stats.mannwhitneyu(x, y).statistic / (12 * 9)
    )
    # Over tasks it is the mean: 1 on one task, 0 on the other.
    assert st.probability_of_improvement([np.ones(2), np.zeros(4)], [np.zeros(3), np.ones(2)]) == 0.5


def test_the_interval_of_improvement_lies_around_it():
    rng = np.random.default_rng(0)
    left, right = [rng.normal(1.0, size=10)], [rng.normal(size=10)]
    interval = st.improvement_interval(left, right)
    assert 0.5 < interval.low < interval.estimate < interval.high <= 1.0
    assert interval.estimate == st.probability_of_improvement(left, right)
    assert np.isnan(st.improvement_interval([np.ones(1)], [np.zeros(1)]).low)


def test_a_performance_profile_is_the_share_of_runs_above_each_threshold():
    thresholds = np.array([0.0, 1.0, 2.5, 4.0])
    profile = st.performance_profile([np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 5.0])], thresholds)
    np.testing.assert_allclose(
        profile, (np.array([1.0, 0.75, 0.5, 0.0]) + np.array([0.5, 0.5, 0.5, 0.5])) / 2
    )
    low, high = st.profile_band([np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 5.0])], thresholds, fewest=2)
    assert (low <= profile).all()
    assert (profile <= high).all()
    # A task whose runs are all equal has no uncertainty.
    low, high = st.profile_band([np.full(3, 2.0)], thresholds, fewest=3)
    np.testing.assert_array_equal(low, [1.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(high, low)


def test_a_moving_average_starts_with_what_there_is_and_passes_over_gaps():
    np.testing.assert_allclose(st.moving_average(np.array([2.0, 4.0, 6.0, 8.0]), 3), [2.0, 3.0, 4.0, 6.0])
    np.testing.assert_allclose(
        st.moving_average(np.array([np.nan, 4.0, np.nan, np.nan, np.nan]), 3), [np.nan, 4.0, 4.0, 4.0, np.nan]
    )


def test_curves_of_unequal_length_are_averaged_where_they_exist():
    long = st.Curve(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 10.0, 20.0, 30.0]))
    short = st.Curve(np.array([0.0, 2.0]), np.array([4.0, 8.0]))
    band = st.mean_band([long, short])
    np.testing.assert_array_equal(band.steps, long.steps)
    np.testing.assert_array_equal(band.runs, [2, 2, 2, 1])
    np.testing.assert_allclose(band.centre, [2.0, 8.0, 14.0, 30.0])
    np.testing.assert_allclose(
        (band.high - band.centre)[:3], np.std([[0.0, 10.0, 20.0], [4.0, 6.0, 8.0]], axis=0, ddof=1)
    )
    assert np.isnan(band.low[3])


def test_a_curve_that_starts_late_is_not_continued_backwards():
    early, late = (
        st.Curve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0])),
        st.Curve(np.array([2.0, 3.0]), np.array([5.0, 5.0])),
    )
    np.testing.assert_array_equal(st.mean_band([early, late]).runs, [1, 2, 2])


def test_the_interquartile_band_is_that_of_each_point():
    curves = [st.Curve(np.array([0.0, 1.0]), np.array([float(i), 10.0])) for i in range(8)]
    band = st.interquartile_band(curves)
    np.testing.assert_allclose(band.centre, [np.mean([2, 3, 4, 5]), 10.0])
    assert band.low[0] < band.centre[0] < band.high[0]
    assert band.low[1] == band.high[1] == 10.0


@pytest.mark.parametrize("scores", [[], [np.array([])], [np.ones((2, 2))]])
def test_scores_without_runs_are_refused(scores):
    with pytest.raises(ConfigError, match="at least one run"):
        st.stratified_bootstrap(scores)


def test_other_senseless_questions_are_refused():
    with pytest.raises(ConfigError, match="not finite"):
        st.stratified_bootstrap([np.array([1.0, np.nan])])
    with pytest.raises(ConfigError, match="2 tasks are compared with 1"):
        st.probability_of_improvement([np.ones(2)] * 2, [np.ones(2)])
    with pytest.raises(ConfigError, match=r"confidence is 95\.0"):
        st.stratified_bootstrap([np.ones(4)], confidence=95.0)
    with pytest.raises(ConfigError, match="at least one"):
        st.mean_band([])


def test_the_band_of_few_runs_is_their_range():
    """Three runs at two steps: 1, 2 and 6 have mean 3 and range 1 to 6; 0, 3 and 9 have mean 4 and range 0 to
    9.
    """
    steps = np.array([10.0, 20.0])
    band = st.range_band(
        [st.Curve(steps, np.array(values)) for values in ([1.0, 0.0], [2.0, 3.0], [6.0, 9.0])]
    )
    np.testing.assert_allclose([band.centre, band.low, band.high], [[3.0, 4.0], [1.0, 0.0], [6.0, 9.0]])
