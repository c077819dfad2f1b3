"""Derivatives by differences to both sides of a point, with smaller steps where the two sides disagree.

Simulators and rewards have kinks (a contact begins, a reward starts to rise at speed 0) and jumps. If one
lies within a difference step of a point, the derivative is that of the piece that contains the point, and a
step short enough not to reach the kink finds it. If a kink is so near that rounding forbids a shorter step,
no derivative can be found.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costate._base.types import Float

# Both sides agree if they differ by less than this share of the slopes beside them. With steps of 1e-7,
# curvature alone was seen to reach 4e-4.
AGREE = 1e-3
# Slopes whose relative difference exceeds this lie on two sides of a jump, or of a sharp kink.
JUMP = 0.1
# Relative rounding error of the values that are differenced. Values below 1 count as 1, because they are
# often differences of larger ones.
ROUNDING = 2e-15

OneSided = Callable[[float, np.ndarray], Float[np.ndarray, "R C"]]
"""Returns (f(x + step e_j) − f(x)) / step for directions j, given as indices.

A negative step is the other side.
"""


class Slopes(NamedTuple):
    """Two versions of the derivatives by every direction, as columns.

    Their difference measures their reliability.
    """

    best: Float[np.ndarray, "R N"]
    """Central differences. Where a jump could not be avoided, the side without it."""
    other: Float[np.ndarray, "R N"]
    """One-sided differences. Where a jump could not be avoided, the side with it."""


def agreed_slopes(
    one_sided: OneSided, directions: int, steps: Sequence[float], values: Float[np.ndarray, " R"]
) -> Slopes:
    """Return each column at the first of the ``steps`` at which both sides agree, or at the best step.

    ``values`` are f(x): larger values have larger rounding errors.
    """
    rounding = ROUNDING * np.maximum(np.abs(values), 1.0)[:, None]
    unsettled = np.arange(directions)
    forward, backward = one_sided(steps[0], unsettled), one_sided(-steps[0], unsettled)
    scale = _scale(forward, backward)
    gap = _gap(forward, backward, scale, rounding / steps[0])
    for step in steps[1:]:
        unsettled = np.flatnonzero(gap > AGREE)
        if len(unsettled) == 0:
            break
        ahead, behind = one_sided(step, unsettled), one_sided(-step, unsettled)
        smaller = _gap(ahead, behind, scale[:, unsettled], rounding / step)
        better = smaller < gap[unsettled]
        chosen = unsettled[better]
        forward[:, chosen], backward[:, chosen], gap[chosen] = (
            ahead[:, better],
            behind[:, better],
            smaller[better],
        )
    best = smooth_slopes(forward, backward)
    return Slopes(best, np.where(best == forward, backward, forward))


def smooth_slopes(
    forward: Float[np.ndarray, "R N"], backward: Float[np.ndarray, "R N"]
) -> Float[np.ndarray, "R N"]:
    """Return central differences from one-sided ones, or one side where a jump makes the other large.

    A contact that begins at the present state is such a jump, and so is the edge of a sparse reward.
    """
    ahead, behind = np.abs(forward).max(axis=0), np.abs(backward).max(axis=0)
    jumps = np.abs(forward - backward).max(axis=0) > JUMP * (1.0 + np.minimum(ahead, behind))
    return np.where(jumps, np.where(ahead < behind, forward, backward), 0.5 * (forward + backward))


def _scale(forward: Float[np.ndarray, "R N"], backward: Float[np.ndarray, "R N"]) -> Float[np.ndarray, "R N"]:
    """Return the reference size of a slope: the largest of its row or of its column, whichever is smaller.

    A kink in a small reward is then as visible as one in a stiff contact. A jump makes only one side large,
    and the other side counts.
    """
    size = np.minimum(np.abs(forward), np.abs(backward))
    return np.asarray(np.minimum(size.max(axis=1, keepdims=True), 1.0 + size.max(axis=0, keepdims=True)))


def _gap(
    forward: Float[np.ndarray, "R C"],
    backward: Float[np.ndarray, "R C"],
    scale: Float[np.ndarray, "R C"],
    rounding: Float[np.ndarray, "R 1"],
) -> Float[np.ndarray, " C"]:
    """Return the largest difference between the two sides of each column, in units of its scale.

    Differences that rounding explains count as agreement.
    """
    return np.asarray((np.abs(forward - backward) / (scale + rounding / AGREE)).max(axis=0))
