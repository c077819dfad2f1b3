"""How far the hidden state is the co-state, in numbers, each beside what chance, an untrained network or the present observation would give."""

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
    """Of a description to a co-state; all three are judged on episodes that nothing was fitted to, except that CKA fits nothing."""

    probe_r2: float
    cca: float
    """Mean of the canonical correlations."""
    cka: float


class Gap(NamedTuple):
    """How far controls are from minimising the Hamiltonian within their bounds, to first order: 0 is the minimiser, 1 the maximiser."""

    policy: float
    shuffled: float
    """The same controls at other times: what the gap would be if they had nothing to do with the moment."""


class Comparison(NamedTuple):
    """All that is compared."""

    critic_cosine: dict[str, float]
    """cos(h, ∂V/∂ỹ), what the co-state loss trains, under the name of what stands for h."""
    implied_cosine: dict[str, dict[str, float]]
    """cos((∂ỹ/∂x)ᵀh, −λ) in physical coordinates, by kind of co-state and by what stands for h."""
    likeness: dict[str, dict[str, Likeness]]
    """By kind of co-state and by what it is told from."""
    gaps: dict[str, Gap]
    """By the kind of co-state in the Hamiltonian."""
    episodes: int
    held_out: int
    moments: int


def compare(episodes: Sequence[Moments], seed: int = 0) -> Comparison:
    """Everything, over several episodes of one policy; the last third of them is held out."""
    if len(episodes) < 2:
        raise ConfigError(
            f"{len(episodes)} episode is to be compared, but at least 2 are needed: one to fit to, one to judge on. The default is 6."
        )
    rng = np.random.default_rng(seed)
    number = np.repeat(np.arange(len(episodes)), [len(each.hiddens) for each in episodes])
    held_out = np.arange(len(episodes))[-max(1, len(episodes) // 3) :]
    hiddens, untrained = (_stack(episodes, pick) for pick in (lambda e: e.hiddens, lambda e: e.untrained))
    compared = _stack(episodes, lambda e: e.compared)
    # In one order, so that both are the memory of the same moments.
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
    """Of one description to one co-state."""
    judged = np.isin(number, held_out)
    correlations = canonical_correlations(source, target, ~judged, judged)
    return Likeness(
        probe_r2(source, target, number, held_out),
        float(correlations.mean()),
        linear_cka(source[judged], target[judged]),
    )


def implied_cosines(
    episodes: Sequence[Moments], target: Rows, number: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """cos((∂ỹ/∂x)ᵀh, −λ), each component in units of the true one's size, so that none counts more because of its physical unit."""
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
    """(uᵀs − min) / (max − min) for the slopes s of the Hamiltonian by the control, over all u within the bounds; summed before dividing, so that
    moments at which the control hardly matters hardly count.
    """
    slopes, controls = _stack(episodes, lambda e: e.slopes[kind]), _stack(episodes, lambda e: e.controls)
    low, high = episodes[0].low, episodes[0].high
    best, worst = (
        (np.where(slopes > 0.0, low, high) * slopes).sum(),
        (np.where(slopes > 0.0, high, low) * slopes).sum(),
    )
    place = lambda rows: (  # noqa: E731
        float(((rows * slopes).sum() - best) / (worst - best)) if worst > best else float("nan")
    )
    return Gap(place(controls), place(controls[rng.permutation(len(controls))]))


def _stack(episodes: Sequence[Moments], pick: Callable[[Moments], Rows]) -> Rows:
    return np.concatenate([pick(each) for each in episodes])
