"""When something is out of order: independently in every step, or in bursts of a given mean length."""

import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float


def working(
    drawn: Float[Array, "B U"],
    broken: Bool[Array, "B U"],
    is_first: Bool[Array, " B"],
    probability: float,
    length: float | None,
) -> Bool[Array, "B U"]:
    """Which of U units work in the next step, if ``broken`` did not in the last; ``drawn`` is uniform between 0 and 1.

    Without a mean ``length`` every step is drawn by itself. With one, units are Markov chains that leave a burst with probability 1/L and enter one
    with probability p/((1 − p) L), of which a share p is broken at any time, the first step of an episode included (Gilbert 1960).
    """
    return drawn < 1.0 - chance_of_breakage(broken, is_first, probability, length)


def chance_of_breakage(
    broken: Bool[Array, "B U"], is_first: Bool[Array, " B"], probability: float, length: float | None
) -> Float[Array, "B U"] | float:
    """Of every unit, that it does not work in the next step."""
    if length is None or probability in (0.0, 1.0):
        return probability
    staying, entering = burst_chances(probability, length)
    return jnp.where(is_first[:, None], probability, jnp.where(broken, staying, entering))


def burst_chances(probability: float, length: float) -> tuple[float, float]:
    """Chances that a burst goes on, and that one starts."""
    return 1.0 - 1.0 / length, probability / ((1.0 - probability) * length)


def shortest_bursts(probability: float) -> float:
    """Least mean length of bursts that are out of order for this share of the time: with a single good step between two, L steps in L + 1 are bad."""
    return max(1.0, probability / (1.0 - probability)) if probability < 1.0 else 1.0


def check_bursts(name: str, probability: float, length_name: str, length: float) -> None:
    """Raise unless bursts of this mean length can be out of order for this share of the time."""
    if probability == 0.0:
        raise ConfigError(
            f"{length_name} is {length:g}, but {name} is 0, so there are no bursts. Give {name}, or leave {length_name} out."
        )
    if length < shortest_bursts(probability):
        raise ConfigError(
            f"{length_name} is {length:g} and {name} is {probability:g}, but bursts of that mean length with at least one good step between two are "
            f"bad for at most {length / (length + 1.0):.3g} of the time. Use a {length_name} of at least {shortest_bursts(probability):.4g}."
        )
