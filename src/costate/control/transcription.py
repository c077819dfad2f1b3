"""First guesses for the boundary-value solver: the problem with controls held constant over short steps, minimised over them directly.

Its co-states come from the adjoint recursion, so that the guess fits Pontryagin's conditions as far as the steps are short. A fixed final state is
approached by an augmented Lagrangian, whose multiplier is the final co-state.
"""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from costate._types import Array, Float
from costate.control.adjoint import SampledProblem, rollout, rollout_cost, rollout_costates, sampled
from costate.control.costs import FreeControl
from costate.control.problem import ControlProblem

STEPS = 80
# Where the final time is free, the search starts from each of these.
FINAL_TIMES = (1.0, 3.0, 10.0)
# Controls to start from, as the number of half waves. None of them is a symmetric point, such as a pendulum that hangs and is left alone.
HALF_WAVES = (1, 3, 5)
PENALTIES = (1e1, 1e2, 1e3, 1e4)
ITERATIONS = 300


@dataclasses.dataclass(frozen=True, eq=False)
class Guess:
    """A trajectory with its co-states, good enough to start from."""

    states: Float[np.ndarray, "T X"]
    costates: Float[np.ndarray, "T X"]
    final_time: float
    cost: float
    miss: float
    """How far the end is from the final state; 0 where none is given."""

    @property
    def points(self) -> Float[np.ndarray, "T 1 2 X"]:
        """As one arc."""
        return np.stack([self.states, self.costates], axis=1)[:, None]


class Penalty(eqx.Module):
    """m·(x − x_f) + p|x − x_f|², added to the terminal cost."""

    multiplier: Float[Array, " X"]
    weight: Float[Array, ""]


def transcribe(problem: ControlProblem) -> Guess:
    """The best of several local minima: whatever ends nearest to the final state, then what costs least."""
    final_times = FINAL_TIMES if problem.horizon is None else (problem.horizon,)
    guesses = [_minimise(problem, waves, final_time) for waves, final_time in itertools.product(HALF_WAVES, final_times)]
    return min(guesses, key=lambda guess: (round(guess.miss, 3), guess.cost))


def closest_approach(problem: ControlProblem, final_state: Float[Array, " X"]) -> float:
    """How near to a state any control that was found comes within the horizon and the limits, whatever it costs."""
    reach = dataclasses.replace(
        problem, state_cost=lambda x: jnp.zeros_like(x[0]), control_cost=FreeControl(), terminal_cost=lambda x: jnp.sum((x - final_state) ** 2),
        final_state=None,
    )  # fmt: skip
    return float(np.sqrt(transcribe(reach).cost))


def _minimise(problem: ControlProblem, waves: int, final_time: float) -> Guess:
    """Minimise over controls (and the final time, where it is free) by L-BFGS-B, with a growing penalty on missing the final state."""
    limit = np.asarray(problem.limit)
    wave = np.sin(np.pi * waves * (np.arange(STEPS) + 0.5) / STEPS)
    unknown = np.append(np.outer(wave, 0.3 * np.where(np.isfinite(limit), limit, 1.0)).ravel(), final_time)
    shortest, longest = (0.05 * final_time, 20.0 * final_time) if problem.horizon is None else (final_time, final_time)
    bounds = scipy.optimize.Bounds(np.append(np.tile(-limit, STEPS), shortest), np.append(np.tile(limit, STEPS), longest))
    penalty = Penalty(jnp.zeros(problem.state_size), jnp.zeros(()))
    for weight in (0.0,) if problem.final_state is None else PENALTIES:
        penalty = Penalty(penalty.multiplier, jnp.asarray(weight))
        found = scipy.optimize.minimize(
            lambda z, penalty=penalty: tuple(np.asarray(part) for part in _objective(problem, penalty, jnp.asarray(z))),
            unknown, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS},
        )  # fmt: skip
        unknown, penalty = found.x, _adjusted(problem, penalty, jnp.asarray(found.x))
    return _as_guess(problem, penalty, unknown)


def _as_guess(problem: ControlProblem, penalty: Penalty, unknown: Float[np.ndarray, " N"]) -> Guess:
    converged = Penalty(penalty.multiplier, jnp.zeros(()))
    states, costates, cost = (np.asarray(part) for part in _trajectory(problem, converged, jnp.asarray(unknown)))
    miss = 0.0 if problem.final_state is None else float(np.linalg.norm(states[-1] - np.asarray(problem.final_state)))
    return Guess(states, costates, float(unknown[-1]), float(cost), miss)


def _penalised(problem: ControlProblem, penalty: Penalty, final_time: Float[Array, ""]) -> SampledProblem:
    discrete = sampled(problem, final_time / STEPS)
    final_state = problem.final_state
    if final_state is None:
        return discrete

    def terminal_cost(state: Float[Array, " X"]) -> Float[Array, ""]:
        miss = state - final_state
        return problem.terminal_cost(state) + penalty.multiplier @ miss + penalty.weight * miss @ miss

    return SampledProblem(discrete.transition, discrete.stage_cost, terminal_cost)


@eqx.filter_jit
def _objective(problem: ControlProblem, penalty: Penalty, unknown: Float[Array, " N"]) -> tuple[Float[Array, ""], Float[Array, " N"]]:
    def cost(unknown: Float[Array, " N"]) -> Float[Array, ""]:
        controls = unknown[:-1].reshape(STEPS, problem.control_size)
        return rollout_cost(_penalised(problem, penalty, unknown[-1]), problem.initial_state, controls)

    return jax.value_and_grad(cost)(unknown)


@eqx.filter_jit
def _trajectory(
    problem: ControlProblem, penalty: Penalty, unknown: Float[Array, " N"]
) -> tuple[Float[Array, "T X"], Float[Array, "T X"], Float[Array, ""]]:
    discrete, controls = _penalised(problem, penalty, unknown[-1]), unknown[:-1].reshape(STEPS, problem.control_size)
    start = problem.initial_state
    cost = rollout_cost(sampled(problem, unknown[-1] / STEPS), start, controls)
    return rollout(discrete, start, controls), rollout_costates(discrete, start, controls), cost


@eqx.filter_jit
def _adjusted(problem: ControlProblem, penalty: Penalty, unknown: Float[Array, " N"]) -> Penalty:
    """The multiplier moved by the gradient of the penalty, as the method of multipliers does."""
    if problem.final_state is None:
        return penalty
    end = rollout(sampled(problem, unknown[-1] / STEPS), problem.initial_state, unknown[:-1].reshape(STEPS, problem.control_size))[-1]
    return Penalty(penalty.multiplier + 2.0 * penalty.weight * (end - problem.final_state), penalty.weight)
