"""The true co-states along a policy's trajectory, by the adjoint through the simulator: what hidden states are compared with."""

import dataclasses
import pathlib
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, PyTree
from costate.config.run_config import check_seed
from costate.control.linearisation import (
    Linearisation,
    Linearised,
    closed_loop_costates,
    disagreement,
    open_loop_costates,
    step_disagreement,
)
from costate.envs.sensors import only_blackouts
from costate.runs.run_directory import Run, open_run
from costate.trained.recording import Episode, one_step, record_episode
from costate.trained.trained import load_controller

# A co-state that changes by more than this share of itself when derivatives are taken from the other side of a kink is not to be trusted.
TRUST = 0.01


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
    step_disagreement: Float[np.ndarray, " T"]
    """Of the derivatives of each step, taken in two ways: the largest |J − J'| / |J|. Large where the state is on a kink or a jump."""
    open_loop_disagreement: Float[np.ndarray, " T"]
    """|λ_t − λ'_t| / |λ_t| of the co-states that follow from either. A kink makes all co-states before it uncertain, in proportion to its share."""
    closed_loop_disagreement: Float[np.ndarray, " T"]

    @property
    def trusted(self) -> Bool[np.ndarray, " T"]:
        """Where neither co-state changes by more than 1 % of itself (:data:`TRUST`) with the way in which derivatives are taken."""
        return np.asarray((self.open_loop_disagreement <= TRUST) & (self.closed_loop_disagreement <= TRUST))

    @property
    def doubt(self) -> str | None:
        """One sentence on the co-states that are not to be trusted; None if all are."""
        untrusted = int((~self.trusted).sum())
        if untrusted == 0:
            return None
        worst = max(self.open_loop_disagreement.max(), self.closed_loop_disagreement.max())
        kinks = int((self.step_disagreement > TRUST).sum())
        return (
            f"The co-states of {untrusted} of {len(self.trusted)} steps are not to be trusted: they change by more than {TRUST:.0%} of themselves "
            f"(at most by {_share(worst)}) with the side from which derivatives are taken. Such derivatives were met at {kinks} steps, where the "
            f"simulator or the reward has a kink within rounding of the state, and make the co-states before them uncertain too."
        )


def true_costates(
    episode: Episode, discount: float, *, horizon: int | None = None, threads: int | None = None
) -> Costates:
    """Both co-states of an episode; the cost of a step is the negative of its reward, and after the last step nothing follows.

    So the future of x_t is cut at the end of the episode, which matters for the last few multiples of 1/(1−γ) steps: record more steps than you
    use. Where the robot's motion is chaotic, the gradient of a long future is dominated by its end; a ``horizon`` counts only so many steps from
    each x_t on.

    Where a simulator is differentiated by differences, all of it is done in two ways, and the result says where they disagree (``trusted``).
    """
    if not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount is {discount}, but it must lie between 0 and 1. The paper uses 0.99.")
    if horizon is not None and horizon < 1:
        raise ConfigError(
            f"horizon is {horizon}, but at least the cost of 1 step must count. Leave it out to count all of them."
        )
    steps = episode.stage.linearise(episode.controls, threads)
    open_loop, other_open_loop = _of_both(
        steps, lambda version: open_loop_costates(version, discount, horizon)
    )
    closed_loop, other_closed_loop = _of_both(
        steps, lambda version: policy_costates(episode, version, discount, horizon)
    )
    return Costates(
        names=episode.stage.state_names,
        open_loop=open_loop,
        closed_loop=closed_loop,
        linearisation=steps.best,
        feature_jacobians=feature_jacobians(episode, steps.best.observation_jacobians),
        step_disagreement=step_disagreement(steps),
        open_loop_disagreement=disagreement(open_loop, other_open_loop),
        closed_loop_disagreement=disagreement(closed_loop, other_closed_loop),
    )


def _of_both(
    steps: Linearised, costates_of: Callable[[Linearisation], Float[np.ndarray, "T X"]]
) -> tuple[np.ndarray, np.ndarray]:
    """Co-states by both versions of the derivatives; exact ones have only one."""
    best = costates_of(steps.best)
    return best, best if steps.other is steps.best else costates_of(steps.other)


def _share(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio < 10.0 else "more than tenfold"


def policy_costates(
    episode: Episode, steps: Linearisation, discount: float, horizon: int | None = None
) -> Float[np.ndarray, "T X"]:
    """The closed-loop co-states of the policy that acted, which saw and was blind as it was then."""
    robot = episode.stage.robot

    def react(
        particular: tuple[Array, Array], observation: Float[Array, " O"], memory: PyTree
    ) -> tuple[Float[Array, " U"], PyTree]:
        control, after = episode.controller.decide(robot, one_step(observation, *particular), memory)
        return control[0], after

    return closed_loop_costates(
        steps, react, _particulars(episode), episode.observations, episode.memories, discount, horizon
    )


def feature_jacobians(
    episode: Episode, observation_jacobians: Float[np.ndarray, "T O X"]
) -> Float[np.ndarray, "T F X"]:
    """∂ỹ_t/∂x_t = (∂ỹ_t/∂y_t)(∂y_t/∂x_t), with what was remembered held."""

    def feature(
        observation: Float[Array, " O"], particular: tuple[Array, Array], memory: PyTree
    ) -> Float[Array, " F"]:
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
    return run.config.learner.discount
