"""The moments at which memory and co-state are compared: steps of a trained policy's episodes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Float, PyTree
from costate.control.linearisation import Linearisation
from costate.envs.base import AbstractActuators
from costate.envs.tasks import Played
from costate.learners.base import AnyLearner, Sequence
from costate.learners.states import LearnerState
from costate.policies.controllers import AbstractController
from costate.trained.alignment.measures import Rows
from costate.trained.recording import Episode, in_float64, one_step
from costate.trained.true_costates import Costates, feature_jacobians


@dataclasses.dataclass(frozen=True)
class Moments:
    """The compared steps of one episode as rows: those with trusted co-states.

    Gradients are those of reward, as a critic's are: −λ of the cost.
    """

    names: tuple[str, ...]
    """Names of the components of physical gradients."""
    states: Rows
    observations: Rows
    """The observations that the policy read: zeros where the sensors were dark."""
    seen: np.ndarray
    hiddens: Rows
    untrained: Rows
    """Hidden states of an untrained policy of the same kind that reads the same observations."""
    compared: Rows
    """h in the coordinates of features, as the co-state loss compares it.

    The policy maps it there if the widths differ.
    """
    compared_untrained: Rows
    critic: Rows
    """∂V/∂ỹ of the critic, in the space of features."""
    gradients: dict[str, Rows]
    """True gradients of the future reward by the physical state, under the name of their kind."""
    implied: Rows
    """(∂ỹ/∂x)ᵀ h: the physical gradient, if h is the gradient by the feature. Nothing is fitted."""
    implied_untrained: Rows
    controls: Rows
    slopes: dict[str, Rows]
    """∂H/∂u of the cost's Hamiltonian at the recorded control, by the kind of co-state in it."""
    low: np.ndarray
    high: np.ndarray
    times: np.ndarray
    """The steps of the rows, in order."""
    untrusted: int
    """Number of steps that are left out, because their co-states cannot be trusted."""


def moments_of(
    learner: AnyLearner,
    state: LearnerState,
    episode: Episode,
    costates: Costates,
    discount: float,
    steps: int,
) -> Moments:
    """Return the trusted moments among the first ``steps`` steps of an episode.

    A step is left out if its co-state or the next one cannot be trusted.
    """
    if steps < 2 or steps >= len(episode.rewards):
        raise ConfigError(
            f"{steps} steps are to be compared, but the episode has {len(episode.rewards)}. Compare at "
            "least 2, and fewer than the episode has: the co-states of these steps depend on the steps "
            "after them."
        )
    robot = episode.stage.robot
    untrained = untrained_like(learner, episode.controller)
    untrained_hiddens = follow(untrained, robot, episode)
    compared, compared_untrained = (
        in_features(episode.controller, episode.hiddens),
        in_features(untrained, untrained_hiddens),
    )
    visible_jacobians = feature_jacobians(
        dataclasses.replace(episode, seen=np.ones_like(episode.seen)),
        costates.linearisation.observation_jacobians,
    )
    kinds = {"closed loop": costates.closed_loop, "open loop": costates.open_loop}
    played = Played(episode.stage.states()[:-1], episode.observations, episode.seen, episode.controls)
    best = episode.task.best_gradients(played, discount)
    # The Hamiltonian of a step contains the next co-state.
    kept = np.flatnonzero(costates.trusted[:steps] & costates.trusted[1 : steps + 1])
    return Moments(
        names=costates.names,
        states=played.states[kept],
        observations=(episode.observations * episode.seen[:, None])[kept],
        seen=episode.seen[kept],
        hiddens=episode.hiddens[kept],
        untrained=untrained_hiddens[kept],
        compared=compared[kept],
        compared_untrained=compared_untrained[kept],
        critic=critic_costates(learner, state, episode)[kept],
        gradients={
            kind: rows[kept]
            for kind, rows in ({kind: -costate for kind, costate in kinds.items()} | best).items()
        },
        implied=np.einsum("tfx,tf->tx", visible_jacobians[kept], compared[kept]),
        implied_untrained=np.einsum("tfx,tf->tx", visible_jacobians[kept], compared_untrained[kept]),
        controls=episode.controls[kept],
        slopes={
            kind: hamiltonian_slopes(costates.linearisation, costate, discount)[kept]
            for kind, costate in kinds.items()
        },
        low=np.asarray(robot.action_low, float),
        high=np.asarray(robot.action_high, float),
        times=kept,
        untrusted=steps - len(kept),
    )


def hamiltonian_slopes(
    steps: Linearisation, costate: Float[np.ndarray, "T X"], discount: float
) -> Float[np.ndarray, "R U"]:
    """Return ∂H_t/∂u_t = ∂ℓ_t/∂u_t + γ B_tᵀ λ_{t+1} of every step that has a next one."""
    following = np.einsum("txu,tx->tu", steps.control_jacobians[:-1], costate[1:])
    return np.asarray(steps.control_cost_gradients[:-1] + discount * following)


def untrained_like(learner: AnyLearner, controller: AbstractController) -> AbstractController:
    """Return an untrained controller from another seed, in float64, with the trained one's normaliser."""
    fresh = learner.controller(jax.jit(learner.fresh)(jnp.uint32(learner.config.seed + 1)))
    with jax.enable_x64(True):
        converted: AbstractController = eqx.tree_at(lambda c: c.stats, in_float64(fresh), controller.stats)
    return converted


def follow(
    controller: AbstractController, robot: AbstractActuators, episode: Episode
) -> Float[np.ndarray, "T H"]:
    """Return the hidden states of a controller that reads another's episode, including its controls."""

    def advance(core_state: Array, row: tuple[Array, Array, Array, PyTree]) -> tuple[Array, Array]:
        observation, seen, is_first, memory = row
        _, after = controller.decide(
            robot, one_step(observation, seen, is_first), controller.with_core_state(memory, core_state)
        )
        return controller.core_state(after), controller.hidden(after)

    with jax.enable_x64(True):
        rows = jax.tree.map(
            jnp.asarray,
            (episode.observations, episode.seen, np.arange(len(episode.seen)) == 0, episode.memories),
        )
        start = controller.core_state(controller.empty_memory(robot))
        return np.asarray(jax.lax.scan(advance, start, rows)[1][:, 0])


def in_features(
    controller: AbstractController, hiddens: Float[np.ndarray, "T H"]
) -> Float[np.ndarray, "T F"]:
    """Return hidden states in the coordinates of the controller's features."""
    with jax.enable_x64(True):
        return np.asarray(controller.in_features(jnp.asarray(hiddens)))


def critic_costates(learner: AnyLearner, state: LearnerState, episode: Episode) -> Float[np.ndarray, "T F"]:
    """Return ∂V/∂ỹ by the run's critic along an episode."""
    sequence = Sequence(
        observation=_single(episode.observations * episode.seen[:, None])[:, None],
        complete=_single(episode.observations)[:, None],
        memory=jax.tree.map(_single, episode.memories),
        hidden=_single(episode.hiddens)[:, None],
        is_first=jnp.arange(len(episode.seen))[:, None] == 0,
        seen=jnp.asarray(episode.seen, bool)[:, None],
    )
    return np.asarray(jax.jit(learner.critic_costates)(state, sequence))[:, 0].astype(float)


def _single(array: np.ndarray) -> Array:
    """Convert to float32, in which the critic was trained."""
    return jnp.asarray(array, jnp.float32)
