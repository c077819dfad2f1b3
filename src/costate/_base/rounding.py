"""Numbers of one line with as many decimals as the largest of them needs."""

import math


def decimals(*values: float, least: int = 0) -> int:
    """Decimals with which the largest of some numbers has three significant digits; ``least`` where that is fewer."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return least if largest == 0.0 else max(least, 2 - math.floor(math.log10(largest)))


def rounded(*values: float, least: int = 0) -> list[str]:
    """The numbers as text, all with the decimals that the largest of them needs."""
    places = decimals(*values, least=least)
    return [f"{value:.{places}f}" for value in values]
