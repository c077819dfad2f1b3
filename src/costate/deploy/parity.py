"""Check that an exported policy acts like its original, over many random steps and resets."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ExportError
from costate._base.types import Array, Bool, Float
from costate.deploy.bundle import Bundle
from costate.deploy.network import AbstractNetwork
from costate.deploy.policy import Policy

TOLERANCE = 1e-5
STEPS, BATCH = 1000, 4
# Probabilities that an episode starts, that nothing is seen, and that a reading is far from the training
# data.
RESET, DARK, FAR = 0.01, 0.2, 0.05

Step = Callable[
    [Float[np.ndarray, "B O"], Float[np.ndarray, "B S"], Bool[np.ndarray, " B"]],
    tuple[Float[np.ndarray, "B A"], Float[np.ndarray, "B S"]],
]
"""Action and next state."""


@dataclasses.dataclass(frozen=True)
class Parity:
    """The largest differences from the policy in JAX, relative for numbers above 1."""

    steps: int
    batch: int
    resets: int
    action: float
    state: float
    ties: int
    """Number of switching controls that were skipped because σ was so near a switch that rounding decides."""

    @property
    def holds(self) -> bool:
        # Not written as "not larger", because a NaN difference must fail.
        return self.action <= TOLERANCE and self.state <= TOLERANCE

    def __str__(self) -> str:
        ties = f", {self.ties} ties at a switch skipped" if self.ties else ""
        length = f"{self.steps:,} steps × {self.batch} streams, {self.resets} resets"
        return f"{length}: actions within {self.action:.1e}, states within {self.state:.1e}{ties}"


def check_parity(policy: Policy, step: Step, what: str, steps: int = STEPS) -> Parity:
    """Compare ``step`` with a policy. Raise if they differ by more than 1e-5."""
    parity = compare(policy, step, steps)
    if not parity.holds:
        raise ExportError(
            f"The {what} form of this policy does not act like the policy itself, so nothing was written. "
            f"Largest differences over {parity}; {TOLERANCE:g} is allowed. Use another --format, and report "
            f"this with the run's config.json."
        )
    return parity


def compare(policy: Policy, step: Step, steps: int = STEPS, seed: int = 0) -> Parity:
    """Let both read the same observations, each with its own state.

    The policy runs in one compiled loop, and ``step`` is called step by step.
    """
    rng = np.random.default_rng(seed)
    observations = np.stack([random_observations(policy.bundle, rng) for _ in range(steps)])
    is_first = rng.random((steps, BATCH)) < RESET
    is_first[0] = True
    played = _play(policy.function, jnp.asarray(observations), jnp.asarray(is_first))
    expected, after, margin = (
        np.asarray(played[0]),
        np.asarray(played[1]),
        None if played[2] is None else np.asarray(played[2]),
    )
    state, ties, differences = (
        np.zeros((BATCH, policy.state_size), np.float32),
        0,
        {"action": 0.0, "state": 0.0},
    )
    for t in range(steps):
        action, state = step(observations[t], state, is_first[t])
        action_error = _difference(action, expected[t])
        if margin is not None:
            tied = (action_error > TOLERANCE) & (margin[t] <= TOLERANCE)
            ties, action_error = ties + int(tied.sum()), np.where(tied, 0.0, action_error)
        for name, error in (("action", action_error), ("state", _difference(state, after[t]))):
            # Python's `max` would drop NaN.
            differences[name] = float(np.maximum(differences[name], error.max(initial=0.0)))
    return Parity(steps, BATCH, int(is_first.sum()), differences["action"], differences["state"], ties)


@eqx.filter_jit
def _play(
    network: AbstractNetwork, observations: Float[Array, "T B O"], is_first: Bool[Array, "T B"]
) -> tuple[Float[Array, "T B A"], Float[Array, "T B S"], Float[Array, "T B A"] | None]:
    """Return actions, states and margins of a sequence."""

    def advance(
        state: Float[Array, "B S"], now: tuple[Array, Array]
    ) -> tuple[Array, tuple[Array, Array, Array | None]]:
        decision = network(now[0], state, now[1])
        return decision.state, (decision.action, decision.state, network.margin(now[0], state, now[1]))

    start = jnp.zeros((observations.shape[1], network.state_size), observations.dtype)
    played: tuple[Array, Array, Array | None] = jax.lax.scan(advance, start, (observations, is_first))[1]
    return played


def _difference(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    if found.shape != expected.shape:
        raise ExportError(
            f"The exported policy returns shape {list(found.shape)}, but the policy itself returns "
            f"{list(expected.shape)}."
        )
    error: np.ndarray = np.abs(found.astype(np.float64) - expected) / np.maximum(1.0, np.abs(expected))
    return error


def random_observations(
    bundle: Bundle, rng: np.random.Generator, batch: int = BATCH
) -> Float[np.ndarray, "B O"]:
    """Draw readings like those of training, with some blackouts and some outliers. Masks are 0 or 1."""
    sizes = bundle.sizes
    mean, variance = bundle.tensors["normaliser.mean"], bundle.tensors["normaliser.variance"]
    shape = (batch, sizes.observation)
    # Constant sensors get a deviation of 1.
    rows = mean + np.sqrt(np.where(variance > 0.0, variance, 1.0)) * rng.standard_normal(shape) * np.where(
        rng.random(shape) < FAR, 20.0, 1.0
    )
    seen = rng.random((batch, 1)) >= DARK
    rows[:, sizes.sensors :] = rng.random((batch, sizes.mask)) >= DARK
    return (rows * seen).astype(np.float32)
