"""Measure how similar the hidden state is to the co-state.

Every measure stands beside that of controls: chance, an untrained network and the observation.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costate._base.errors import ConfigError
from costate.trained.alignment.measures import (
    Rows,
    canonical_correlations,
    cosines,
    linear_cka,
    probe_r2,
    shuffled_in_time,
)
from costate.trained.alignment.moments import Moments

MEMORY = "memory"
UNTRAINED = "untrained memory"
SHUFFLED = "memory, shuffled in time"
OBSERVATION = "observation"
STATE = "true state"
CRITIC = "critic"
"""The critic's own ∂V/∂ỹ."""


class Likeness(NamedTuple):
    """Similarity of a source, such as the memory, to a co-state, on held-out episodes.

    CKA needs no fitting.
    """

    probe_r2: float
    cca: float
    """Mean of the canonical correlations."""
    cka: float


class Gap(NamedTuple):
    """First-order gap of controls to the minimum of the Hamiltonian: 0 is the minimiser, 1 the maximiser."""

    policy: float
    shuffled: float
    """The gap of the same controls at shuffled times, which do not depend on the moment."""


class Comparison(NamedTuple):
    """All measures of similarity between memory and co-state."""

    critic_cosine: dict[str, float]
    """cos(h, ∂V/∂ỹ), which the co-state loss trains, by what stands for h."""
    implied_cosine: dict[str, dict[str, float]]
    """cos((∂ỹ/∂x)ᵀh, −λ) in physical coordinates, by kind of co-state and by what stands for h."""
    likeness: dict[str, dict[str, Likeness]]
    """By kind of co-state, then by the source that it is predicted from."""
    gaps: dict[str, Gap]
    """By the kind of co-state in the Hamiltonian."""
    episodes: int
    held_out: int
    moments: int


def compare(episodes: Sequence[Moments], seed: int = 0) -> Comparison:
    """Compare several episodes of one policy; the last third of them is held out."""
    if len(episodes) < 2:
        raise ConfigError(
            f"{len(episodes)} episode is to be compared, but at least 2 are needed: one to fit to, one to "
            "test on. The default is 6."
        )
    rng = np.random.default_rng(seed)
    number = np.repeat(np.arange(len(episodes)), [len(each.hiddens) for each in episodes])
    held_out = np.arange(len(episodes))[-max(1, len(episodes) // 3) :]
    hiddens, untrained = (_stack(episodes, pick) for pick in (lambda e: e.hiddens, lambda e: e.untrained))
    compared = _stack(episodes, lambda e: e.compared)
    # Shuffled in the same order, so that both are the memory of the same moments.
    shuffled, compared_shuffled = np.split(
        shuffled_in_time(np.hstack([hiddens, compared]), number, rng), [hiddens.shape[1]], axis=1
    )
    stand_ins = {
        MEMORY: compared,
        UNTRAINED: _stack(episodes, lambda e: e.compared_untrained),
        SHUFFLED: compared_shuffled,
    }
    sources = {
        MEMORY: hiddens,
        UNTRAINED: untrained,
        SHUFFLED: shuffled,
        OBSERVATION: _stack(episodes, lambda e: e.observations),
        STATE: _stack(episodes, lambda e: e.states),
    }
    targets = {
        kind: np.concatenate([each.gradients[kind] for each in episodes]) for kind in episodes[0].gradients
    }
    critic = _stack(episodes, lambda e: e.critic)
    return Comparison(
        critic_cosine={name: float(cosines(rows, critic).mean()) for name, rows in stand_ins.items()},
        implied_cosine={
            kind: implied_cosines(episodes, target, number, rng) for kind, target in targets.items()
        },
        likeness={
            kind: {name: likeness(source, target, number, held_out) for name, source in sources.items()}
            for kind, target in {**targets, CRITIC: critic}.items()
        },
        gaps={kind: hamiltonian_gap(episodes, kind, rng) for kind in episodes[0].slopes},
        episodes=len(episodes),
        held_out=len(held_out),
        moments=len(number),
    )


def likeness(source: Rows, target: Rows, number: np.ndarray, held_out: np.ndarray) -> Likeness:
    """Measure the similarity of one source to one co-state."""
    tested = np.isin(number, held_out)
    correlations = canonical_correlations(source, target, ~tested, tested)
    return Likeness(
        probe_r2(source, target, number, held_out),
        float(correlations.mean()),
        linear_cka(source[tested], target[tested]),
    )


def implied_cosines(
    episodes: Sequence[Moments], target: Rows, number: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Return the mean of cos((∂ỹ/∂x)ᵀh, −λ).

    Each component is divided by the true one's root mean square, so that no physical unit outweighs another.
    """
    size = np.sqrt(np.square(target).mean(axis=0))
    unit = np.where(size > 0.0, size, 1.0)
    implied = _stack(episodes, lambda e: e.implied) / unit
    scaled = target / unit
    stand_ins = {
        MEMORY: implied,
        UNTRAINED: _stack(episodes, lambda e: e.implied_untrained) / unit,
        SHUFFLED: shuffled_in_time(implied, number, rng),
    }
    return {name: float(cosines(rows, scaled).mean()) for name, rows in stand_ins.items()}


def hamiltonian_gap(episodes: Sequence[Moments], kind: str, rng: np.random.Generator) -> Gap:
    """Return (uᵀs − min) / (max − min) over all u within the bounds, for the slopes s = ∂H/∂u.

    Sums are taken before dividing, so that moments at which the control hardly matters hardly count.
    """
    slopes, controls = _stack(episodes, lambda e: e.slopes[kind]), _stack(episodes, lambda e: e.controls)
    low, high = episodes[0].low, episodes[0].high
    best, worst = (
        (np.where(slopes > 0.0, low, high) * slopes).sum(),
        (np.where(slopes > 0.0, high, low) * slopes).sum(),
    )
    normalised = lambda rows: (  # noqa: E731
        float(((rows * slopes).sum() - best) / (worst - best)) if worst > best else float("nan")
    )
    return Gap(normalised(controls), normalised(controls[rng.permutation(len(controls))]))


def _stack(episodes: Sequence[Moments], pick: Callable[[Moments], Rows]) -> Rows:
    return np.concatenate([pick(each) for each in episodes])
