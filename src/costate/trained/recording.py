"""Record an episode of a policy with exact physical states, which the training engines do not show.

Everything is computed in float64, including the policy's own arithmetic, so that derivatives are those of the
very function that acted.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, PyTree
from costate.envs.base import AbstractActuators, TimeStep
from costate.envs.sensors import SensorConfig
from costate.envs.stage import AbstractStage
from costate.envs.tasks import TASKS, Task
from costate.policies.controllers import AbstractController, Carry


@dataclasses.dataclass(frozen=True)
class Episode:
    """T control steps, and the T + 1 states between them."""

    task: Task
    controller: AbstractController
    """The controller that acted, in float64."""
    stage: AbstractStage
    """The simulator it was played in, which remembers the states x_0 … x_T."""
    observations: Float[np.ndarray, "T O"]
    """y_t before blackouts."""
    seen: Bool[np.ndarray, " T"]
    """m_t: whether the policy saw y_t or zeros."""
    memories: PyTree[Float[np.ndarray, "T ..."]]
    """The controller's memory before it read y_t."""
    features: Float[np.ndarray, "T F"]
    """ỹ_t, the encoded observation."""
    hiddens: Float[np.ndarray, "T H"]
    """h_t, after y_t was read."""
    controls: Float[np.ndarray, "T U"]
    rewards: Float[np.ndarray, " T"]
    """r_t of the step from x_t to x_{t+1}."""
    terminated: bool
    """Whether the episode ended by itself."""


def record_episode(
    task: str, controller: AbstractController, *, seed: int, dropout: float, steps: int | None = None
) -> Episode:
    """Play one episode of ``steps`` control steps.

    ``steps`` defaults to the task's length and may exceed it, since no time limit is applied.
    """
    record, sensors = TASKS[task], SensorConfig(dropout)
    steps = record.episode_steps if steps is None else steps
    if steps < 1:
        raise ConfigError(
            f"steps is {steps}, but an episode needs at least 1. "
            f"The task's own length is {record.episode_steps}."
        )
    seen = np.random.default_rng(seed).random(steps) >= sensors.dropout
    stage = record.stage(seed)
    with jax.enable_x64(True):
        return _play(record, stage, in_float64(controller), seen)


def in_float64(controller: AbstractController) -> AbstractController:
    """Return the same controller in float64. Call it with 64-bit mode enabled."""
    # Converted by NumPy, because JAX would compile a conversion for every shape.
    converted: AbstractController = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)) if eqx.is_inexact_array(leaf) else leaf,
        controller,
    )
    return converted


def one_step(observation: Float[Array, " O"], seen: Bool[Array, ""], is_first: Bool[Array, ""]) -> TimeStep:
    """Return the time step that a controller of one stream observes: ỹ = m y."""
    shown = jnp.where(seen, observation, jnp.zeros_like(observation))
    no = jnp.zeros(1, bool)
    return TimeStep(shown[None], jnp.zeros(1), jnp.ones(1), is_first[None], no, observation[None], seen[None])


@eqx.filter_jit
def _respond(
    controller: AbstractController,
    robot: AbstractActuators,
    observation: Float[Array, " O"],
    seen: Bool[Array, ""],
    is_first: Bool[Array, ""],
    memory: Carry,
) -> tuple[Array, Array, Array, Carry]:
    """Return the control, feature, hidden state and memory after reading one observation."""
    now = one_step(observation, seen, is_first)
    control, after = controller.decide(robot, now, memory)
    return control[0], controller.feature(now, memory)[0], controller.hidden(after)[0], after


def _play(
    task: Task, stage: AbstractStage, controller: AbstractController, seen: Bool[np.ndarray, " T"]
) -> Episode:
    memory, rows, terminated = controller.empty_memory(stage.robot), [], False
    for t, sees in enumerate(seen):
        observation = stage.observe()
        control, feature, hidden, after = _respond(
            controller, stage.robot, jnp.asarray(observation), jnp.asarray(sees), jnp.asarray(t == 0), memory
        )
        reward, terminated = stage.step(np.asarray(control))
        rows.append((observation, sees, memory, feature, hidden, control, np.float64(reward)))
        memory = after
        if terminated:
            break
    observations, saw, memories, features, hiddens, controls, rewards = jax.tree.map(
        lambda *leaves: np.stack(leaves), *rows
    )
    return Episode(
        task=task,
        controller=controller,
        stage=stage,
        observations=observations,
        seen=saw,
        memories=memories,
        features=features,
        hiddens=hiddens,
        controls=controls,
        rewards=rewards,
        terminated=terminated,
    )
