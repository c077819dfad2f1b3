"""True co-states along a policy's trajectory, by the adjoint through the simulator.

Hidden states are compared with them.
"""

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

# A co-state that changes by more than this share when derivatives are taken from the other side of a kink is
# not trusted.
TRUST = 0.01


@dataclasses.dataclass(frozen=True)
class Costates:
    """Co-states at x_0 … x_{T−1} of an episode, in the coordinates of its stage.

    They are gradients of cost. A critic's gradients, of reward, are −λ.
    """

    names: tuple[str, ...]
    """Names of the components of x and λ."""
    open_loop: Float[np.ndarray, "T X"]
    """Pontryagin's λ_t: later controls stay as they are."""
    closed_loop: Float[np.ndarray, "T X"]
    """∇_x of the value: later controls react to the state."""
    linearisation: Linearisation
    """A_t, B_t, cost gradients and observation Jacobians."""
    feature_jacobians: Float[np.ndarray, "T F X"]
    """∂ỹ_t/∂x_t; zero during a blackout."""
    step_disagreement: Float[np.ndarray, " T"]
    """max |J − J'| / |J| over each step's derivatives J, J' taken in two ways.

    Large near a kink or a jump.
    """
    open_loop_disagreement: Float[np.ndarray, " T"]
    """|λ_t − λ'_t| / |λ_t| of the co-states λ, λ' by the two sets of derivatives.

    A kink makes all co-states before it uncertain, in proportion to its share in them.
    """
    closed_loop_disagreement: Float[np.ndarray, " T"]

    @property
    def trusted(self) -> Bool[np.ndarray, " T"]:
        """Steps whose co-states differ by at most :data:`TRUST` between the two sets of derivatives."""
        return np.asarray((self.open_loop_disagreement <= TRUST) & (self.closed_loop_disagreement <= TRUST))

    @property
    def doubt(self) -> str | None:
        """A sentence on the co-states that are not to be trusted; None if all are."""
        untrusted = int((~self.trusted).sum())
        if untrusted == 0:
            return None
        worst = max(self.open_loop_disagreement.max(), self.closed_loop_disagreement.max())
        kinks = int((self.step_disagreement > TRUST).sum())
        return (
            f"The co-states of {untrusted} of {len(self.trusted)} steps are not to be trusted: they change "
            f"by more than {TRUST:.0%} of themselves (at most by {_share(worst)}) with the side from which "
            f"derivatives are taken. The derivatives of {kinks} steps depend on the side, because the "
            "simulator or the reward has a kink within rounding of the state. The co-states before these "
            "steps are uncertain too."
        )


def true_costates(
    episode: Episode, discount: float, *, horizon: int | None = None, threads: int | None = None
) -> Costates:
    """Return both co-states of an episode.

    The cost of a step is its negative reward, and nothing follows the last step. So the future of x_t is cut
    off at the end of the episode, which matters for the last few multiples of 1/(1−γ) steps: record more
    steps than you use. Where the robot's motion is chaotic, the end of a long future dominates its gradient;
    with a ``horizon`` only so many steps from each x_t on count.

    Derivatives of a simulator by finite differences are taken in two ways; ``trusted`` says where both agree.
    """
    if not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount is {discount}, but it must lie between 0 and 1. The paper uses 0.99.")
    if horizon is not None and horizon < 1:
        raise ConfigError(
            f"horizon is {horizon}, but at least the cost of 1 step must count. "
            "Leave horizon out to count all steps."
        )
    steps = episode.stage.linearise(episode.controls, threads)
    open_loop, other_open_loop = _by_both_versions(
        steps, lambda version: open_loop_costates(version, discount, horizon)
    )
    closed_loop, other_closed_loop = _by_both_versions(
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


def _by_both_versions(
    steps: Linearised, costates_of: Callable[[Linearisation], Float[np.ndarray, "T X"]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the co-states by both versions of the derivatives. Exact derivatives have only one."""
    best = costates_of(steps.best)
    return best, best if steps.other is steps.best else costates_of(steps.other)


def _share(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio < 10.0 else "more than tenfold"


def policy_costates(
    episode: Episode, steps: Linearisation, discount: float, horizon: int | None = None
) -> Float[np.ndarray, "T X"]:
    """Return the closed-loop co-states of the recorded policy, with its blackouts as they were."""
    robot = episode.stage.robot

    def react(
        seen_and_first: tuple[Array, Array], observation: Float[Array, " O"], memory: PyTree
    ) -> tuple[Float[Array, " U"], PyTree]:
        control, after = episode.controller.decide(robot, one_step(observation, *seen_and_first), memory)
        return control[0], after

    return closed_loop_costates(
        steps, react, _seen_and_first(episode), episode.observations, episode.memories, discount, horizon
    )


def feature_jacobians(
    episode: Episode, observation_jacobians: Float[np.ndarray, "T O X"]
) -> Float[np.ndarray, "T F X"]:
    """Return ∂ỹ_t/∂x_t = (∂ỹ_t/∂y_t)(∂y_t/∂x_t), with the memory held fixed."""

    def feature(
        observation: Float[Array, " O"], seen_and_first: tuple[Array, Array], memory: PyTree
    ) -> Float[Array, " F"]:
        return episode.controller.feature(one_step(observation, *seen_and_first), memory)[0]

    with jax.enable_x64(True):
        rows = jax.tree.map(jnp.asarray, (episode.observations, _seen_and_first(episode), episode.memories))
        by_observation = jax.jit(jax.vmap(jax.jacfwd(feature)))(*rows)
        return np.asarray(by_observation @ jnp.asarray(observation_jacobians))


def _seen_and_first(episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Return for every step whether the policy saw the observation, and whether it is the first."""
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
    """Record an episode of a run's newest checkpoint, or of the one at step ``checkpoint``.

    ``dropout`` defaults to that of training.
    """
    run = run if isinstance(run, Run) else open_run(pathlib.Path(run))
    check_seed(seed)
    _, controller = load_controller(run, checkpoint, warn)
    sensors = only_blackouts(run.config.sensors, dropout)
    return record_episode(run.config.task, controller, seed=seed, dropout=sensors.dropout, steps=steps)


def discount_of(run: Run) -> float:
    """Return the discount that a run was trained with."""
    return run.config.learner.discount
