"""Derivatives of a MuJoCo control step along a trajectory: of the next state, of the cost and of what is observed.

Coordinates. The state x is (position, velocity, activation) in MuJoCo's tangent space, of dimension 2nv + na: a ball or a free joint turns about
three axes although its quaternion has four numbers, so positions are displaced by ``mj_integratePos`` and subtracted by ``mj_differentiatePos``.

Sensors of force and acceleration show what happened in the last physics step of a control step, not in the state after it: forces there are not
known before the next control is. So a reading after a step has three arguments: the state, those sensors, and the control that was held.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Float
from costate.control.linearisation import Linearisation, Linearised
from costate.control.slopes import Slopes, agreed_slopes

try:
    import mujoco
except ImportError as error:  # pragma: no cover
    raise ConfigError(
        "Co-states through MuJoCo need MuJoCo itself, which is not installed. Install it with: pip install 'costate[adjoint]'."
    ) from error

# Half the width of differences of a physics step, and what is tried where its two sides disagree. Contacts are stiff springs: at 1e-6 their
# curvature was seen to make λ wrong by 4e-3 of itself, at 1e-7 by 1e-5. Below 1e-9 the solver's own tolerance shows.
PHYSICS_STEPS = (1e-7, 1e-8, 1e-9)
# The same of rewards and observations, which bend less. Robots that start at rest stay within 1e-10 of some kinks for several steps.
READING_STEPS = (1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
# All that the next physics step depends on, the solver's first guess included.
STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


class Snapshot(NamedTuple):
    """A simulation at rest between two control steps."""

    state: Float[np.ndarray, " N"]
    sensors: Float[np.ndarray, " M"]


class Place(NamedTuple):
    """MuJoCo's names for a state."""

    qpos: Float[np.ndarray, " Q"]
    qvel: Float[np.ndarray, " V"]
    act: Float[np.ndarray, " N"]


class Simulation(NamedTuple):
    """A robot, and what is read off it after a control step: the reward first, then the observation. For one thread at a time."""

    model: mujoco.MjModel
    data: mujoco.MjData
    substeps: int
    """Physics steps in a control step."""
    read: Callable[[], Float[np.ndarray, " R"]]


class StepDerivatives(NamedTuple):
    """Of the state after a control step, and of the sensors of force and acceleration that it leaves behind."""

    state_by_state: Float[np.ndarray, "X X"]
    state_by_control: Float[np.ndarray, "X U"]
    sensors_by_state: Float[np.ndarray, "S X"]
    sensors_by_control: Float[np.ndarray, "S U"]


class ReadingDerivatives(NamedTuple):
    """Of reward and observation, by each argument with the others held."""

    by_state: Float[np.ndarray, "R X"]
    by_sensors: Float[np.ndarray, "R S"]
    by_control: Float[np.ndarray, "R U"]


def snapshot(model: mujoco.MjModel, data: mujoco.MjData) -> Snapshot:
    """Where a simulation stands."""
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    return Snapshot(state, data.sensordata.copy())


def place(model: mujoco.MjModel, data: mujoco.MjData, at: Snapshot) -> None:
    """Put a simulation where another stood; what follows from the state is not computed yet."""
    mujoco.mj_setState(model, data, at.state, STATE)
    data.sensordata[:] = at.sensors


def displace(model: mujoco.MjModel, data: mujoco.MjData, displacement: Float[np.ndarray, " X"]) -> None:
    """x ← x ⊕ displacement, in tangent coordinates."""
    mujoco.mj_integratePos(model, data.qpos, displacement[: model.nv], 1.0)
    data.qvel += displacement[model.nv : 2 * model.nv]
    data.act += displacement[2 * model.nv :]


def difference(model: mujoco.MjModel, before: Place, after: Place) -> Float[np.ndarray, " X"]:
    """x_after ⊖ x_before, in tangent coordinates."""
    positions = np.empty(model.nv)
    mujoco.mj_differentiatePos(model, positions, 1.0, before.qpos, after.qpos)
    return np.concatenate([positions, after.qvel - before.qvel, after.act - before.act])


def state_size(model: mujoco.MjModel) -> int:
    """Dimension of the tangent space, 2nv + na."""
    return 2 * int(model.nv) + int(model.na)


def state_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """What each component of x, and of a co-state, belongs to: ``root.x``, ``knee``, ``knee.velocity``, ``lift.activation``."""
    places = [name for joint in range(model.njnt) for name in _joint_names(model, joint)]
    actuators = [
        f"{model.actuator(i).name}.activation"
        for i in range(model.nu)
        for _ in range(model.actuator_actnum[i])
    ]
    return (*places, *(f"{place}.velocity" for place in places), *actuators)


def _joint_names(model: mujoco.MjModel, joint: int) -> list[str]:
    axes = {
        int(mujoco.mjtJoint.mjJNT_FREE): ("x", "y", "z", "turn_x", "turn_y", "turn_z"),
        int(mujoco.mjtJoint.mjJNT_BALL): ("turn_x", "turn_y", "turn_z"),
    }
    name = model.joint(joint).name or f"joint_{joint}"
    return [f"{name}.{axis}" for axis in axes.get(int(model.jnt_type[joint]), ())] or [name]


def late_sensors(model: mujoco.MjModel) -> list[int]:
    """Where in ``sensordata`` the sensors of force and acceleration are: those that a state alone does not determine."""
    late = np.flatnonzero(model.sensor_needstage == int(mujoco.mjtStage.mjSTAGE_ACC))
    return [int(model.sensor_adr[i]) + k for i in late for k in range(model.sensor_dim[i])]


def unclamp_controls(model: mujoco.MjModel) -> None:
    """Let a model take controls beyond an actuator's range, so that derivatives at a bound are those from within."""
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL)


def linearise(
    copies: Sequence[Simulation], at: Sequence[Snapshot], controls: Float[np.ndarray, "T U"]
) -> Linearised:
    """All steps of a trajectory x_0 … x_T, in as many threads as there are copies of the simulation; twice, as :class:`Slopes` are."""
    # Rewards and observations are written in Python, of which only one thread runs at a time; more of them would only wait for each other.
    readings = _along(copies[:1], lambda copy, t: _readings_at(copy, at[t]), len(at))
    steps = _along(copies, lambda copy, t: _step_from(copy, at[t], controls[t]), len(controls))
    versions = (
        (ReadingDerivatives(*readings[:3]), StepDerivatives(*steps[:4])),
        (ReadingDerivatives(*readings[3:]), StepDerivatives(*steps[4:])),
    )
    return Linearised(*(_linearisation(*version) for version in versions))


def _linearisation(readings: ReadingDerivatives, steps: StepDerivatives) -> Linearisation:
    """What is read after each step depends on what was before it through the state and the sensors that the step leaves behind."""
    after = ReadingDerivatives(*(slopes[1:] for slopes in readings))
    by_state = after.by_state @ steps.state_by_state + after.by_sensors @ steps.sensors_by_state
    by_control = (
        after.by_control
        + after.by_state @ steps.state_by_control
        + after.by_sensors @ steps.sensors_by_control
    )
    return Linearisation(
        steps.state_by_state,
        steps.state_by_control,
        -by_state[:, 0],
        -by_control[:, 0],
        readings.by_state[:-1, 1:],
        by_state[:, 1:],
        by_control[:, 1:],
    )


def _along(
    copies: Sequence[Simulation], derive: Callable[[Simulation, int], Iterable[np.ndarray]], count: int
) -> list[np.ndarray]:
    """Derivatives at every time, stacked; each copy of the simulation takes a share of the times."""
    shares = np.array_split(np.arange(count), len(copies))
    with ThreadPoolExecutor(len(copies)) as pool:
        parts = list(pool.map(lambda copy, share: [derive(copy, int(t)) for t in share], copies, shares))
    return [np.stack(column) for column in zip(*(row for part in parts for row in part), strict=True)]


def _readings_at(simulation: Simulation, at: Snapshot) -> tuple[np.ndarray, ...]:
    place(simulation.model, simulation.data, at)
    best, other = reading_derivatives(simulation)
    return *best, *other


def _step_from(
    simulation: Simulation, at: Snapshot, control: Float[np.ndarray, " U"]
) -> tuple[np.ndarray, ...]:
    place(simulation.model, simulation.data, at)
    simulation.data.ctrl[:] = control
    best, other = step_derivatives(simulation)
    return *best, *other


def step_derivatives(simulation: Simulation) -> tuple[StepDerivatives, StepDerivatives]:
    """Of one control step from where the simulation stands, with the control held over its physics steps.

    A = A_n ⋯ A_1,    B = Σ_i A_n ⋯ A_{i+1} B_i
    """
    model, data, late = simulation.model, simulation.data, late_sensors(simulation.model)
    states, controls = state_size(model), int(model.nu)
    best = other = StepDerivatives(
        np.eye(states),
        np.zeros((states, controls)),
        np.zeros((len(late), states)),
        np.zeros((len(late), controls)),
    )
    for _ in range(simulation.substeps):
        slopes = _transition(model, data)
        best, other = _followed_by(best, slopes.best, late), _followed_by(other, slopes.other, late)
        mujoco.mj_step(model, data)
    return best, other


def _followed_by(
    before: StepDerivatives, slopes: Float[np.ndarray, "R N"], late: list[int]
) -> StepDerivatives:
    """One more physics step; ``slopes`` are its own derivatives, of state and all sensors, by state and control."""
    by_state, by_control = before.state_by_state, before.state_by_control
    states = len(by_state)
    A, B = slopes[:states, :states], slopes[:states, states:]
    C, D = slopes[states:, :states][late], slopes[states:, states:][late]
    return StepDerivatives(A @ by_state, A @ by_control + B, C @ by_state, C @ by_control + D)


def _transition(model: mujoco.MjModel, data: mujoco.MjData) -> Slopes:
    """Of the state after one physics step, and of all sensors, by state and control."""
    one_sided = _one_sided_rk4 if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4 else _one_sided
    values = np.concatenate([np.ones(model.nv), np.abs(data.qvel), np.abs(data.act), np.abs(data.sensordata)])
    return agreed_slopes(
        lambda step, columns: one_sided(model, data, step)[:, columns],
        state_size(model) + model.nu,
        PHYSICS_STEPS,
        values,
    )


def _one_sided(model: mujoco.MjModel, data: mujoco.MjData, step: float) -> Float[np.ndarray, "R N"]:
    """MuJoCo's own differences of the next state and of all sensors, by state and control; all start the solver from the same guess."""
    states, controls, sensors = state_size(model), int(model.nu), int(model.nsensordata)
    A, B, C, D = (
        np.zeros(shape)
        for shape in ((states, states), (states, controls), (sensors, states), (sensors, controls))
    )
    # Without sensors of force nobody asks for the derivatives of the others here, and MuJoCo need not take them.
    mujoco.mjd_transitionFD(
        model, data, step, False, A, B, *((C, D) if late_sensors(model) else (None, None))
    )
    return np.block([[A, B], [C, D]])


def _one_sided_rk4(model: mujoco.MjModel, data: mujoco.MjData, step: float) -> Float[np.ndarray, "R N"]:
    """The same for the integrator that ``mjd_transitionFD`` refuses."""
    at, states = snapshot(model, data), state_size(model)

    def after(change: Float[np.ndarray, " N"]) -> tuple[Place, Float[np.ndarray, " M"]]:
        place(model, data, at)
        displace(model, data, change[:states])
        data.ctrl += change[states:]
        mujoco.mj_step(model, data)
        return Place(data.qpos.copy(), data.qvel.copy(), data.act.copy()), data.sensordata.copy()

    here, shown = after(np.zeros(states + model.nu))
    ends = [after(change) for change in step * np.eye(states + model.nu)]
    place(model, data, at)
    return (
        np.stack([np.append(difference(model, here, end), sensors - shown) for end, sensors in ends], axis=1)
        / step
    )


def reading_derivatives(simulation: Simulation) -> tuple[ReadingDerivatives, ReadingDerivatives]:
    """Of reward and observation where the simulation stands."""
    model, data, read = simulation.model, simulation.data, simulation.read
    at, late, states = snapshot(model, data), late_sensors(model), state_size(model)
    directions = states + len(late) + model.nu

    def shown(change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " R"]:
        place(model, data, at)
        displace(model, data, change[:states])
        # The half of a step that needs no control: all that follows from positions and velocities, but no forces.
        mujoco.mj_step1(model, data)
        data.sensordata[late] += change[states : states + len(late)]
        data.ctrl += change[states + len(late) :]
        return read()

    here = shown(np.zeros(directions))

    def one_sided(step: float, columns: np.ndarray) -> Float[np.ndarray, "R C"]:
        return (
            np.stack([shown(step * np.eye(directions)[column]) - here for column in columns], axis=1) / step
        )

    slopes = agreed_slopes(one_sided, directions, READING_STEPS, here)
    best, other = (
        ReadingDerivatives(*np.split(version, [states, states + len(late)], axis=1)) for version in slopes
    )
    return best, other
