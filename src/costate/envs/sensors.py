"""Sensor faults: their configuration, the order in which they apply, and an environment behind them.

Faults live in the environment, so that training and evaluation see the same process. The exception is an
optional warm-up (`rollout.read_in_part`).
"""

import dataclasses
import math
from collections.abc import Collection
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from costate._base.errors import ConfigError
from costate._base.registry import nearest
from costate._base.types import Array, Bool, Float, Key
from costate.envs.base import AbstractEnv, Drawn, EnvState, Layout, TimeStep
from costate.envs.faults import AbstractFault, FaultState, Reading
from costate.envs.faults.bursts import check_bursts, shortest_bursts
from costate.envs.faults.dark import Absent, Hold, Zeros
from costate.envs.faults.delay import Delay
from costate.envs.faults.noise import Drift, Noise
from costate.envs.faults.outage import Outage
from costate.envs.faults.stuck import Stuck

VELOCITY = "velocity"
"""Stands for all groups of sensors that measure velocities, whatever a task calls them."""


@dataclasses.dataclass(frozen=True)
class SensorConfig:
    """Settings of sensor faults, which can be combined.

    By default whole observations black out, as in the paper.
    """

    dropout: float = 0.5
    """Probability that the whole observation blacks out."""
    group_dropout: float = 0.0
    """Probability that a group of sensors, such as all joint velocities, blacks out, each independently."""
    sensor_dropout: float = 0.0
    """Probability that a single sensor blacks out, each independently."""
    burst_length: float | None = None
    """Mean length of blackouts in steps; None if every step is drawn independently, as in the paper."""
    dark: Literal["zero", "hold"] = "zero"
    """Value that is read in a blackout: zeros, as in the paper, or the last value that arrived."""
    stuck: float = 0.0
    """Probability that a single sensor is stuck at its last value, unnoticed."""
    stuck_length: float = 20.0
    """Mean number of steps for which a sensor is stuck."""
    noise: float = 0.0
    """Standard deviation of white noise on every sensor, in its own unit."""
    drift: float = 0.0
    """Standard deviation per step of every sensor's random-walk bias, in its own unit; it starts at 0."""
    delay: int = 0
    """Delay of every observation in steps."""
    delay_jitter: int = 0
    """Largest random delay in steps on top of `delay`; the newest observation that has arrived is read."""
    hide: tuple[str, ...] = ()
    """Names of groups of sensors that do not exist; `velocity` stands for all velocities."""
    mask_input: Literal["none", "bit", "bits"] = "none"
    """Mask that the policy reads too: none, as in the paper; whether anything was seen; or one per sensor."""

    def __post_init__(self) -> None:
        for name in PROBABILITIES:
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigError(
                    f"{name} is {value}, but a probability lies between 0 and 1. The paper trains with 0.5 "
                    f"and tests with 0.75."
                )
        for name in ("noise", "drift", "delay", "delay_jitter"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(
                    f"{name} is {value}, but it must be a number that is at least 0. Use 0 to leave it out."
                )
        for name in ("burst_length", "stuck_length"):
            value = getattr(self, name)
            if value is not None and not 1.0 <= value < math.inf:
                raise ConfigError(
                    f"{name} is {value}, but a burst lasts at least 1 step. Give a mean number of steps, "
                    f"such as 10."
                )

    @property
    def other_faults(self) -> dict[str, Any]:
        """Names and values of all faults other than the paper's blackouts. A mask is not a fault."""
        fields = (field for field in dataclasses.fields(self) if field.name not in ("dropout", "mask_input"))
        return {
            field.name: getattr(self, field.name)
            for field in fields
            if getattr(self, field.name) != field.default
        }

    def __str__(self) -> str:
        others = (
            f"{name.replace('_', ' ')} {'+'.join(value) if isinstance(value, tuple) else value}"
            for name, value in self.other_faults.items()
        )
        return ", ".join([f"{self.dropout:.0%} blackout", *others])


def only_blackouts(trained: SensorConfig, dropout: float | None) -> SensorConfig:
    """Return the paper's blackouts alone, with the probability of training if ``dropout`` is None.

    Raise if the policy needs a mask, or if it was trained with other faults and ``dropout`` is None.
    """
    if trained.mask_input != "none":
        raise ConfigError(
            f"This policy reads a mask besides the observation (mask_input is {trained.mask_input}), which "
            f"episodes with exact states do not provide. Use a run without a mask."
        )
    if dropout is None and trained.other_faults:
        raise ConfigError(
            f"This run was trained with {trained}, but episodes with exact states support only blackouts of "
            f"whole observations. Give --dropout to evaluate the policy under those."
        )
    return SensorConfig(trained.dropout if dropout is None else dropout)


OUTAGES = ("dropout", "group_dropout", "sensor_dropout")
PROBABILITIES = (*OUTAGES, "stuck")
MODIFIERS = {"burst_length": OUTAGES, "dark": (*OUTAGES, "delay", "delay_jitter"), "stuck_length": ("stuck",)}
"""Settings that modify other faults, with the faults that they modify.

Without any of these they have no effect.
"""
LENGTHS = ("burst_length", "stuck_length")


def has_effect(config: SensorConfig, modifier: str) -> bool:
    """Return whether one of the ``MODIFIERS`` has a fault to modify."""
    return any(getattr(config, fault) > 0 for fault in MODIFIERS[modifier])


def drop_ineffective(config: SensorConfig, modifiers: Collection[str]) -> SensorConfig:
    """Reset those of some ``MODIFIERS`` that have no effect to their defaults."""
    idle: dict[str, Any] = {
        name: getattr(SensorConfig, name) for name in modifiers if not has_effect(config, name)
    }
    return dataclasses.replace(config, **idle)


def lengthen_bursts(config: SensorConfig, modifiers: Collection[str]) -> SensorConfig:
    """Lengthen those bursts among some ``MODIFIERS`` that are too short for their probability of failure."""
    lengths = {
        name: getattr(config, name)
        for name in LENGTHS
        if name in modifiers and getattr(config, name) is not None
    }
    needed: dict[str, Any] = {
        name: max(length, *(shortest_bursts(getattr(config, fault)) for fault in MODIFIERS[name]))
        for name, length in lengths.items()
    }
    return dataclasses.replace(config, **needed)


def check_sensors(config: SensorConfig, layout: Layout, episode_steps: int) -> None:
    """Raise if settings contradict each other, or do not fit a task."""
    if config.burst_length is not None:
        fails = {name: getattr(config, name) for name in OUTAGES if getattr(config, name) > 0.0}
        for name, probability in (fails or {"dropout": 0.0}).items():
            check_bursts(name, probability, "burst_length", config.burst_length)
    if config.stuck > 0.0:
        check_bursts("stuck", config.stuck, "stuck_length", config.stuck_length)
    elif config.stuck_length != SensorConfig.stuck_length:
        raise ConfigError(
            f"stuck_length is {config.stuck_length:g}, but stuck is 0, so no sensor is ever stuck. Set "
            f"stuck, or leave out stuck_length."
        )
    if config.dark == "hold" and not has_effect(config, "dark"):
        raise ConfigError(
            "dark is hold, but nothing ever blacks out. Set dropout, group_dropout or sensor_dropout, or "
            "leave out dark."
        )
    if config.delay + config.delay_jitter >= episode_steps:
        raise ConfigError(
            f"delay is {config.delay} and delay_jitter {config.delay_jitter}, but an episode of this task "
            f"has {episode_steps} steps, so an observation could arrive after its end. Their sum must be "
            f"below {episode_steps}."
        )
    if absent_sensors(config, layout).all():
        raise ConfigError(
            f"hide is {', '.join(config.hide)}, but then no sensor is left. Groups of this task: "
            f"{_names(layout)}."
        )


def _names(layout: Layout) -> str:
    return ", ".join(name for name, _ in layout)


def absent_sensors(config: SensorConfig, layout: Layout) -> Bool[np.ndarray, " O"]:
    """Return which sensors the robot does not have."""
    hidden = set()
    for name in config.hide:
        groups = {
            group for group, _ in layout if group == name or (name == VELOCITY and shows_velocity(group))
        }
        if not groups:
            raise ConfigError(
                f"hide names {name!r}, but this task has no such group of sensors. "
                f"{nearest(name, tuple(n for n, _ in layout))}"
            )
        hidden |= groups
    return np.repeat([name in hidden for name, _ in layout], [size for _, size in layout])


def shows_velocity(group: str) -> bool:
    """Return whether a group of sensors measures velocities, by its name.

    dm_control spells one of them ``joint_velocites``.
    """
    return "veloci" in group or group.endswith("_vel")


def faults_of(config: SensorConfig, layout: Layout) -> tuple[AbstractFault, ...]:
    """Return the faults in the order in which they apply: in the sensor, in transit, at the receiver."""
    return tuple(fault for _, fault in numbered_faults(config, layout))


def numbered_faults(config: SensorConfig, layout: Layout) -> tuple[tuple[int, AbstractFault], ...]:
    """Return each fault with the number of its kind, from which its random numbers are derived.

    They do not depend on other faults, so runs and evaluations that differ in one fault share the others. The
    paper's blackout has the number 0.
    """
    sizes = [size for _, size in layout]
    whole, groups, each = (
        np.zeros(sum(sizes), int),
        np.repeat(np.arange(len(sizes)), sizes),
        np.arange(sum(sizes)),
    )
    outages = ((config.dropout, whole), (config.group_dropout, groups), (config.sensor_dropout, each))
    faults: list[tuple[int, AbstractFault | None]] = [
        (5, Drift(config.drift) if config.drift > 0.0 else None),
        (6, Noise(config.noise) if config.noise > 0.0 else None),
        (7, Stuck(config.stuck, config.stuck_length) if config.stuck > 0.0 else None),
        (8, Delay(config.delay, config.delay_jitter) if config.delay + config.delay_jitter > 0 else None),
        *(
            (number, Outage(often, config.burst_length, units) if often > 0.0 else None)
            for number, (often, units) in enumerate(outages)
        ),
        (3, Hold() if config.dark == "hold" else Zeros()),
        (4, Absent(absent_sensors(config, layout)) if config.hide else None),
    ]
    return tuple((number, fault) for number, fault in faults if fault is not None)


def inputs_beside(config: SensorConfig, observation_size: int) -> int:
    """Return how many numbers a policy reads besides the readings."""
    return {"none": 0, "bit": 1, "bits": observation_size}[config.mask_input]


def with_mask(
    config: SensorConfig, value: Float[Array, "*S O"], seen: Bool[Array, "*S O"]
) -> Float[Array, "*S I"]:
    """Append the mask that a policy reads, if any, to the readings."""
    if config.mask_input == "none":
        return value
    told = seen.any(axis=-1, keepdims=True) if config.mask_input == "bit" else seen
    return jnp.concatenate([value, told.astype(value.dtype)], axis=-1)


class SensorEnv(AbstractEnv):
    """Another environment behind faulty sensors.

    Its state is that environment's state and those of the faults.
    """

    def __init__(self, env: AbstractEnv, config: SensorConfig, layout: Layout | None = None) -> None:
        layout = layout or (("observation", env.observation_size),)
        check_sensors(config, layout, env.episode_steps)
        self._env = env
        self._config = config
        self._numbers, self._faults = zip(*numbered_faults(config, layout), strict=True)
        self.batch_size = env.batch_size
        self.observation_size = env.observation_size + inputs_beside(config, env.observation_size)
        self.action_size = env.action_size
        self.episode_steps = env.episode_steps
        self.action_low = env.action_low
        self.action_high = env.action_high
        self.written_in_jax = env.written_in_jax
        # Compiled as a whole, because resets run outside of the compiled programs, where JAX would compile
        # each operation separately.
        self._start_one = jax.jit(self._start)
        self._start_each = jax.jit(jax.vmap(self._start))

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, TimeStep]:
        key_env, key_faults = jax.random.split(key)
        state, timestep = self._env.reset(key_env)
        faults, timestep = self._start_one(timestep, key_faults)
        return (state, faults), timestep

    @property
    def seed_axis(self) -> Any:
        return self._env.seed_axis, 0

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[EnvState, TimeStep]:
        env_keys, fault_keys = _split_each(keys)
        state, timestep = self._env.reset_seeds(env_keys)
        faults, timestep = self._start_each(timestep, fault_keys)
        return (state, faults), timestep

    def step(
        self, state: EnvState, action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[EnvState, TimeStep]:
        return self.advance(state, action, self.draw(key))

    def draw(self, key: Key[Array, ""]) -> Drawn:
        key_env, key_faults = jax.random.split(key)
        return self._env.draw(key_env), self._draw_faults(key_faults, self.batch_size)

    def advance(
        self, state: EnvState, action: Float[Array, "B A"], drawn: Drawn
    ) -> tuple[EnvState, TimeStep]:
        (inner, faults), (drawn_env, drawn_faults) = state, drawn
        inner, timestep = self._env.advance(inner, action, drawn_env)
        faults, timestep = self._read(timestep, faults, drawn_faults)
        return (inner, faults), timestep

    def skip_resets(self, counts: np.ndarray) -> None:
        self._env.skip_resets(counts)

    def close(self) -> None:
        self._env.close()

    def share(self, mesh: Mesh) -> bool:
        return self._env.share(mesh)

    def check(self) -> None:
        self._env.check()

    def _start(self, timestep: TimeStep, key: Key[Array, ""]) -> tuple[tuple[FaultState, ...], TimeStep]:
        batch, size = timestep.observation.shape
        return self._read(
            timestep, tuple(fault.start(batch, size) for fault in self._faults), self._draw_faults(key, batch)
        )

    def _draw_faults(self, key: Key[Array, ""], batch: int) -> tuple[Drawn, ...]:
        # Number 0 gets the key itself, because most runs have only that fault.
        keys = (jax.random.fold_in(key, number) if number > 0 else key for number in self._numbers)
        return tuple(
            fault.draw(own, batch, self._env.observation_size)
            for fault, own in zip(self._faults, keys, strict=True)
        )

    def _read(
        self, timestep: TimeStep, states: tuple[FaultState, ...], drawn: tuple[Drawn, ...]
    ) -> tuple[tuple[FaultState, ...], TimeStep]:
        """Pass a time step through the faults."""
        true = timestep.observation
        everything = jnp.ones(true.shape, bool)
        reading, following = Reading(true, everything), []
        for fault, state, own in zip(self._faults, states, drawn, strict=True):
            reading, state = fault.apply(reading, state, timestep.is_first, own)
            following.append(state)
        read, complete = with_mask(self._config, *reading), with_mask(self._config, true, everything)
        seen = reading.seen.any(-1)
        return tuple(following), dataclasses.replace(timestep, observation=read, complete=complete, seen=seen)


@jax.jit
def _split_each(keys: Key[Array, " N"]) -> tuple[Key[Array, " N"], Key[Array, " N"]]:
    """Split each key into two."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]
