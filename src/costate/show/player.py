"""One robot and its policy, advanced one control step at a time, with all quantities that can be shown."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from costate._base.types import Float
from costate.envs.base import Layout, TimeStep
from costate.envs.tasks import Task
from costate.envs.visible import AbstractVisibleRobot
from costate.policies.controllers import Carry
from costate.runs.run_directory import Run
from costate.show.sensors import SwitchedSensors
from costate.trained.trained import Point, load_insight


class Moment(NamedTuple):
    """The quantities of one control step that can be shown."""

    time: float
    """Seconds since the episode started."""
    seen: float
    """Share of the sensors whose readings arrived."""
    action: Float[np.ndarray, " A"]
    reward: float
    total: float
    """Return since the episode started."""
    value: float
    cosine: float
    """Cosine between memory and critic's co-state."""
    remembered: Float[np.ndarray, " O"]
    """Co-state in memory, by sensor."""
    expected: Float[np.ndarray, " O"]
    """The critic's co-state, by sensor."""


class Player:
    """A robot controlled by a run's policy."""

    def __init__(self, run: Run, step: Point, warn: Callable[[str], None], title: str = "") -> None:
        task = run.config.task_record
        self.run = run
        self.title = title
        self.names = sensor_names(task.observation)
        self._warn = warn
        self._timestep = timestep_of(task)
        self._sensors = SwitchedSensors(run.config.sensors, task.observation)
        self.load(step)
        self.robot = task.visible()
        actuators = self.robot.actuators
        self._look = jax.jit(
            lambda weights, now, memory: eqx.combine(weights, self._rest).look(actuators, now, memory)
        )
        self._seed, self._step, self._total, self._memory = (
            0,
            0,
            0.0,
            eqx.combine(self._weights, self._rest).empty_memory(actuators),
        )
        self.start(0)

    def load(self, step: Point) -> None:
        """Load the policy of a run's newest checkpoint, or of the one at ``step``.

        The memory is kept and continues with the new weights.
        """
        checkpoint, insight = load_insight(self.run, step, self._warn)
        # The weights are an argument of the compiled step, so that other policies of the run need no
        # recompilation.
        self._weights, self._rest = eqx.partition(insight, eqx.is_array)
        self.env_steps = checkpoint.env_steps

    def start(self, seed: int) -> None:
        """Start the episode of this seed."""
        self._seed, self._step, self._total = seed, 0, 0.0
        self.robot.start(seed)
        self.release()

    def release(self) -> None:
        """End a push if the robot can be pushed."""
        if isinstance(self.robot, AbstractVisibleRobot):
            self.robot.data.xfrc_applied[:] = 0.0

    def advance(self, dark: bool) -> tuple[Moment, bool]:
        """Take one control step, and return whether the episode terminated."""
        seen = self._sensors.read(self.robot.observe(), dark, self._seed, self._step)
        look, self._memory = self._decide(seen.timestep)
        outcome = self.robot.step(look.control.astype(np.float64))
        self._step += 1
        self._total += outcome.reward
        count = len(self.names)
        moment = Moment(
            time=self._step * self._timestep,
            seen=seen.share,
            action=look.control,
            reward=outcome.reward,
            total=self._total,
            value=float(look.value),
            cosine=float(look.cosine),
            remembered=look.remembered[:count],
            expected=look.expected[:count],
        )
        return moment, outcome.terminated

    def close(self) -> None:
        self.robot.close()

    def _decide(self, now: TimeStep) -> tuple[Any, Carry]:
        """Return the present ``Look`` as NumPy arrays without the batch axis.

        JAX operations outside of the compiled program would be slower.
        """
        look, memory = self._look(self._weights, now, self._memory)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], look), memory


def timestep_of(task: Task) -> float:
    """Return the seconds of a control step, or 0.05 if the environment does not give them."""
    return task.control_timestep if task.control_timestep > 0.0 else 0.05


def sensor_names(layout: Layout) -> tuple[str, ...]:
    """Return a name for every observed number."""
    return tuple(name if size == 1 else f"{name} {i}" for name, size in layout for i in range(size))
