"""Find NaN and Inf in a rollout before anything is learnt from it, and trace them to their source."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool
from costate.envs.base import TimeStep
from costate.learners.base import Collected


class NonFinite(NamedTuple):
    """The first NaN or Inf of a rollout."""

    seed: int
    """Index among the seeds that train together."""
    step: int
    environment: int
    what: str
    """Its kind: an observation or reward of the environment, or a control of the policy."""
    value: float

    def __str__(self) -> str:
        source = (
            "the policy gave a control"
            if self.what == "control"
            else f"the environment gave {'an' if self.what[0] == 'o' else 'a'} {self.what}"
        )
        return f"{source} of {self.value} (environment {self.environment}, step {self.step} of the rollout)"


@jax.jit
def all_finite(given: Any) -> Bool[Array, ""]:
    """Return whether all numbers of a pytree are finite."""
    return jnp.stack([jnp.isfinite(array).all() for array in jax.tree.leaves(given)]).all()


def from_environments(rows: Collected, last: TimeStep) -> tuple[Any, ...]:
    """Return what the environments gave: the rows of all seeds, and the observations after the last row."""
    return (
        rows.observation,
        rows.complete,
        rows.reward,
        last.observation,
        None if rows.complete is None else last.complete,
    )


def first_non_finite(rows: Collected, last: TimeStep) -> NonFinite | None:
    """Return the first NaN or Inf, or None.

    Within a step the observation comes first, then the control, then its reward. ``last`` is the time step
    after the last row.
    """
    observation, complete, reward, seen_last, complete_last = from_environments(rows, last)
    kinds = [
        ("observation", observation, 0),
        ("observation", complete, 0),
        ("control", rows.action, 0),
        ("reward", reward, 0),
    ]
    kinds += [
        ("observation", None if array is None else array[:, None], reward.shape[1])
        for array in (seen_last, complete_last)
    ]
    found = []
    for order, (what, array, offset) in enumerate(kinds):
        if array is None:
            continue
        values = np.asarray(array)
        bad = ~np.isfinite(values.reshape(*values.shape[:3], -1)).all(-1)
        if bad.any():
            step = int(np.flatnonzero(bad.any(axis=(0, 2)))[0])
            seed, environment = map(int, np.argwhere(bad[:, step])[0])
            numbers = values[seed, step, environment].ravel()
            found.append(
                (
                    step + offset,
                    order,
                    NonFinite(
                        seed, step + offset, environment, what, float(numbers[~np.isfinite(numbers)][0])
                    ),
                )
            )
    return min(found)[2] if found else None
