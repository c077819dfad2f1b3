"""Numbers that are none: found in what a rollout collected, before anything is learnt from them, and traced to where they came from."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._types import Array, Bool, Float


class Fault(NamedTuple):
    """The first number of a rollout that is not finite."""

    seed: int
    """Place among the seeds that train together."""
    step: int
    environment: int
    what: str
    """An observation or a reward, which the environment gives, or a control, which the policy does."""
    value: float

    def __str__(self) -> str:
        source = "the policy gave a control" if self.what == "control" else f"the environment gave {'an' if self.what[0] == 'o' else 'a'} {self.what}"
        return f"{source} of {self.value} (environment {self.environment}, step {self.step} of the rollout)"


@jax.jit
def is_sound(observation: Float[Array, "N T B O"], reward: Float[Array, "N T B"]) -> Bool[Array, ""]:
    """Whether everything that environments gave is finite."""
    return jnp.isfinite(observation).all() & jnp.isfinite(reward).all()


def first_fault(rows: Any) -> Fault | None:
    """Where it began, from the rows of all seeds: in a step an observation comes first, then the control, then its reward."""
    found = []
    for order, (what, array) in enumerate((("observation", rows.observation), ("control", rows.action), ("reward", rows.reward))):
        values = np.asarray(array)
        bad = ~np.isfinite(values.reshape(*values.shape[:3], -1)).all(-1)
        if bad.any():
            step = int(np.flatnonzero(bad.any(axis=(0, 2)))[0])
            seed, environment = map(int, np.argwhere(bad[:, step])[0])
            numbers = values[seed, step, environment].ravel()
            found.append((step, order, Fault(seed, step, environment, what, float(numbers[~np.isfinite(numbers)][0]))))
    return min(found)[2] if found else None
