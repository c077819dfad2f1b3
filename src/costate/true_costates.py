"""The true co-states along a policy's trajectory, by the adjoint through the simulator: what hidden states are compared with."""

import dataclasses
import pathlib
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from costate._errors import ConfigError
from costate._types import Array, Float, PyTree
from costate.config import check_seed
from costate.control.linearisation import Linearisation, closed_loop_costates, open_loop_costates
from costate.envs.sensors import only_blackouts
from costate.recording import Episode, one_step, record_episode
from costate.run_directory import Run, open_run
from costate.trained import load_controller


@dataclasses.dataclass(frozen=True)
class Costates:
    """At the states x_0 … x_{T−1} of an episode, in the coordinates of its stage. They are gradients of cost; a critic's is −λ."""

    names: tuple[str, ...]
    """Of the components of x and λ."""
    open_loop: Float[np.ndarray, "T X"]
    """Pontryagin's λ_t: later controls stay what they are."""
    closed_loop: Float[np.ndarray, "T X"]
    """∇_x of the value: later controls react."""
    linearisation: Linearisation
    """A_t, B_t, cost gradients and observation Jacobians."""
    feature_jacobians: Float[np.ndarray, "T F X"]
    """∂ỹ_t/∂x_t; zero where the policy was blind."""


def true_costates(episode: Episode, discount: float, *, horizon: int | None = None, threads: int | None = None) -> Costates:
    """Both co-states of an episode; the cost of a step is the negative of its reward, and after the last step nothing follows.

    So the future of x_t is cut at the end of the episode, which matters for the last few multiples of 1/(1−γ) steps: record more steps than you
    use. Where the robot's motion is chaotic, the gradient of a long future is dominated by its end; a ``horizon`` counts only so many steps from
    each x_t on.
    """
    if not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount is {discount}, but it must lie between 0 and 1. The paper uses 0.99.")
    if horizon is not None and horizon < 1:
        raise ConfigError(f"horizon is {horizon}, but at least the cost of 1 step must count. Leave it out to count all of them.")
    steps = episode.stage.linearise(episode.controls, threads)
    return Costates(
        names=episode.stage.state_names,
        open_loop=open_loop_costates(steps, discount, horizon),
        closed_loop=policy_costates(episode, steps, discount, horizon),
        linearisation=steps,
        feature_jacobians=feature_jacobians(episode, steps.observation_jacobians),
    )


def policy_costates(episode: Episode, steps: Linearisation, discount: float, horizon: int | None = None) -> Float[np.ndarray, "T X"]:
    """The closed-loop co-states of the policy that acted, which saw and was blind as it was then."""
    robot = episode.stage.robot

    def react(particular: tuple[Array, Array], observation: Float[Array, " O"], memory: PyTree) -> tuple[Float[Array, " U"], PyTree]:
        control, after = episode.controller.decide(robot, one_step(observation, *particular), memory)
        return control[0], after

    return closed_loop_costates(steps, react, _particulars(episode), episode.observations, episode.memories, discount, horizon)


def feature_jacobians(episode: Episode, observation_jacobians: Float[np.ndarray, "T O X"]) -> Float[np.ndarray, "T F X"]:
    """∂ỹ_t/∂x_t = (∂ỹ_t/∂y_t)(∂y_t/∂x_t), with what was remembered held."""

    def feature(observation: Float[Array, " O"], particular: tuple[Array, Array], memory: PyTree) -> Float[Array, " F"]:
        return episode.controller.feature(one_step(observation, *particular), memory)[0]

    with jax.enable_x64(True):
        rows = jax.tree.map(jnp.asarray, (episode.observations, _particulars(episode), episode.memories))
        by_observation = jax.jit(jax.vmap(jax.jacfwd(feature)))(*rows)
        return np.asarray(by_observation @ jnp.asarray(observation_jacobians))


def _particulars(episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Of every step: whether the sensors worked, and whether the episode started."""
    return episode.seen, np.arange(len(episode.seen)) == 0


def record_run(
    run: Run | str | pathlib.Path,
    *,
    seed: int = 0,
    dropout: float | None = None,
    steps: int | None = None,
    checkpoint: int | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Episode:
    """One episode of a run's newest checkpoint (or the one at step ``checkpoint``); ``dropout`` defaults to the one used in training."""
    run = run if isinstance(run, Run) else open_run(pathlib.Path(run))
    check_seed(seed)
    _, controller = load_controller(run, checkpoint, warn)
    sensors = only_blackouts(run.config.sensors, dropout)
    return record_episode(run.config.task, controller, seed=seed, dropout=sensors.dropout, steps=steps)


def discount_of(run: Run) -> float:
    """The discount with which a run was trained."""
    config = run.config
    return config.sac.discount if config.algorithm == "sac" else config.ppo.discount
