"""Print the table of docs/alignment.md: `costate align` results in groups of runs.

Numbers are means over seeds with 95 % intervals of Student's t.

    python benchmarks/alignment_table.py GRU=runs/LQR/gru NC-GRU=runs/LQR/nc-gru
"""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats

from costate.trained.alignment.comparison import CRITIC, MEMORY, OBSERVATION, SHUFFLED, STATE, UNTRAINED
from costate.trained.alignment.result import read_alignment

Found = dict[str, Any]
CONFIDENCE = 0.95


def rows(example: Found) -> list[tuple[str, Callable[[Found], float], int]]:
    """Return the labels of the quantities, how to read them, and their decimals."""
    lines: list[tuple[str, Callable[[Found], float], int]] = []

    def add(name: str, read: Callable[[Found], float], digits: int = 2) -> None:
        lines.append((name, read, digits))

    controls = ((MEMORY, ""), (SHUFFLED, "… at shuffled times"), (UNTRAINED, "… untrained network"))
    for source, name in controls:
        add(name or "cos(h, ∂V/∂ỹ)", lambda f, s=source: f["critic_cosine"][s])
    kinds = [kind for kind in example["likeness"] if kind != CRITIC]
    for kind in kinds:
        for source, name in controls:
            add(name or f"cos((∂ỹ/∂x)ᵀh, −λ), {kind}", lambda f, k=kind, s=source: f["implied_cosine"][k][s])
    sources = (
        (MEMORY, ""),
        (UNTRAINED, "… from an untrained network"),
        (OBSERVATION, "… from the observation"),
        (STATE, "… from the true state"),
    )
    for kind in [*kinds, CRITIC]:
        what = "the critic's ∂V/∂ỹ" if kind == CRITIC else f"λ, {kind}"
        for source, name in sources:
            add(
                name or f"R² of {what}, from memory",
                lambda f, k=kind, s=source: f["likeness"][k][s]["probe_r2"],
            )
    for kind in example["hamiltonian_gap"]:
        add(f"Hamiltonian gap, {kind}", lambda f, k=kind: f["hamiltonian_gap"][k]["policy"])
        add("… the same controls at other times", lambda f, k=kind: f["hamiltonian_gap"][k]["shuffled"])
    for every in ("1", "4", "8", "32"):
        add(
            f"return, h erased every {every} steps" if every != "1" else "return, h erased in every step",
            lambda f, e=every: f["knockout"][e],
            0,
        )
    add("return, memory left alone", lambda f: f["intact"], 0)
    return lines


def cell(values: list[float], digits: int) -> str:
    """Format the mean ± half of the interval."""
    half = (
        scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)
        * np.std(values, ddof=1)
        / np.sqrt(len(values))
        if len(values) > 1
        else np.nan
    )
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def main() -> None:
    groups: dict[str, list[Found]] = {}
    for argument in sys.argv[1:]:
        name, _, folder = argument.partition("=")
        found = [
            read_alignment(file.parent.parent)
            for file in sorted(pathlib.Path(folder).glob("**/alignment/alignment.json"))
        ]
        groups[name] = [each for each in found if each is not None]
    head = " | ".join(f"{name} ({len(found)} seeds)" for name, found in groups.items())
    print(f"| | {head} |\n|---|{'---|' * len(groups)}")
    for name, read, digits in rows(next(iter(groups.values()))[0]):
        cells = (cell([read(each) for each in found], digits) for found in groups.values())
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
