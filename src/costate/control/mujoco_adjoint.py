"""Derivatives of MuJoCo control steps along a trajectory: of the next state, the cost and the observation.

Coordinates. The state x is (position, velocity, activation) in MuJoCo's tangent space, of dimension 2nv + na.
A ball or free joint has a quaternion of four numbers but turns about three axes. Positions are therefore
displaced by ``mj_integratePos`` and subtracted by ``mj_differentiatePos``.

Force and acceleration sensors report the last physics step of a control step, not the state after it, because
forces after it depend on the next control. A reading after a step therefore has three arguments: the state,
the values of those sensors, and the control that was held.
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
        "Co-states through MuJoCo need MuJoCo itself, which is not installed. "
        "Install it with: pip install 'costate[adjoint]'."
    ) from error

# Half-widths of the differences of a physics step, tried in order while the two sides disagree. Contacts are
# stiff springs: their curvature was seen to give λ a relative error of 4e-3 at 1e-6 and of 1e-5 at 1e-7.
# Below 1e-9 the solver's own tolerance shows.
PHYSICS_STEPS = (1e-7, 1e-8, 1e-9)
# The same for rewards and observations, whose curvature is smaller. Robots that start at rest stay within
# 1e-10 of some kinks for several steps.
READING_STEPS = (1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
# Everything that the next physics step depends on, including the solver's first guess.
STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


class Snapshot(NamedTuple):
    """The complete state of a simulation between two control steps."""

    state: Float[np.ndarray, " N"]
    sensors: Float[np.ndarray, " M"]


class Coordinates(NamedTuple):
    """A state, under MuJoCo's field names."""

    qpos: Float[np.ndarray, " Q"]
    qvel: Float[np.ndarray, " V"]
    act: Float[np.ndarray, " N"]


class Simulation(NamedTuple):
    """A robot and a function that reads the reward, then the observation, after a control step.

    It may be used by one thread at a time.
    """

    model: mujoco.MjModel
    data: mujoco.MjData
    substeps: int
    """Physics steps in a control step."""
    read: Callable[[], Float[np.ndarray, " R"]]


class StepDerivatives(NamedTuple):
    """Derivatives of a control step.

    They are those of the state after the step and of its force and acceleration sensors.
    """

    state_by_state: Float[np.ndarray, "X X"]
    state_by_control: Float[np.ndarray, "X U"]
    sensors_by_state: Float[np.ndarray, "S X"]
    sensors_by_control: Float[np.ndarray, "S U"]


class ReadingDerivatives(NamedTuple):
    """Partial derivatives of reward and observation by each argument."""

    by_state: Float[np.ndarray, "R X"]
    by_sensors: Float[np.ndarray, "R S"]
    by_control: Float[np.ndarray, "R U"]


def snapshot(model: mujoco.MjModel, data: mujoco.MjData) -> Snapshot:
    """Return the present state and sensor values of a simulation."""
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    return Snapshot(state, data.sensordata.copy())


def place(model: mujoco.MjModel, data: mujoco.MjData, at: Snapshot) -> None:
    """Restore a snapshot. Quantities that MuJoCo derives from the state are not recomputed."""
    mujoco.mj_setState(model, data, at.state, STATE)
    data.sensordata[:] = at.sensors


def displace(model: mujoco.MjModel, data: mujoco.MjData, displacement: Float[np.ndarray, " X"]) -> None:
    """Apply x ← x ⊕ displacement, in tangent coordinates."""
    mujoco.mj_integratePos(model, data.qpos, displacement[: model.nv], 1.0)
    data.qvel += displacement[model.nv : 2 * model.nv]
    data.act += displacement[2 * model.nv :]


def difference(model: mujoco.MjModel, before: Coordinates, after: Coordinates) -> Float[np.ndarray, " X"]:
    """Return x_after ⊖ x_before, in tangent coordinates."""
    positions = np.empty(model.nv)
    mujoco.mj_differentiatePos(model, positions, 1.0, before.qpos, after.qpos)
    return np.concatenate([positions, after.qvel - before.qvel, after.act - before.act])


def state_size(model: mujoco.MjModel) -> int:
    """Return the dimension of the tangent space, 2nv + na."""
    return 2 * int(model.nv) + int(model.na)


def state_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the name of each component of x, and of a co-state.

    Examples are ``root.x``, ``knee``, ``knee.velocity`` and ``lift.activation``.
    """
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
    """Return the indices into ``sensordata`` of the force and acceleration sensors.

    The state alone does not determine their values.
    """
    late = np.flatnonzero(model.sensor_needstage == int(mujoco.mjtStage.mjSTAGE_ACC))
    return [int(model.sensor_adr[i]) + k for i in late for k in range(model.sensor_dim[i])]


def unclamp_controls(model: mujoco.MjModel) -> None:
    """Disable the clamping of controls, so that derivatives at a bound equal those inside the range."""
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL)


def linearise(
    copies: Sequence[Simulation], at: Sequence[Snapshot], controls: Float[np.ndarray, "T U"]
) -> Linearised:
    """Linearise all steps of a trajectory x_0 … x_T, with one thread per copy of the simulation.

    The two results correspond to the two versions of :class:`Slopes`.
    """
    # Rewards and observations run in Python, one thread at a time, so more copies would not help.
    readings = _derive_along(copies[:1], lambda copy, t: _readings_at(copy, at[t]), len(at))
    steps = _derive_along(copies, lambda copy, t: _step_from(copy, at[t], controls[t]), len(controls))
    versions = (
        (ReadingDerivatives(*readings[:3]), StepDerivatives(*steps[:4])),
        (ReadingDerivatives(*readings[3:]), StepDerivatives(*steps[4:])),
    )
    return Linearised(*(_linearisation(*version) for version in versions))


def _linearisation(readings: ReadingDerivatives, steps: StepDerivatives) -> Linearisation:
    """Combine the derivatives of readings and steps.

    A reading after a step depends on what came before through the state and sensors that the step produces.
    """
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


def _derive_along(
    copies: Sequence[Simulation], derive: Callable[[Simulation, int], Iterable[np.ndarray]], count: int
) -> list[np.ndarray]:
    """Return derivatives at every time, stacked. Each copy of the simulation handles a share of the times."""
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
    """Return derivatives of one control step from the present state, with the control held throughout.

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
        best, other = (
            _append_physics_step(best, slopes.best, late),
            _append_physics_step(other, slopes.other, late),
        )
        mujoco.mj_step(model, data)
    return best, other


def _append_physics_step(
    before: StepDerivatives, slopes: Float[np.ndarray, "R N"], late: list[int]
) -> StepDerivatives:
    """Append one physics step to the control step.

    ``slopes`` are the derivatives of that physics step: of the state and all sensors, by state and control.
    """
    by_state, by_control = before.state_by_state, before.state_by_control
    states = len(by_state)
    A, B = slopes[:states, :states], slopes[:states, states:]
    C, D = slopes[states:, :states][late], slopes[states:, states:][late]
    return StepDerivatives(A @ by_state, A @ by_control + B, C @ by_state, C @ by_control + D)


def _transition(model: mujoco.MjModel, data: mujoco.MjData) -> Slopes:
    """Return derivatives of the state after one physics step, and of all sensors, by state and control."""
    one_sided = _one_sided_rk4 if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4 else _one_sided
    values = np.concatenate([np.ones(model.nv), np.abs(data.qvel), np.abs(data.act), np.abs(data.sensordata)])
    return agreed_slopes(
        lambda step, columns: one_sided(model, data, step)[:, columns],
        state_size(model) + model.nu,
        PHYSICS_STEPS,
        values,
    )


def _one_sided(model: mujoco.MjModel, data: mujoco.MjData, step: float) -> Float[np.ndarray, "R N"]:
    """Return MuJoCo's own differences of the next state and of all sensors, by state and control.

    All evaluations start the solver from the same guess.
    """
    states, controls, sensors = state_size(model), int(model.nu), int(model.nsensordata)
    A, B, C, D = (
        np.zeros(shape)
        for shape in ((states, states), (states, controls), (sensors, states), (sensors, controls))
    )
    # Only derivatives of force and acceleration sensors are used. Without such sensors MuJoCo can skip them
    # all.
    mujoco.mjd_transitionFD(
        model, data, step, False, A, B, *((C, D) if late_sensors(model) else (None, None))
    )
    return np.block([[A, B], [C, D]])


def _one_sided_rk4(model: mujoco.MjModel, data: mujoco.MjData, step: float) -> Float[np.ndarray, "R N"]:
    """Return the same for the RK4 integrator, which ``mjd_transitionFD`` does not support."""
    at, states = snapshot(model, data), state_size(model)

    def after(change: Float[np.ndarray, " N"]) -> tuple[Coordinates, Float[np.ndarray, " M"]]:
        place(model, data, at)
        displace(model, data, change[:states])
        data.ctrl += change[states:]
        mujoco.mj_step(model, data)
        return Coordinates(data.qpos.copy(), data.qvel.copy(), data.act.copy()), data.sensordata.copy()

    here, shown = after(np.zeros(states + model.nu))
    ends = [after(change) for change in step * np.eye(states + model.nu)]
    place(model, data, at)
    return (
        np.stack([np.append(difference(model, here, end), sensors - shown) for end, sensors in ends], axis=1)
        / step
    )


def reading_derivatives(simulation: Simulation) -> tuple[ReadingDerivatives, ReadingDerivatives]:
    """Return derivatives of reward and observation at the present state."""
    model, data, read = simulation.model, simulation.data, simulation.read
    at, late, states = snapshot(model, data), late_sensors(model), state_size(model)
    directions = states + len(late) + model.nu

    def shown(change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " R"]:
        place(model, data, at)
        displace(model, data, change[:states])
        # The first half of a step, which needs no control: what follows from positions and velocities, but no
        # forces.
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
