"""Numbers that are none: found in what a rollout collected, before anything is learnt from them, and traced to where they came from."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Bool
from costate.envs.base import TimeStep
from costate.learners.base import Collected


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
        source = (
            "the policy gave a control"
            if self.what == "control"
            else f"the environment gave {'an' if self.what[0] == 'o' else 'a'} {self.what}"
        )
        return f"{source} of {self.value} (environment {self.environment}, step {self.step} of the rollout)"


@jax.jit
def is_sound(given: Any) -> Bool[Array, ""]:
    """Whether all numbers of some arrays are finite."""
    return jnp.stack([jnp.isfinite(array).all() for array in jax.tree.leaves(given)]).all()


def given_by_environments(rows: Collected, last: TimeStep) -> tuple[Any, ...]:
    """All that comes from a simulator and is learnt from: the rows of all seeds, and what was seen after the last of them."""
    return (
        rows.observation,
        rows.complete,
        rows.reward,
        last.observation,
        None if rows.complete is None else last.complete,
    )


def first_fault(rows: Collected, last: TimeStep) -> Fault | None:
    """Where it began: in a step an observation comes first, then the control, then its reward. ``last`` is the observation after the last row."""
    observation, complete, reward, seen_last, complete_last = given_by_environments(rows, last)
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
                    Fault(seed, step + offset, environment, what, float(numbers[~np.isfinite(numbers)][0])),
                )
            )
    return min(found)[2] if found else None
