"""Likeness of two descriptions of the same moments: cosines where both have the same coordinates, probes, CCA and CKA where they do not.

Rows are moments, columns components. What is fitted is fitted on some episodes and judged on others, because 128 hidden units can be bent to
almost anything on the rows that they were fitted to.
"""

from typing import NamedTuple

import numpy as np

Rows = np.ndarray
"""Moments × components."""

# A component that never moves has no likeness to anything; below this share of the largest deviation it counts as one.
STILL = 1e-9


def cosines(one: Rows, other: Rows) -> np.ndarray:
    """cos of the angle between each pair of rows; 0 where one of them is zero, because nothing points nowhere."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray(
        np.divide((one * other).sum(axis=1), lengths, out=np.zeros(len(one)), where=lengths > 0.0)
    )


class Scaling(NamedTuple):
    """Mean and deviation of every component."""

    mean: np.ndarray
    deviation: np.ndarray

    def apply(self, rows: Rows) -> Rows:
        return np.asarray((rows - self.mean) / self.deviation)


def scaling_of(rows: Rows) -> Scaling:
    """Makes components comparable whatever their units; one that never moves is left as it is."""
    deviation = rows.std(axis=0)
    still = deviation <= STILL * max(float(deviation.max(initial=0.0)), np.finfo(float).tiny)
    return Scaling(rows.mean(axis=0), np.where(still, 1.0, deviation))


class Probe(NamedTuple):
    """A linear map from one description to the other."""

    inputs: Scaling
    outputs: Scaling
    weights: Rows

    def predict(self, rows: Rows) -> Rows:
        return np.asarray(self.inputs.apply(rows) @ self.weights * self.outputs.deviation + self.outputs.mean)


PENALTIES = tuple(10.0**power for power in range(-6, 3))


def ridge(source: Rows, target: Rows, penalty: float) -> Probe:
    """The linear map of least squares with ``penalty`` × (number of rows) on its squared weights, in standardised components."""
    inputs, outputs = scaling_of(source), scaling_of(target)
    x, y = inputs.apply(source), outputs.apply(target)
    gram = x.T @ x + penalty * len(x) * np.eye(x.shape[1])
    return Probe(inputs, outputs, np.linalg.solve(gram, x.T @ y))


def explained(truth: Rows, guess: Rows, around: np.ndarray) -> float:
    """R²: share of the squared deviations from ``around`` that a guess accounts for, each component in units of its own deviation.

    It is negative for a guess that is worse than ``around``, which a probe must know beforehand: the mean of what it was fitted to.
    """
    scale = scaling_of(truth).deviation
    missed, total = np.square((truth - guess) / scale).sum(), np.square((truth - around) / scale).sum()
    return float(1.0 - missed / total) if total > 0.0 else float("nan")


def fit_probe(source: Rows, target: Rows, episode: np.ndarray) -> Probe:
    """A linear probe whose penalty is the one that does best on the last third of the episodes, when it is fitted to the others."""
    numbers = np.unique(episode)
    inner = np.isin(episode, numbers[-max(1, len(numbers) // 3) :])
    fitting = ~inner if len(numbers) > 1 else inner
    best = max(
        PENALTIES,
        key=lambda penalty: _r2(
            ridge(source[fitting], target[fitting], penalty), source[inner], target[inner]
        ),
    )
    return ridge(source, target, best)


def probe_r2(source: Rows, target: Rows, episode: np.ndarray, held_out: np.ndarray) -> float:
    """R² of a linear probe on episodes that it has not seen, ``held_out`` of all ``episode`` numbers."""
    judged = np.isin(episode, held_out)
    return _r2(fit_probe(source[~judged], target[~judged], episode[~judged]), source[judged], target[judged])


def _r2(probe: Probe, source: Rows, target: Rows) -> float:
    return explained(target, probe.predict(source), probe.outputs.mean)


def canonical_correlations(
    source: Rows, target: Rows, fitting: np.ndarray, judged: np.ndarray, penalty: float = 1e-3
) -> np.ndarray:
    """Correlations, on the judged rows, of the pairs of directions that correlate most on the fitting rows (canonical correlation analysis).

    Both covariances are taken with ``penalty`` of their mean variance on the diagonal, so that directions of no variance are not blown up.
    """
    left, right = scaling_of(source[fitting]), scaling_of(target[fitting])
    x, y = left.apply(source[fitting]), right.apply(target[fitting])
    to_left, to_right = _whitening(x, penalty), _whitening(y, penalty)
    u, _, v = np.linalg.svd(to_left.T @ (x.T @ y / len(x)) @ to_right, full_matrices=False)
    a, b = left.apply(source[judged]) @ to_left @ u, right.apply(target[judged]) @ to_right @ v.T
    return np.array([_correlation(a[:, i], b[:, i]) for i in range(a.shape[1])])


def _whitening(rows: Rows, penalty: float) -> Rows:
    """W with Wᵀ (C + penalty) W = 1 for the covariance C of the rows."""
    covariance = rows.T @ rows / len(rows)
    values, vectors = np.linalg.eigh(
        covariance + penalty * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    )
    return np.asarray(vectors / np.sqrt(values))


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    one, other = one - one.mean(), other - other.mean()
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other / length) if length > 0.0 else 0.0


def linear_cka(one: Rows, other: Rows) -> float:
    """Centred kernel alignment with linear kernels (Kornblith et al. 2019): 1 for rotated and scaled copies, 0 for what is uncorrelated.

    Components are standardised first, because physical ones have units.
    """
    x, y = scaling_of(one).apply(one), scaling_of(other).apply(other)
    length = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return float(np.square(np.linalg.norm(x.T @ y)) / length) if length > 0.0 else float("nan")


def shuffled_in_time(rows: Rows, episode: np.ndarray, rng: np.random.Generator) -> Rows:
    """Every episode's rows in another order: all that remains of a likeness is what does not depend on when."""
    mixed = np.empty_like(rows)
    for number in np.unique(episode):
        places = np.flatnonzero(episode == number)
        mixed[places] = rows[rng.permutation(places)]
    return mixed
