"""The moments at which memory and co-state are compared: episodes of a trained policy, with everything that either could be told from."""

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
from costate.trained.recording import Episode, in_double, one_step
from costate.trained.true_costates import Costates, feature_jacobians


@dataclasses.dataclass(frozen=True)
class Moments:
    """The compared steps of one episode, as rows: those whose co-states can be trusted.

    Gradients are those of reward, as a critic's are: −λ of the cost.
    """

    names: tuple[str, ...]
    """Of the components of physical gradients."""
    states: Rows
    observations: Rows
    """As the policy got them: zeros where the sensors were dark."""
    seen: np.ndarray
    hiddens: Rows
    untrained: Rows
    """Hidden states of an untrained policy of the same kind that reads the same."""
    compared: Rows
    """h as the co-state loss compares it: in the coordinates of features, through the policy's own map where they have another width."""
    compared_untrained: Rows
    critic: Rows
    """∂V/∂ỹ of the critic, in the space of features."""
    gradients: dict[str, Rows]
    """True gradients of the reward to come by the physical state, under the name of their kind."""
    implied: Rows
    """(∂ỹ/∂x)ᵀ h: the physical gradient that h would be if it were one by the feature. Nothing is fitted."""
    implied_untrained: Rows
    controls: Rows
    slopes: dict[str, Rows]
    """∂H/∂u of the cost's Hamiltonian at the control that was done, under the name of the co-state in it."""
    low: np.ndarray
    high: np.ndarray
    times: np.ndarray
    """The steps that the rows are, in order."""
    untrusted: int
    """Steps that were to be compared and are left out, because derivatives there depend on how they are taken."""


def moments_of(
    learner: AnyLearner,
    state: LearnerState,
    episode: Episode,
    costates: Costates,
    discount: float,
    steps: int,
) -> Moments:
    """The first ``steps`` steps of an episode, without those at or right before which a co-state cannot be trusted."""
    if steps < 2 or steps >= len(episode.rewards):
        raise ConfigError(
            f"{steps} steps are to be compared, but the episode has {len(episode.rewards)}. Compare at least 2 and fewer than there are; what comes "
            f"after them is their future, which co-states tell of."
        )
    robot = episode.stage.robot
    stranger = untrained_like(learner, episode.controller)
    untrained = follow(stranger, robot, episode)
    compared, compared_untrained = (
        in_features(episode.controller, episode.hiddens),
        in_features(stranger, untrained),
    )
    sighted = feature_jacobians(
        dataclasses.replace(episode, seen=np.ones_like(episode.seen)),
        costates.linearisation.observation_jacobians,
    )
    kinds = {"closed loop": costates.closed_loop, "open loop": costates.open_loop}
    played = Played(episode.stage.states()[:-1], episode.observations, episode.seen, episode.controls)
    best = episode.task.best_gradients(played, discount)
    # The Hamiltonian of a step has the next co-state in it.
    part = np.flatnonzero(costates.trusted[:steps] & costates.trusted[1 : steps + 1])
    return Moments(
        names=costates.names,
        states=played.states[part],
        observations=(episode.observations * episode.seen[:, None])[part],
        seen=episode.seen[part],
        hiddens=episode.hiddens[part],
        untrained=untrained[part],
        compared=compared[part],
        compared_untrained=compared_untrained[part],
        critic=critic_costates(learner, state, episode)[part],
        gradients={
            kind: rows[part]
            for kind, rows in ({kind: -costate for kind, costate in kinds.items()} | best).items()
        },
        implied=np.einsum("tfx,tf->tx", sighted[part], compared[part]),
        implied_untrained=np.einsum("tfx,tf->tx", sighted[part], compared_untrained[part]),
        controls=episode.controls[part],
        slopes={
            kind: hamiltonian_slopes(costates.linearisation, costate, discount)[part]
            for kind, costate in kinds.items()
        },
        low=np.asarray(robot.action_low, float),
        high=np.asarray(robot.action_high, float),
        times=part,
        untrusted=steps - len(part),
    )


def hamiltonian_slopes(
    steps: Linearisation, costate: Float[np.ndarray, "T X"], discount: float
) -> Float[np.ndarray, "R U"]:
    """∂H_t/∂u_t = ∂ℓ_t/∂u_t + γ B_tᵀ λ_{t+1}, of every step that has a next one."""
    following = np.einsum("txu,tx->tu", steps.control_jacobians[:-1], costate[1:])
    return np.asarray(steps.control_cost_gradients[:-1] + discount * following)


def untrained_like(learner: AnyLearner, controller: AbstractController) -> AbstractController:
    """A controller before its first update, of another seed, with the normaliser of the trained one."""
    fresh = learner.controller(jax.jit(learner.fresh)(jnp.uint32(learner.config.seed + 1)))
    with jax.enable_x64(True):
        doubled: AbstractController = eqx.tree_at(lambda c: c.stats, in_double(fresh), controller.stats)
    return doubled


def follow(
    controller: AbstractController, robot: AbstractActuators, episode: Episode
) -> Float[np.ndarray, "T H"]:
    """Hidden states of a controller that reads an episode of another, and believes to have done what that did."""

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
    """Hidden states in the coordinates of the controller's features."""
    with jax.enable_x64(True):
        return np.asarray(controller.in_features(jnp.asarray(hiddens)))


def critic_costates(learner: AnyLearner, state: LearnerState, episode: Episode) -> Float[np.ndarray, "T F"]:
    """∂V/∂ỹ by the run's critic along an episode."""
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
    """In float32, which the critic was trained in."""
    return jnp.asarray(array, jnp.float32)
