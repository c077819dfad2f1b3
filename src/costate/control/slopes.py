"""Derivatives from differences to either side of a point: where the two sides disagree, from a smaller step.

Simulators and rewards have kinks (a contact that begins, a reward that starts to rise at speed 0) and jumps. If one lies between a point and the
ends of its differences, the derivative is that of the piece that the point is on, and a step that does not reach the kink finds it. A point that
is nearer to a kink than rounding allows any step to be has no derivative that could be found.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costate._base.types import Float

# Both sides agree if they differ by less than this share of the slopes beside them. With steps of 1e-7, curvature alone was seen to reach 4e-4.
AGREE = 1e-3
# Slopes that differ by more than this share of themselves lie on the two sides of a jump, or of a sharp kink.
JUMP = 0.1
# Rounding of what is differenced, as a share of it; of values below 1, of 1, because they are often differences of larger ones.
ROUNDING = 2e-15

OneSided = Callable[[float, np.ndarray], Float[np.ndarray, "R C"]]
"""(f(x + step e_j) − f(x)) / step for some directions j, given as indices; a negative step is to the other side."""


class Slopes(NamedTuple):
    """Derivatives by every direction, as columns, in two versions. How far they differ says how far they are to be trusted."""

    best: Float[np.ndarray, "R N"]
    """Central differences; where a jump could not be avoided, the side that has none."""
    other: Float[np.ndarray, "R N"]
    """Of one side; where a jump could not be avoided, of the side that has it."""


def agreed_slopes(
    one_sided: OneSided, directions: int, steps: Sequence[float], values: Float[np.ndarray, " R"]
) -> Slopes:
    """Each column with the first of the ``steps`` at which both sides agree, or else with that at which they disagree least.

    ``values`` are f(x): larger ones are rounded more coarsely.
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
    """Central differences from one-sided ones; where a jump lies between the two sides of a point, the side that has none.

    A contact that begins where the robot stands is such a jump, and so is the edge of a sparse reward.
    """
    ahead, behind = np.abs(forward).max(axis=0), np.abs(backward).max(axis=0)
    jumps = np.abs(forward - backward).max(axis=0) > JUMP * (1.0 + np.minimum(ahead, behind))
    return np.where(jumps, np.where(ahead < behind, forward, backward), 0.5 * (forward + backward))


def _scale(forward: Float[np.ndarray, "R N"], backward: Float[np.ndarray, "R N"]) -> Float[np.ndarray, "R N"]:
    """What a slope is large or small beside: the largest one of its row or of its column, whichever is smaller.

    A kink in a small reward is then as visible as one in a stiff contact. A jump makes only one side large, and the other one counts.
    """
    size = np.minimum(np.abs(forward), np.abs(backward))
    return np.asarray(np.minimum(size.max(axis=1, keepdims=True), 1.0 + size.max(axis=0, keepdims=True)))


def _gap(
    forward: Float[np.ndarray, "R C"],
    backward: Float[np.ndarray, "R C"],
    scale: Float[np.ndarray, "R C"],
    rounding: Float[np.ndarray, "R 1"],
) -> Float[np.ndarray, " C"]:
    """By how much the two sides of each column differ at most, in units of its scale; what rounding explains counts as agreed."""
    return np.asarray((np.abs(forward - backward) / (scale + rounding / AGREE)).max(axis=0))
