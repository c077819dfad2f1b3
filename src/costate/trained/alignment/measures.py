"""Similarity of two descriptions of the same moments.

Cosines compare descriptions with the same coordinates; probes, CCA and CKA those with different ones. Rows
are moments, columns are components. Probes and CCA are fitted on some episodes and tested on others, because
128 hidden units can be fitted to almost anything on the rows that they were fitted to.
"""

from typing import NamedTuple

import numpy as np

Rows = np.ndarray
"""Moments × components."""

# A component counts as constant if its standard deviation is below this share of the largest one. A constant
# has no similarity to anything.
CONSTANT = 1e-9


def cosines(one: Rows, other: Rows) -> np.ndarray:
    """Return the cosine of the angle between each pair of rows; 0 if one of them is zero."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray(
        np.divide((one * other).sum(axis=1), lengths, out=np.zeros(len(one)), where=lengths > 0.0)
    )


class Scaling(NamedTuple):
    """Mean and standard deviation of every component."""

    mean: np.ndarray
    deviation: np.ndarray

    def apply(self, rows: Rows) -> Rows:
        return np.asarray((rows - self.mean) / self.deviation)


def scaling_of(rows: Rows) -> Scaling:
    """Return the scaling that standardises every component. Constant ones are not scaled."""
    deviation = rows.std(axis=0)
    constant = deviation <= CONSTANT * max(float(deviation.max(initial=0.0)), np.finfo(float).tiny)
    return Scaling(rows.mean(axis=0), np.where(constant, 1.0, deviation))


class Probe(NamedTuple):
    """A linear map from one description to another."""

    inputs: Scaling
    outputs: Scaling
    weights: Rows

    def predict(self, rows: Rows) -> Rows:
        return np.asarray(self.inputs.apply(rows) @ self.weights * self.outputs.deviation + self.outputs.mean)


PENALTIES = tuple(10.0**power for power in range(-6, 3))


def ridge(source: Rows, target: Rows, penalty: float) -> Probe:
    """Fit a linear map in standardised components by ridge regression.

    The penalty on squared weights is ``penalty`` × (number of rows).
    """
    inputs, outputs = scaling_of(source), scaling_of(target)
    x, y = inputs.apply(source), outputs.apply(target)
    gram = x.T @ x + penalty * len(x) * np.eye(x.shape[1])
    return Probe(inputs, outputs, np.linalg.solve(gram, x.T @ y))


def r_squared(truth: Rows, prediction: Rows, baseline: np.ndarray) -> float:
    """Return R²: the share of the squared deviations from ``baseline`` that a prediction explains.

    Each component counts in units of its own standard deviation. R² is negative for a prediction that is
    worse than ``baseline``. A probe must know its baseline beforehand: the mean of the rows that it was
    fitted to.
    """
    scale = scaling_of(truth).deviation
    missed = np.square((truth - prediction) / scale).sum()
    total = np.square((truth - baseline) / scale).sum()
    return float(1.0 - missed / total) if total > 0.0 else float("nan")


def fit_probe(source: Rows, target: Rows, episode: np.ndarray) -> Probe:
    """Fit a linear probe, with the penalty that does best on the last third of the episodes."""
    numbers = np.unique(episode)
    validation = np.isin(episode, numbers[-max(1, len(numbers) // 3) :])
    fitting = ~validation if len(numbers) > 1 else validation
    best = max(
        PENALTIES,
        key=lambda penalty: _r2(
            ridge(source[fitting], target[fitting], penalty), source[validation], target[validation]
        ),
    )
    return ridge(source, target, best)


def probe_r2(source: Rows, target: Rows, episode: np.ndarray, held_out: np.ndarray) -> float:
    """Return the R² of a linear probe on the episodes in ``held_out``, fitted on all others."""
    tested = np.isin(episode, held_out)
    probe = fit_probe(source[~tested], target[~tested], episode[~tested])
    return _r2(probe, source[tested], target[tested])


def _r2(probe: Probe, source: Rows, target: Rows) -> float:
    return r_squared(target, probe.predict(source), probe.outputs.mean)


def canonical_correlations(
    source: Rows, target: Rows, fitting: np.ndarray, tested: np.ndarray, penalty: float = 1e-3
) -> np.ndarray:
    """Return the canonical correlations on the tested rows.

    They are the correlations of those pairs of directions that correlate most on the fitting rows. Both
    covariances get ``penalty`` of their mean variance on the diagonal, so that directions without variance
    are not amplified.
    """
    left, right = scaling_of(source[fitting]), scaling_of(target[fitting])
    x, y = left.apply(source[fitting]), right.apply(target[fitting])
    to_left, to_right = _whitening(x, penalty), _whitening(y, penalty)
    u, _, v = np.linalg.svd(to_left.T @ (x.T @ y / len(x)) @ to_right, full_matrices=False)
    a, b = left.apply(source[tested]) @ to_left @ u, right.apply(target[tested]) @ to_right @ v.T
    return np.array([_correlation(a[:, i], b[:, i]) for i in range(a.shape[1])])


def _whitening(rows: Rows, penalty: float) -> Rows:
    """Return W with Wᵀ (C + penalty) W = 1 for the covariance C of the rows."""
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
    """Return the centred kernel alignment with linear kernels (Kornblith et al. 2019).

    It is 1 for rotated and scaled copies, and 0 for uncorrelated descriptions. Components are standardised
    first, because physical ones have units.
    """
    x, y = scaling_of(one).apply(one), scaling_of(other).apply(other)
    length = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return float(np.square(np.linalg.norm(x.T @ y)) / length) if length > 0.0 else float("nan")


def shuffled_in_time(rows: Rows, episode: np.ndarray, rng: np.random.Generator) -> Rows:
    """Shuffle the rows of every episode, which keeps only the similarity that does not depend on time."""
    mixed = np.empty_like(rows)
    for number in np.unique(episode):
        places = np.flatnonzero(episode == number)
        mixed[places] = rows[rng.permutation(places)]
    return mixed
