"""Times at which units fail: independent in every step, or in bursts of a given mean length."""

import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.rounding import at_least
from costate._base.types import Array, Bool, Float


def working(
    drawn: Float[Array, "B U"],
    broken: Bool[Array, "B U"],
    is_first: Bool[Array, " B"],
    probability: float,
    length: float | None,
) -> Bool[Array, "B U"]:
    """Return which of U units work in the next step, given which were ``broken`` in the last one.

    ``drawn`` is uniform between 0 and 1. Without a mean ``length`` every step is independent. With one, each
    unit is a Markov chain (Gilbert 1960) that leaves a burst with probability 1/L and enters one with
    probability p/((1 − p) L). A share p of units is then broken at any time, including the first step of an
    episode.
    """
    return drawn < 1.0 - chance_of_breakage(broken, is_first, probability, length)


def chance_of_breakage(
    broken: Bool[Array, "B U"], is_first: Bool[Array, " B"], probability: float, length: float | None
) -> Float[Array, "B U"] | float:
    """Return each unit's probability of being broken in the next step."""
    if length is None or probability in (0.0, 1.0):
        return probability
    staying, entering = burst_chances(probability, length)
    return jnp.where(is_first[:, None], probability, jnp.where(broken, staying, entering))


def burst_chances(probability: float, length: float) -> tuple[float, float]:
    """Return the probabilities that a burst continues, and that one starts."""
    return 1.0 - 1.0 / length, probability / ((1.0 - probability) * length)


def shortest_bursts(probability: float) -> float:
    """Return the least mean length of bursts that cover this share of the time.

    With a single good step between two bursts, L steps in L + 1 are bad.
    """
    return max(1.0, probability / (1.0 - probability)) if probability < 1.0 else 1.0


def check_bursts(name: str, probability: float, length_name: str, length: float) -> None:
    """Raise unless bursts of this mean length can cover this share of the time."""
    if probability == 0.0:
        raise ConfigError(
            f"{length_name} is {length:g}, but {name} is 0, so there are no bursts. Set {name}, or leave out "
            f"{length_name}."
        )
    # What rounding makes of 0.9 / (1 − 0.9) is a little more than 9.
    shortest = shortest_bursts(probability) * (1.0 - 1e-9)
    if length < shortest:
        raise ConfigError(
            f"{length_name} is {length:g} and {name} is {probability:g}, but bursts of that mean length with "
            f"at least one good step between two last for at most {length / (length + 1.0):.3g} of the time. "
            f"Use a {length_name} of at least {at_least(shortest, 4)}."
        )
