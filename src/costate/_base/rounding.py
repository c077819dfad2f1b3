"""Format numbers: several with as many decimals as the largest needs, and bounds that hold as shown."""

import decimal
import math


def decimals(*values: float, least: int = 0) -> int:
    """Return the decimals that show the largest of some numbers with three significant digits; at least
    ``least``.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return least if largest == 0.0 else max(least, 2 - math.floor(math.log10(largest)))


def rounded(*values: float, least: int = 0) -> list[str]:
    """Format the numbers with equal decimals, chosen by :func:`decimals`."""
    places = decimals(*values, least=least)
    return [f"{value:.{places}f}" for value in values]


def at_least(bound: float, digits: int) -> str:
    """Format a lower bound, rounded up to so many significant digits: the number shown is allowed."""
    rounding = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return f"{float(rounding.create_decimal(bound)):g}"
