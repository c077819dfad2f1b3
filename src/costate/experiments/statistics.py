"""Statistics of few runs: aggregates, bootstrap intervals, comparisons and curves.

Scores come as one array per task, because runs of one task are exchangeable and runs of different tasks are
not. The definitions are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021), except for the intervals. Theirs, percentiles of bootstrap resamples, are too short for few
runs, and are stretched here (:func:`stretch`).
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import scipy.stats

from costate._base.errors import ConfigError
from costate._base.rounding import rounded

Scores = Sequence[np.ndarray]
"""One array of scores per task."""
Statistic = Callable[[np.ndarray], np.ndarray]
"""A function that reduces the last axis."""

RESAMPLES = 2000
CONFIDENCE = 0.95
FEWEST = 4
"""With fewer runs than this on any task, no interval is given."""
ENOUGH = 10
"""From this many runs per task on, intervals have about their nominal coverage.

This holds for any distribution of returns.
"""


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and the bounds of its interval. The bounds are NaN if there are too few runs."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        estimate, low, high = rounded(self.estimate, self.low, self.high, least=1)
        return f"{estimate} [{low}, {high}]" if np.isfinite(self.low) else estimate


def mean(scores: np.ndarray) -> np.ndarray:
    return np.asarray(np.mean(scores, axis=-1))


def median(scores: np.ndarray) -> np.ndarray:
    return np.asarray(np.median(scores, axis=-1))


def standard_deviation(scores: np.ndarray) -> np.ndarray:
    """Standard deviation of the population that the runs were drawn from (n − 1 in the denominator).

    NaN for a single run, which tells nothing about the spread.
    """
    if scores.shape[-1] < 2:
        return np.full(scores.shape[:-1], np.nan)
    return np.asarray(np.std(scores, axis=-1, ddof=1))


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Mean after cutting off a quarter of the runs, rounded down, at either end.

    With three runs or fewer this is the mean.
    """
    return np.asarray(scipy.stats.trim_mean(scores, 0.25, axis=-1))


def pooled(scores: Scores, statistic: Statistic) -> float:
    """Return ``statistic`` of the runs of all tasks together."""
    return float(statistic(np.concatenate(list(scores))))


def stratified_bootstrap(
    scores: Scores,
    statistic: Statistic = interquartile_mean,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    fewest: int = FEWEST,
) -> Interval:
    """Return the interval of ``statistic`` over all tasks, stretched for the number of runs.

    It is :func:`percentile_bootstrap` with longer sides. It has no bounds if some task has fewer runs than
    :data:`FEWEST`. Resampling two or three runs says almost nothing about others, and an interval would
    pretend that it does.
    """
    _check(scores)
    estimate = pooled(scores, statistic)
    if min(map(len, scores)) < fewest:
        return Interval(estimate, np.nan, np.nan)
    return _stretched(
        percentile_bootstrap(scores, statistic, resamples=resamples, confidence=confidence, seed=seed),
        scores,
        confidence,
    )


def percentile_bootstrap(
    scores: Scores,
    statistic: Statistic = interquartile_mean,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """Return the percentile interval of ``statistic`` over all tasks.

    Runs are resampled within each task, so that every task keeps its weight. The interval is too short for
    few runs: resamples of n runs vary less than new sets of n runs would, and their spread is itself
    uncertain.
    """
    _check(scores)
    rng = np.random.default_rng(seed)
    draws = np.concatenate([_resample(rng, task, resamples) for task in scores], axis=1)
    return _percentiles(pooled(scores, statistic), statistic(draws), confidence)


def stretch(counts: Sequence[int], confidence: float = CONFIDENCE) -> float:
    """Return the factor by which to lengthen both sides of a percentile interval.

        √(Σ n / Σ (n − 1)) · t / z

    The groups that are resampled have n = ``counts`` runs each. The root corrects the bias of a resampled
    variance, whose denominator is n instead of n − 1. The quantile t of Student's distribution with Σ (n − 1)
    degrees of freedom replaces the normal quantile z, because the spread is estimated from few runs. Both
    corrections are those of Hesterberg's expanded percentile interval ("What Teachers Should Know About the
    Bootstrap", 2015), which takes more extreme percentiles. Here the bounds are moved instead, because four
    runs have no percentiles beyond the range of their resamples.
    """
    degrees = sum(counts) - len(counts)
    if degrees < 1:
        raise ConfigError(
            f"Groups of {list(counts)} runs have no spread to estimate, but an interval needs a group of at "
            "least 2 runs."
        )
    upper = _tails(confidence)[1]
    return float(
        np.sqrt(sum(counts) / degrees) * scipy.stats.t.ppf(upper, degrees) / scipy.stats.norm.ppf(upper)
    )


def probability_of_improvement(left: Scores, right: Scores) -> float:
    """Return P(X > Y) + ½ P(X = Y), averaged over tasks.

    X is a run of ``left`` and Y a run of ``right`` on the same task.
    """
    _check_pairs(left, right)
    return float(np.mean([_wins(x[None], y[None])[0] for x, y in zip(left, right, strict=True)]))


def improvement_interval(
    left: Scores,
    right: Scores,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    fewest: int = FEWEST,
) -> Interval:
    """Return :func:`probability_of_improvement` with its stretched, stratified bootstrap interval.

    Both sides are resampled. There are no bounds if runs are too few.
    """
    estimate = probability_of_improvement(left, right)
    if min(map(len, (*left, *right))) < fewest:
        return Interval(estimate, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    pairs = zip(left, right, strict=True)
    wins = np.mean(
        [_wins(_resample(rng, x, resamples), _resample(rng, y, resamples)) for x, y in pairs], axis=0
    )
    return _within_shares(_stretched(_percentiles(estimate, wins, confidence), (*left, *right), confidence))


def share_of_distance(
    reached: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """Return how far ``reached`` is from ``low``, 0, to ``high``, 1, in mean, with a bootstrap interval.

    All three groups are resampled, and the interval is stretched. It has no bounds if runs are too few, or if
    so many resamples have ``high`` no higher than ``low`` that there may be no distance at all. The estimate
    is NaN if there is no distance.
    """
    groups = (reached, low, high)
    _check(groups)
    if mean(high) <= mean(low):
        return Interval(np.nan, np.nan, np.nan)
    estimate = float((mean(reached) - mean(low)) / (mean(high) - mean(low)))
    if min(map(len, groups)) < FEWEST:
        return Interval(estimate, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    x, a, b = (mean(_resample(rng, group, resamples)) for group in groups)
    ordered = b > a
    if np.mean(~ordered) > 0.5 * (1.0 - confidence):
        return Interval(estimate, np.nan, np.nan)
    # Resamples without a distance have no share.
    return _stretched(
        _percentiles(estimate, (x - a)[ordered] / (b - a)[ordered], confidence), groups, confidence
    )


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Return the share of runs above each threshold, averaged over tasks (the run-score distribution).

    Higher is better everywhere.
    """
    _check(scores)
    return np.asarray(np.mean([(task[:, None] > thresholds).mean(axis=0) for task in scores], axis=0))


def profile_band(
    scores: Scores,
    thresholds: np.ndarray,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    fewest: int = FEWEST,
) -> tuple[np.ndarray, np.ndarray]:
    """Return stretched pointwise bootstrap bounds of :func:`performance_profile`; NaN if runs are too few."""
    _check(scores)
    if min(map(len, scores)) < fewest:
        return np.full(len(thresholds), np.nan), np.full(len(thresholds), np.nan)
    rng = np.random.default_rng(seed)
    # Sorted draws are counted by binary search, without an array of resamples × runs × thresholds.
    shares = np.zeros((resamples, len(thresholds)))
    for task in scores:
        for row, draw in enumerate(np.sort(_resample(rng, task, resamples), axis=1)):
            shares[row] += 1.0 - np.searchsorted(draw, thresholds, side="right") / len(task)
    low, high = np.quantile(shares / len(scores), _tails(confidence), axis=0)
    low, high = _moved_out(
        performance_profile(scores, thresholds),
        low,
        high,
        stretch([len(task) for task in scores], confidence),
    )
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Curve:
    """A metric of one run over its steps, which increase."""

    steps: np.ndarray
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Band:
    """Pointwise summary of several curves."""

    steps: np.ndarray
    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: np.ndarray
    """Number of curves at each point."""


def moving_average(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the last ``window`` points, or of all points so far. NaNs are skipped."""
    known = np.isfinite(values)
    totals = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    count = counts[ends] - counts[starts]
    return np.where(count > 0, (totals[ends] - totals[starts]) / np.maximum(count, 1), np.nan)


def align(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate all curves to a common axis of steps.

    Return the steps, and values [curve, step] that are NaN outside of a curve's range. The axis is that of
    the longest curve. Other curves are interpolated between their own points, and never extrapolated.
    """
    if not curves:
        raise ConfigError("No curve was given, but at least one is needed to draw a band.")
    longest = max(curves, key=lambda curve: (curve.steps[-1], len(curve.steps)))
    rows = [
        np.interp(longest.steps, curve.steps, curve.values, left=np.nan, right=np.nan) for curve in curves
    ]
    return longest.steps, np.stack(rows)


def mean_band(curves: Sequence[Curve], window: int = 1) -> Band:
    """Return mean ± one standard deviation over runs, smoothed by a moving average (the paper's style)."""
    steps, rows = align([_smoothed(curve, window) for curve in curves])
    return _band(steps, rows, _mean_and_deviation)


def interquartile_band(
    curves: Sequence[Curve],
    window: int = 1,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    fewest: int = FEWEST,
) -> Band:
    """Return the interquartile mean over runs with its stretched bootstrap interval, pointwise.

    Whole runs are resampled. There are no bounds if runs are too few.
    """
    steps, rows = align([_smoothed(curve, window) for curve in curves])
    rng = np.random.default_rng(seed)
    # The same draws at every step with equally many runs, so that the band does not jitter.
    picks = {count: rng.integers(count, size=(resamples, count)) for count in range(2, len(curves) + 1)}

    def summarise(values: np.ndarray) -> tuple[float, float, float]:
        estimate = float(interquartile_mean(values))
        if len(values) < fewest:
            return estimate, np.nan, np.nan
        found = _stretched(
            _percentiles(estimate, interquartile_mean(values[picks[len(values)]]), confidence),
            [values],
            confidence,
        )
        return estimate, found.low, found.high

    return _band(steps, rows, summarise)


def range_band(curves: Sequence[Curve], window: int = 1) -> Band:
    """Return the interquartile mean over runs, with the lowest and highest run as bounds.

    For runs that are too few for an interval.
    """
    steps, rows = align([_smoothed(curve, window) for curve in curves])
    return _band(
        steps,
        rows,
        lambda values: (float(interquartile_mean(values)), float(values.min()), float(values.max())),
    )


def _smoothed(curve: Curve, window: int) -> Curve:
    return Curve(curve.steps, moving_average(curve.values, window))


def _mean_and_deviation(values: np.ndarray) -> tuple[float, float, float]:
    centre, spread = float(mean(values)), float(standard_deviation(values))
    return centre, centre - spread, centre + spread


def _band(
    steps: np.ndarray, rows: np.ndarray, summarise: Callable[[np.ndarray], tuple[float, float, float]]
) -> Band:
    present = [column[np.isfinite(column)] for column in rows.T]
    numbers = np.array([summarise(column) if len(column) else (np.nan,) * 3 for column in present])
    return Band(
        steps, numbers[:, 0], numbers[:, 1], numbers[:, 2], np.array([len(column) for column in present])
    )


def _wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, for each row, the share of pairs (i, j) with x_i > y_j; ties count half.

    This is the U statistic of Mann and Whitney, divided by the number of pairs.
    """
    difference = np.sign(x[:, :, None] - y[:, None, :])
    return np.asarray((difference.mean(axis=(1, 2)) + 1.0) / 2.0)


def _resample(rng: np.random.Generator, task: np.ndarray, resamples: int) -> np.ndarray:
    """Draw runs with replacement: [resample, run]."""
    return task[rng.integers(len(task), size=(resamples, len(task)))]


def _percentiles(estimate: float, draws: np.ndarray, confidence: float) -> Interval:
    low, high = np.quantile(draws, _tails(confidence))
    return Interval(estimate, float(low), float(high))


def _stretched(interval: Interval, groups: Scores, confidence: float) -> Interval:
    """Move the bounds of a percentile interval outwards, for the number of runs that were resampled."""
    estimate, low, high = (np.array([number]) for number in (interval.estimate, interval.low, interval.high))
    low, high = _moved_out(estimate, low, high, stretch([len(group) for group in groups], confidence))
    return Interval(interval.estimate, float(low[0]), float(high[0]))


def _moved_out(
    estimate: np.ndarray, low: np.ndarray, high: np.ndarray, factor: float
) -> tuple[np.ndarray, np.ndarray]:
    # If the estimate lies outside of the percentiles, there is nothing to lengthen on that side.
    return estimate - factor * np.maximum(estimate - low, 0.0), estimate + factor * np.maximum(
        high - estimate, 0.0
    )


def _within_shares(interval: Interval) -> Interval:
    """Clip the bounds of a probability to [0, 1]."""
    return Interval(interval.estimate, max(interval.low, 0.0), min(interval.high, 1.0))


def _tails(confidence: float) -> tuple[float, float]:
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence is {confidence}, but it must lie between 0 and 1; 0.95 is usual.")
    return (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0


def _check(scores: Scores) -> None:
    if not scores or any(task.ndim != 1 or len(task) == 0 for task in scores):
        shapes = [task.shape for task in scores]
        raise ConfigError(
            f"Scores have shapes {shapes}, but each task needs a one-dimensional array of at least one run. "
            "Leave out tasks without runs."
        )
    if not all(np.isfinite(task).all() for task in scores):
        raise ConfigError(
            "Some scores are not finite. Count failed runs separately and leave them out of the averages."
        )


def _check_pairs(left: Scores, right: Scores) -> None:
    _check(left)
    _check(right)
    if len(left) != len(right):
        raise ConfigError(
            f"{len(left)} tasks are compared with {len(right)}, but both sides need the same tasks in the "
            "same order."
        )
