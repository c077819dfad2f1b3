"""Put the numbers of a comparison into words: a sentence for each measure, compared with its controls."""

import math
from collections.abc import Mapping, Sequence

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
from costate.trained.alignment.knockout import Knockout

# Smaller differences of cosines, correlations, R² and gaps are not significant for six episodes of one
# policy.
MARGIN = 0.05
# Mean returns differ significantly beyond this many standard errors.
ERRORS = 2.0
NOUNS = {
    UNTRAINED: "an untrained memory",
    SHUFFLED: "the memory at shuffled times",
    OBSERVATION: "the observation",
    STATE: "the true state",
}
MEASURES = {"probe_r2": "probe R²", "cca": "CCA", "cka": "CKA"}
NOTHING = "NaN, so there is no verdict."


def verdicts(comparison: Comparison) -> list[str]:
    """Return a sentence for each measure of a comparison; co-states with the same verdict share one."""
    said = [f"cos(h, ∂V/∂ỹ): {_beside_controls(comparison.critic_cosine)}"]
    implied = {kind: _beside_controls(by) for kind, by in comparison.implied_cosine.items()}
    said += _shared("cos((∂ỹ/∂x)ᵀh, −λ)", implied)
    for field, measure in MEASURES.items():
        likeness = {kind: _numbers(by, field) for kind, by in comparison.likeness.items()}
        said += _shared(measure, {kind: _beside_controls(numbers) for kind, numbers in likeness.items()})
    return said + _shared("Hamiltonian gap", {kind: _of_gap(gap) for kind, gap in comparison.gaps.items()})


def knockout_verdict(found: Knockout) -> str:
    """Return a sentence on how erasing the memory changes the mean return."""
    gains = {every: mean - found.intact for every, mean in found.means.items()}
    lower = [every for every, gain in gains.items() if gain < -ERRORS * found.errors[every]]
    higher = [every for every, gain in gains.items() if gain > ERRORS * found.errors[every]]
    same = [every for every in gains if every not in lower + higher]
    groups = {"lower": lower, "higher": higher, "not significantly different": same}
    parts = [f"{word} every {_steps(periods)}" for word, periods in groups.items() if periods]
    need = "needs its memory" if lower else "would do better without" if higher else "does without its memory"
    return f"mean return with h erased: {', '.join(parts)} (two standard errors). The policy {need}."


def _steps(periods: Sequence[int]) -> str:
    return f"{_listed([str(every) for every in periods])} {'step' if periods == [1] else 'steps'}"


def _numbers(by: Mapping[str, Likeness], field: str) -> dict[str, float]:
    return {name: getattr(each, field) for name, each in by.items()}


def _beside_controls(numbers: Mapping[str, float]) -> str:
    """Compare the memory's number with those of its controls."""
    memory, controls = numbers[MEMORY], {name: number for name, number in numbers.items() if name != MEMORY}
    if not math.isfinite(memory):
        return NOTHING
    above = [name for name, number in controls.items() if memory > number + MARGIN]
    below = [name for name, number in controls.items() if memory < number - MARGIN]
    unknown = [name for name, number in controls.items() if not math.isfinite(number)]
    level = [name for name in controls if name not in above + below + unknown]
    places = (("above", above), ("level with", level), ("below", below))
    parts = [f"{place} {_nouns(names)}" for place, names in places if names]
    parts += [f"{_nouns(unknown)} {'is' if len(unknown) == 1 else 'are'} NaN"] if unknown else []
    return f"{'; '.join(parts)}. {_conclusion(memory, above, below, unknown)}"


def _conclusion(memory: float, above: Sequence[str], below: Sequence[str], unknown: Sequence[str]) -> str:
    if UNTRAINED in unknown:
        return "Training cannot be judged."
    if UNTRAINED in below:
        return "An untrained memory does better."
    if UNTRAINED not in above:
        return "It does not come from training."
    if memory <= MARGIN:
        return "There is no similarity."
    if SHUFFLED not in above:
        return "It does not follow the moment."
    return "It comes from training and follows the moment."


def _of_gap(gap: Gap) -> str:
    """Put a gap into words: 0 is the minimiser, so smaller is better."""
    if not math.isfinite(gap.policy) or not math.isfinite(gap.shuffled):
        return NOTHING
    gain = gap.shuffled - gap.policy
    better = "better" if gain > MARGIN else "worse" if gain < -MARGIN else "no better"
    return f"the controls minimise H {better} than the same ones at other times."


def _shared(measure: str, by_kind: Mapping[str, str]) -> list[str]:
    """Return one sentence for all kinds of co-state with the same verdict."""
    kinds: dict[str, list[str]] = {}
    for kind, said in by_kind.items():
        kinds.setdefault(said, []).append(kind)
    # Separated by semicolons, because some names contain commas.
    return [f"{measure}, {'; '.join(some)}: {said}" for said, some in kinds.items()]


def _nouns(names: Sequence[str]) -> str:
    return _listed([NOUNS[name] for name in names])


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
