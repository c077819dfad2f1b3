"""Measure the time of one step of one stream."""

import time

import numpy as np

from costate._base.types import Float
from costate.deploy.parity import Step, random_observations
from costate.deploy.policy import Policy

WARM_UP = 200


def step_microseconds(policy: Policy, step: Step, steps: int = 2000) -> Float[np.ndarray, " N"]:
    """Time each of ``steps`` steps at batch size 1, each from the state that the previous one returned."""
    rng = np.random.default_rng(0)
    observations = [random_observations(policy.bundle, rng, batch=1) for _ in range(64)]
    state, never, times = (
        np.zeros((1, policy.state_size), np.float32),
        np.zeros(1, bool),
        np.zeros(WARM_UP + steps),
    )
    for number in range(WARM_UP + steps):
        begin = time.perf_counter_ns()
        _, state = step(observations[number % 64], state, never)
        times[number] = (time.perf_counter_ns() - begin) / 1000.0
    return times[WARM_UP:]
