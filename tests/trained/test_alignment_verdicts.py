"""Sentences on a comparison with made-up numbers, whose right verdicts are known."""

import math

import numpy as np
import pytest

from costate.trained.alignment.comparison import (
    MEMORY,
    OBSERVATION,
    SHUFFLED,
    STATE,
    UNTRAINED,
    Comparison,
    Gap,
    Likeness,
)
from costate.trained.alignment.knockout import NEVER, summarise
from costate.trained.alignment.verdicts import knockout_verdict, verdicts


def likeness(memory, untrained, shuffled=0.1, observation=0.1, state=0.1):
    """The same number for all three measures of each source."""
    numbers = {
        MEMORY: memory,
        UNTRAINED: untrained,
        SHUFFLED: shuffled,
        OBSERVATION: observation,
        STATE: state,
    }
    return {name: Likeness(number, number, number) for name, number in numbers.items()}


def cosines(memory, untrained=0.0, shuffled=0.0):
    return {MEMORY: memory, UNTRAINED: untrained, SHUFFLED: shuffled}


def compared(critic=None, implied=None, by_kind=None, gaps=None):
    counts = {"episodes": 6, "held_out": 2, "moments": 1200}
    return Comparison(critic or cosines(0.8), implied or {}, by_kind or {}, gaps or {}, **counts)


def test_an_untrained_memory_that_beats_the_trained_one_is_said_to() -> None:
    numbers = likeness(0.69, 0.75, shuffled=0.30, observation=0.47, state=0.90)
    said = verdicts(compared(by_kind={"closed loop": numbers}))
    assert said[1:] == [
        f"{measure}, closed loop: above the memory at shuffled times and the observation; "
        "below an untrained memory and the true state. An untrained memory does better."
        for measure in ("probe R²", "CCA", "CKA")
    ]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        # The paper's loss at its best: in time, and by training.
        (
            (0.80, 0.02, 0.30),
            "above an untrained memory and the memory at shuffled times. It comes from training and "
            "follows the moment.",
        ),
        # Most of the runs of docs/alignment.md: a constant direction.
        (
            (0.64, 0.00, 0.61),
            "above an untrained memory; level with the memory at shuffled times. It does not follow the "
            "moment.",
        ),
        (
            (0.06, 0.03, 0.07),
            "level with an untrained memory and the memory at shuffled times. It does not come from "
            "training.",
        ),
        # A difference of 0.2 between two that point away is not worth a word of praise.
        (
            (-0.1, -0.3, -0.1),
            "above an untrained memory; level with the memory at shuffled times. There is no similarity.",
        ),
        ((math.nan, 0.0, 0.0), "NaN, so there is no verdict."),
        (
            (0.8, math.nan, 0.0),
            "above the memory at shuffled times; an untrained memory is NaN. Training cannot be judged.",
        ),
    ],
)
def test_a_cosine_is_judged_by_its_controls(numbers, said) -> None:
    assert verdicts(compared(critic=cosines(*numbers))) == [f"cos(h, ∂V/∂ỹ): {said}"]


def test_kinds_of_which_the_same_is_said_share_a_sentence() -> None:
    implied = {
        "closed loop": cosines(0.5),
        "open loop": cosines(0.6),
        "best, at the state": cosines(0.0, 0.2),
        "best, at the estimate": cosines(0.01, 0.3),
    }
    said = verdicts(compared(implied=implied))
    assert len(said) == 3
    assert said[1].startswith("cos((∂ỹ/∂x)ᵀh, −λ), closed loop; open loop: above an untrained memory and")
    assert said[2] == (
        "cos((∂ỹ/∂x)ᵀh, −λ), best, at the state; best, at the estimate: level with the memory at "
        "shuffled times; below an untrained memory. An untrained memory does better."
    )


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (Gap(0.37, 0.50), "minimise H better than"),
        (Gap(0.498, 0.50), "minimise H no better than"),
        (Gap(0.62, 0.50), "minimise H worse than"),
    ],
)
def test_a_gap_is_judged_by_the_same_controls_at_other_times(gap, said) -> None:
    found = verdicts(compared(gaps={"closed loop": gap, "open loop": Gap(math.nan, math.nan)}))
    assert found[-2:] == [
        f"Hamiltonian gap, closed loop: the controls {said} the same ones at other times.",
        "Hamiltonian gap, open loop: NaN, so there is no verdict.",
    ]


def test_what_erasing_the_memory_does_is_told_from_the_scatter_of_episodes() -> None:
    """Standard errors by hand: of 100 ± 10 in 4 episodes it is 10/√4 = 5, of a difference of two such 7.1."""
    spread = 10.0 * np.array([-1.0, -1.0, 1.0, 1.0]) * np.sqrt(3.0) / 2.0
    returns = {1: 20.0 + spread, 2: 120.0 + spread, 4: 90.0 + spread, NEVER: 100.0 + spread}
    found = summarise(returns)
    assert found.intact == pytest.approx(100.0)
    assert found.means == pytest.approx({1: 20.0, 2: 120.0, 4: 90.0})
    assert found.errors == pytest.approx({1: np.sqrt(50.0), 2: np.sqrt(50.0), 4: np.sqrt(50.0)})
    said = knockout_verdict(found)
    assert said == (
        "mean return with h erased: lower every 1 step, higher every 2 steps, not significantly different "
        "every 4 steps (two standard errors). The policy needs its memory."
    )


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (
            5.0,
            "not significantly different every 1 step (two standard errors). The policy does without its "
            "memory.",
        ),
        (
            9.0,
            "higher every 1 step (two standard errors). The policy would do better without.",
        ),
    ],
)
def test_a_memory_that_is_not_needed_is_said_to(without, said) -> None:
    found = summarise({1: np.full(4, without), NEVER: np.full(4, 5.0)})
    assert knockout_verdict(found) == f"mean return with h erased: {said}"
