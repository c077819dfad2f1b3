"""Sensors that a viewer can switch off while the robot moves, on top of the sensor faults of training."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, UInt
from costate.envs.base import Layout, TimeStep
from costate.envs.faults import AbstractFault, Drawn, FaultState, Reading
from costate.envs.faults.bursts import burst_chances, shortest_bursts
from costate.envs.faults.dark import Hold, Zeros
from costate.envs.sensors import SensorConfig, drop_ineffective, faults_of, with_mask


class Blackouts(NamedTuple):
    """The blackouts that a viewer sets."""

    probability: float
    burst_length: float | None = None
    """Mean length in steps. None draws every step independently."""
    off: bool = False
    """True blacks out every observation, whatever the probability."""


def next_dark(blackouts: Blackouts, dark: bool, is_first: bool, draws: np.random.Generator) -> bool:
    """Return whether the next observation blacks out by chance, given whether the last one did (``dark``).

    The process is that of training. A burst that is too short for its probability is lengthened as far as
    necessary.
    """
    chance, length = blackouts.probability, blackouts.burst_length
    if length is not None and 0.0 < chance < 1.0 and not is_first:
        staying, entering = burst_chances(chance, max(length, shortest_bursts(chance)))
        chance = staying if dark else entering
    return bool(draws.random() < chance)


class Switch(AbstractFault):
    """Switch all sensors on or off together, as its state, which is set from outside, says."""

    def start(self, batch: int, size: int) -> FaultState:
        return jnp.zeros(batch, bool)

    def apply(
        self, reading: Reading, state: FaultState, is_first: Bool[Array, " B"], drawn: Drawn
    ) -> tuple[Reading, FaultState]:
        return reading._replace(seen=reading.seen & ~state[:, None]), state


class Seen(NamedTuple):
    """One observation as the policy reads it."""

    timestep: TimeStep
    share: float
    """Share of the sensors whose readings arrived."""


class SwitchedSensors:
    """The sensors of one robot.

    They keep the faults of training, except that blackouts of whole observations are set by the viewer.
    """

    def __init__(self, trained: SensorConfig, layout: Layout) -> None:
        # The value read in a blackout is kept, because there will be blackouts.
        self._config = drop_ineffective(dataclasses.replace(trained, dropout=0.0), ["burst_length"])
        faults = faults_of(self._config, layout)
        # The switch comes after all outages, and before the receiver fills in zeros or last values.
        place = next(i for i, fault in enumerate(faults) if isinstance(fault, Zeros | Hold))
        self._faults = (*faults[:place], Switch(), *faults[place:])
        self._switch = place
        self._size = sum(size for _, size in layout)
        self._states = tuple(fault.start(1, self._size) for fault in self._faults)
        self._read = jax.jit(self._apply)

    def read(self, observation: Float[np.ndarray, " O"], dark: bool, seed: int, step: int) -> Seen:
        """Pass the observation of a step of the episode ``seed`` through the sensors.

        A new episode starts with fresh faults.
        """
        if observation.shape != (self._size,):
            raise ConfigError(
                f"The robot observes {observation.size} numbers, but the policy was trained with "
                f"{self._size}."
            )
        timestep, self._states, share = self._read(
            np.asarray(observation, np.float32),
            self._states,
            np.array([dark]),
            np.uint32(seed),
            np.uint32(step),
        )
        return Seen(timestep, float(share))

    def _apply(
        self,
        observation: Float[Array, " O"],
        states: tuple[FaultState, ...],
        dark: Bool[Array, " 1"],
        seed: UInt[Array, ""],
        step: UInt[Array, ""],
    ) -> tuple[TimeStep, tuple[FaultState, ...], Float[Array, ""]]:
        # Computed inside the compiled program, because outside each operation would take longer than the
        # whole of it.
        key, is_first = jax.random.fold_in(jax.random.key(seed), step), (step == 0)[None]
        true, everything = observation[None], jnp.ones((1, self._size), bool)
        reading, following = Reading(true, everything), []
        for number, (fault, state) in enumerate(zip(self._faults, states, strict=True)):
            given = dark if number == self._switch else state
            reading, after = fault.apply(
                reading, given, is_first, fault.draw(jax.random.fold_in(key, number), 1, self._size)
            )
            following.append(after)
        shown, complete = with_mask(self._config, *reading), with_mask(self._config, true, everything)
        timestep = TimeStep(
            shown, jnp.zeros(1), jnp.ones(1), is_first, jnp.zeros(1, bool), complete, reading.seen.any(-1)
        )
        return timestep, tuple(following), reading.seen.mean()
