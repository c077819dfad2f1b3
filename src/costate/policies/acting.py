"""Acting without exploration: from a raw observation to an action within the bounds of the actuators.

Both the controllers of the library and the networks of ``costate.deploy`` act by these functions. The NumPy
runtime repeats them, because it is a file to copy.
"""

from typing import NamedTuple

import numpy as np

from costate._base.types import Array, Bool, Float
from costate.policies.distribution import AbstractDistribution
from costate.policies.policy import RecurrentActorCritic, act
from costate.policies.running_stats import RunningStats, normalise
from costate.policies.sac_networks import RecurrentActor, act_once, sac_inputs


class Acted(NamedTuple):
    """One step of every stream."""

    action: Float[Array, "B A"]
    """The action, within the bounds of the actuators."""
    control: Float[Array, "B A"]
    """The mode of the distribution, before it is limited to the bounds."""
    core_state: Float[Array, "B C"]
    distribution: AbstractDistribution
    value: Float[Array, " B"] | None
    """Value by the critic; None if the policy has none."""


def act_by_policy(
    policy: RecurrentActorCritic,
    stats: RunningStats,
    clip: float | None,
    observation: Float[Array, "B O"],
    is_first: Bool[Array, " B"],
    core_state: Float[Array, "B C"],
    low: Float[np.ndarray, " A"],
    high: Float[np.ndarray, " A"],
) -> Acted:
    """Act by the control law of the paper's policy."""
    step = act(policy, normalise(stats, observation, clip), core_state, is_first)
    control = step.control.mode()
    return Acted(step.control.actuate(control, low, high), control, step.core_state, step.control, step.value)


def act_by_actor(
    actor: RecurrentActor,
    stats: RunningStats,
    clip: float | None,
    observation: Float[Array, "B O"],
    seen: Bool[Array, " B"],
    is_first: Bool[Array, " B"],
    core_state: Float[Array, "B C"],
    before: Float[Array, "B A"],
    low: Float[np.ndarray, " A"],
    high: Float[np.ndarray, " A"],
) -> Acted:
    """Act by the actor of soft actor-critic, which also reads the control ``before``."""
    inputs = sac_inputs(stats, clip, observation, seen, before, is_first)
    distribution, core_state = act_once(actor, inputs, core_state, is_first)
    control = distribution.mode()
    return Acted(distribution.actuate(control, low, high), control, core_state, distribution, None)
