"""First guesses for the boundary-value solver, by direct minimisation over controls held for short steps.

The method is iterated LQR with limits (Tassa, Mansard and Todorov, 2014). It linearises the motion and makes
the cost quadratic around a trajectory, solves that problem by the Riccati recursion, and follows the
resulting feedback. The feedback keeps unstable systems on course, which a change of open-loop controls would
not. The gradient of the value function is the guess of the co-state. A fixed final state is approached by the
method of multipliers.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from costate._base.types import Array, Float
from costate.control.adjoint import runge_kutta_step
from costate.control.costs import FreeControl
from costate.control.problem import Control, ControlProblem, State

STEPS = 80
# Candidates for a free final time. The boundary-value solver refines the best one.
FINAL_TIMES = tuple(np.geomspace(0.3, 30.0, 9).tolist())
# Initial controls, given as a number of half waves. None of them leaves the system at a symmetric point, such
# as a pendulum hanging at rest.
HALF_WAVES = (1, 3)
PENALTIES = (1e1, 1e2, 1e3, 1e4)
ITERATIONS = 60
# A trajectory counts as optimal when the relative gain falls below this.
SMALLEST_GAIN = 1e-9
# Damping of the steps: the initial value, and the value at which the search stops.
FIRST_DAMPING, LARGEST_DAMPING = 1e-4, 1e8
STRIDES = 2.0 ** -np.arange(10.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Guess:
    """A trajectory and its co-states, from which the boundary-value solver can start."""

    states: Float[np.ndarray, "T X"]
    costates: Float[np.ndarray, "T X"]
    final_time: float
    cost: float
    miss: float
    """Distance between the end and the final state. 0 if none is given."""

    @property
    def points(self) -> Float[np.ndarray, "T 1 2 X"]:
        """The trajectory as a single arc."""
        return np.stack([self.states, self.costates], axis=1)[:, None]


class Plan(NamedTuple):
    """A sequence of controls and the resulting states."""

    states: Float[Array, "T+1 X"]
    controls: Float[Array, "T U"]
    objective: Float[Array, ""]
    """The cost including the penalty."""


class Penalised(eqx.Module):
    """A problem with a given final time and a penalty on missing the final state, if one is given.

    The terminal cost is increased by m·(x − x_f) + p|x − x_f|².
    """

    problem: ControlProblem
    step: Float[Array, ""]
    multiplier: Float[Array, " X"]
    weight: Float[Array, ""]

    def miss(self, final: State) -> State:
        return jnp.zeros_like(final) if self.problem.final_state is None else final - self.problem.final_state

    def terminal_cost(self, final: State) -> Float[Array, ""]:
        miss = self.miss(final)
        return self.problem.terminal_cost(final) + self.multiplier @ miss + self.weight * miss @ miss

    def advance(self, state: State, control: Control) -> tuple[State, Float[Array, ""]]:
        return runge_kutta_step(self.problem, state, control, self.step)


def transcribe(problem: ControlProblem) -> Guess:
    """Return the best of several local minima: the nearest to the final state, then the cheapest."""
    starts = (
        [(HALF_WAVES[0], time) for time in FINAL_TIMES]
        if problem.horizon is None
        else [(waves, problem.horizon) for waves in HALF_WAVES]
    )
    guesses = [_minimise(problem, waves, final_time) for waves, final_time in starts]
    return min(guesses, key=lambda guess: (round(guess.miss, 2), guess.cost))


def closest_approach(problem: ControlProblem, final_state: Float[Array, " X"]) -> float:
    """Return the smallest distance from a state found at any cost within the horizon and the limits."""
    reach = dataclasses.replace(
        problem,
        state_cost=lambda x: jnp.zeros_like(x[0]),
        control_cost=FreeControl(),
        terminal_cost=lambda x: jnp.sum((x - final_state) ** 2),
        final_state=None,
    )
    return float(np.sqrt(transcribe(reach).cost))


def _minimise(problem: ControlProblem, waves: int, final_time: float) -> Guess:
    """Return one local minimum, found with a growing penalty on missing the final state."""
    amplitude = 0.3 * jnp.where(jnp.isfinite(problem.limit), problem.limit, 1.0)
    controls = jnp.outer(jnp.sin(jnp.pi * waves * (jnp.arange(STEPS) + 0.5) / STEPS), amplitude)
    multiplier = jnp.zeros(problem.state_size)
    for weight in (0.0,) if problem.final_state is None else PENALTIES:
        penalised = Penalised(problem, jnp.asarray(final_time / STEPS), multiplier, jnp.asarray(weight))
        plan = _descend(penalised, controls)
        miss = penalised.miss(plan.states[-1])
        # The method of multipliers: the multiplier moves by the gradient of the penalty.
        controls, multiplier = plan.controls, multiplier + 2.0 * weight * miss
    _, costates = _improve(penalised, plan, jnp.asarray(FIRST_DAMPING))
    cost = float(
        plan.objective - penalised.terminal_cost(plan.states[-1]) + problem.terminal_cost(plan.states[-1])
    )
    return Guess(
        np.asarray(plan.states), np.asarray(costates), final_time, cost, float(jnp.linalg.norm(miss))
    )


def _descend(penalised: Penalised, controls: Float[Array, "T U"]) -> Plan:
    """Take steps of iterated LQR until the gain is negligible."""
    plan, damping = _start(penalised, controls), FIRST_DAMPING
    for _ in range(ITERATIONS):
        better, _ = _improve(penalised, plan, jnp.asarray(damping))
        gain = float(plan.objective - better.objective)
        if gain > 0.0:
            plan, damping = better, max(damping / 10.0, 1e-10)
            if gain < SMALLEST_GAIN * (1.0 + abs(float(plan.objective))):
                break
        else:
            damping *= 10.0
            if damping > LARGEST_DAMPING:
                break
    return plan


class _Sweep(NamedTuple):
    """Result of the Riccati recursion around a plan: the correction, and the gradient of the value.

    The correction is u ← u + feedforward + feedback · (x − x_plan).
    """

    feedforward: Float[Array, "T U"]
    feedback: Float[Array, "T U X"]
    costates: Float[Array, "T+1 X"]


class _Model(NamedTuple):
    """The motion to first order and the cost to second order in z = (x, u), around one step of a plan."""

    jacobian: Float[Array, "X Z"]
    slope: Float[Array, " Z"]
    curvature: Float[Array, "Z Z"]


@eqx.filter_jit
def _start(penalised: Penalised, controls: Float[Array, "T U"]) -> Plan:
    states = jnp.zeros((STEPS + 1, penalised.problem.state_size))
    still = _Sweep(jnp.zeros_like(controls), jnp.zeros((*controls.shape, states.shape[1])), states)
    return _follow(penalised, Plan(states, controls, jnp.zeros(())), still, jnp.zeros(()))


@eqx.filter_jit
def _improve(penalised: Penalised, plan: Plan, damping: Float[Array, ""]) -> tuple[Plan, Float[Array, "T X"]]:
    """Return the best plan over several step sizes along the LQR solution, and the old plan's co-states."""
    sweep = _sweep(penalised, plan, damping)
    plans = jax.vmap(lambda stride: _follow(penalised, plan, sweep, stride))(jnp.asarray(STRIDES))
    best = jnp.nanargmin(jnp.where(jnp.isfinite(plans.objective), plans.objective, jnp.inf))
    return jax.tree.map(lambda values: values[best], plans), sweep.costates


def _follow(penalised: Penalised, plan: Plan, sweep: _Sweep, stride: Float[Array, ""]) -> Plan:
    """Return the plan that results from the corrections."""
    limit = penalised.problem.limit

    def advance(
        state: State, row: tuple[State, Control, Control, Float[Array, "U X"]]
    ) -> tuple[State, tuple[State, Control, Float[Array, ""]]]:
        planned, control, feedforward, feedback = row
        chosen = jnp.clip(control + stride * feedforward + feedback @ (state - planned), -limit, limit)
        after, cost = penalised.advance(state, chosen)
        return after, (after, chosen, cost)

    start = penalised.problem.initial_state
    final, (states, controls, costs) = jax.lax.scan(
        advance, start, (plan.states[:-1], plan.controls, sweep.feedforward, sweep.feedback)
    )
    return Plan(
        jnp.concatenate([start[None], states]), controls, costs.sum() + penalised.terminal_cost(final)
    )


def _sweep(penalised: Penalised, plan: Plan, damping: Float[Array, ""]) -> _Sweep:
    """Run the Riccati recursion backwards through the plan: V(x) ≈ λᵀδx + ½ δxᵀWδx at every step."""
    size = penalised.problem.state_size

    def outcome(joint: Float[Array, " Z"]) -> Float[Array, " Y"]:
        after, cost = penalised.advance(joint[:size], joint[size:])
        return jnp.append(after, cost)

    def model(joint: Float[Array, " Z"]) -> _Model:
        jacobian = jax.jacfwd(outcome)(joint)
        # The curvature is that of the running cost alone, not of the whole step. It only affects step sizes,
        # and compiles in a fraction of the time.
        curvature = jax.hessian(lambda z: penalised.problem.running_cost(z[:size], z[size:]))(joint)
        return _Model(jacobian[:-1], jacobian[-1], penalised.step * curvature)

    def retreat(
        value: tuple[State, Float[Array, "X X"]], row: tuple[_Model, Control]
    ) -> tuple[tuple[State, Float[Array, "X X"]], _Sweep]:
        slope, curvature = value
        step, control = row
        q = step.slope + step.jacobian.T @ slope
        qq = step.curvature + step.jacobian.T @ curvature @ step.jacobian
        feedforward, feedback = _limited_step(q[size:], qq[size:], control, penalised.problem.limit, damping)
        # The value of the step that is actually taken, which may not be the best one.
        new_slope = (
            q[:size]
            + feedback.T @ (q[size:] + qq[size:, size:] @ feedforward)
            + qq[size:, :size].T @ feedforward
        )
        mixed = feedback.T @ qq[size:, :size]
        new_curvature = qq[:size, :size] + mixed + mixed.T + feedback.T @ qq[size:, size:] @ feedback
        return (new_slope, new_curvature), _Sweep(feedforward, feedback, q[:size])

    final = plan.states[-1]
    end = jax.grad(penalised.terminal_cost)(final), jax.hessian(penalised.terminal_cost)(final)
    models = jax.vmap(model)(jnp.concatenate([plan.states[:-1], plan.controls], axis=1))
    _, sweep = jax.lax.scan(retreat, end, (models, plan.controls), reverse=True)
    return sweep._replace(costates=jnp.concatenate([sweep.costates, end[0][None]]))


def _limited_step(
    slope: Control,
    curvature: Float[Array, "U Z"],
    control: Control,
    limit: Control,
    damping: Float[Array, ""],
) -> tuple[Control, Float[Array, "U X"]]:
    """Return the minimiser of slopeᵀδu + ½ δuᵀ(Q_uu + damping)δu as δu = feedforward + feedback · δx.

    Components that would exceed a limit stop at it.
    """
    width = slope.shape[0]
    values, vectors = jnp.linalg.eigh(curvature[:, -width:])
    inverse = vectors @ jnp.diag(1.0 / (jnp.maximum(values, 0.0) + damping)) @ vectors.T
    wanted = -inverse @ slope
    stopped = (control + wanted >= limit) | (control + wanted <= -limit)
    feedback = jnp.where(stopped[:, None], 0.0, -inverse @ curvature[:, :-width])
    return jnp.clip(control + wanted, -limit, limit) - control, feedback
