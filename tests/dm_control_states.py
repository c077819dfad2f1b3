"""Put dm_control into the physical state of another engine, given only that engine's observations.

For most robots one observation determines the state, up to symmetries that no task observes, such as a shift
along the floor. For the others the start of the episode determines the rest: motion from rest gives the
orientation, and the response to the first actions gives springs or gears drawn for the episode. From then on,
unobserved quantities are those that dm_control itself reached in the previous step.
"""

import os

os.environ.setdefault(
    "MUJOCO_GL", "disable"
)  # nothing is drawn; looking for a graphics card costs seconds and warnings

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_control import suite
from dm_control.mujoco import Physics
from dm_control.rl.control import Environment
from scipy.optimize import minimize_scalar
from scipy.spatial.transform import Rotation

from costate.envs.suites.dm_control import SuiteTask

Fields = dict[str, np.ndarray]
Edit = tuple[str, Any, np.ndarray]


@dataclasses.dataclass(frozen=True)
class State:
    """The complete state, which determines the next step."""

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """Activations of the actuators."""
    model: tuple[Edit, ...] = ()
    """The episode's changes to the model, such as the position of the target: attribute, index, value."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """Observations and actions of one environment of an engine."""

    seen: list[Fields]
    actions: np.ndarray


class UndeterminedError(Exception):
    """The observations do not determine the state."""


def load(task: SuiteTask, seed: int = 0) -> Environment:
    """Load dm_control's environment as it is installed."""
    environment = suite.load(task.domain, task.goal, task_kwargs={"random": seed})
    # dm_control's rough terrain updates the renderer's copy of the terrain, but there is no renderer here.
    type(environment.physics).contexts = None
    return environment


@functools.cache
def load_softened(task: SuiteTask) -> Environment:
    """Load dm_control's environment with the behaviour of EnvPool's version of MuJoCo."""
    environment = load(task)
    _soften_as_mujoco_3_6(environment.physics)
    return environment


def _soften_as_mujoco_3_6(physics: Physics) -> None:
    """Undo a change of MuJoCo 3.7, so that all remaining differences are those of the engines.

    The softness of a contact depends on two inverse weights of a body, for translation and rotation, which
    MuJoCo measures in the initial pose. A body on a hinge through its centre of mass cannot be translated. Up
    to 3.6, which EnvPool contains, such a body got the inverse weight of rotation instead. Since 3.7 it has
    0, which makes its contacts harder: those of the finger's spinner by a factor of 64. It is the only such
    body with contacts in the suite.
    """
    weights = physics.model.body_invweight0
    weights[1:] = np.where(weights[1:] == 0.0, weights[1:, ::-1], weights[1:])


def fields(task: SuiteTask, observation: np.ndarray) -> Fields:
    """Return one observation vector by names, in the precision of MuJoCo."""
    ends = np.cumsum([size for _, size in task.observation])
    parts = np.split(observation.astype(np.float64), ends[:-1])
    return {name: part for (name, _), part in zip(task.observation, parts, strict=True)}


def flat(observation: Mapping[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in observation.values()])


def distance(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Return the largest difference of any component, relative for large components."""
    a, b = flat(ours), flat(theirs)
    return float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(b))))


def follow(task: SuiteTask, environment: Environment, episode: Episode) -> list[dm_env.TimeStep]:
    """Return dm_control's response to every action of an episode, each from the state before the action."""
    steps, poses = _replay(task, environment, episode, heading=0.0)
    if task.domain in HEADLESS:
        misfits = np.array(
            [distance(step.observation, seen) for step, seen in zip(steps, episode.seen[1:], strict=True)]
        )
        slips = [int(i) for i in np.flatnonzero(misfits > 5e-3)]
        if task.domain == "dog":
            # A dog senses its tilt, and its largest slip is most informative. A quadruped's tilt is carried
            # over, and is wrong after its first slip.
            slips.sort(key=lambda i: -misfits[i])
        if heading := next(
            filter(None, (_heading(task, environment, episode, poses[i], i) for i in slips)), None
        ):
            steps, _ = _replay(task, environment, episode, heading)
    return steps


def _replay(
    task: SuiteTask, environment: Environment, episode: Episode, heading: float
) -> tuple[list[dm_env.TimeStep], list[np.ndarray]]:
    """Return the responses, and the poses that dm_control itself had before each of them."""
    environment.reset()
    physics = environment.physics
    if find := OPENINGS.get((task.domain, task.goal), OPENINGS.get((task.domain, ""))):
        find(environment, episode)
    if heading:
        _turn(physics, heading)
    steps, poses = [], []
    for seen, action, after in zip(episode.seen[:-1], episode.actions, episode.seen[1:], strict=True):
        poses.append(physics.data.qpos.copy())
        steps.append(_answer(environment, state(task, seen, physics), action))
        if task.domain not in CARRIED and distance(steps[-1].observation, after) > 1e-4:
            steps[-1] = _nearest(task, environment, seen, action, after)
    return steps, poses


def _answer(environment: Environment, at: State, action: np.ndarray) -> dm_env.TimeStep:
    """Take one step from a state, whatever the number of steps before."""
    environment._step_count = 0  # otherwise the episode would end after a thousand attempts
    place(environment.physics, at)
    return environment.step(action)


def _nearest(
    task: SuiteTask, environment: Environment, seen: Fields, action: np.ndarray, after: Fields
) -> dm_env.TimeStep:
    """Return the best response from the states that round to the same observation.

    If bodies barely touch, rounding an observation to 32 bits decides whether they do, and so how they move.
    """
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(30):
        nudged = {
            name: value + rng.uniform(-0.5, 0.5, value.shape) * np.spacing(np.abs(value).astype(np.float32))
            for name, value in seen.items()
        }
        answers.append(_answer(environment, state(task, nudged, environment.physics), action))
    return min(answers, key=lambda answer: distance(answer.observation, after))


def _heading(
    task: SuiteTask, environment: Environment, episode: Episode, pose: np.ndarray, step: int
) -> float | None:
    """Return the heading of a body at which one step fits best, if the step depends on it.

    MuJoCo's friction is a pyramid, so it depends on direction. A sliding foot therefore determines the
    heading, up to quarter turns.
    """
    physics = environment.physics

    def misfit(heading: float) -> float:
        physics.data.qpos[:] = pose
        _turn(physics, heading)
        answer = _answer(environment, state(task, episode.seen[step], physics), episode.actions[step])
        return distance(answer.observation, episode.seen[step + 1])

    quarter = np.pi / 2
    few = [misfit(heading) for heading in np.linspace(0.0, quarter, 4, endpoint=False)]
    if max(few) < 1.1 * min(few):
        return None
    trials, width = np.linspace(0.0, quarter, 24, endpoint=False, retstep=True)
    near = min(trials, key=misfit)
    return float(
        minimize_scalar(
            misfit, bounds=(near - width, near + width), method="bounded", options={"xatol": 1e-8}
        ).x
    )


def _turn(physics: Physics, heading: float) -> None:
    physics.data.qpos[3:7] = _quaternion(
        Rotation.from_euler("z", heading) * _rotation(physics.data.qpos[3:7])
    )
    physics.forward()


def state(task: SuiteTask, seen: Fields, physics: Physics) -> State:
    """Return the state that an observation implies. ``physics`` is in the state after the previous step."""
    if task.domain in FROM_OBSERVATION:
        return FROM_OBSERVATION[task.domain](seen)
    return WITH_KINEMATICS[task.domain](seen, physics)


def place(physics: Physics, at: State) -> None:
    for attribute, index, value in at.model:
        getattr(physics.named.model, attribute)[index] = value
    physics.data.qpos[:] = at.qpos
    physics.data.qvel[:] = at.qvel
    physics.data.act[:] = at.act
    physics.forward()


# --- One observation is enough ---


def joints(seen: Fields) -> State:
    return State(seen["position"], seen["velocity"])


def on_a_line(seen: Fields) -> State:
    """The position of a runner along its path is not observed, and does not matter."""
    return State(np.append(0.0, seen["position"]), seen["velocity"])


def acrobot(seen: Fields) -> State:
    sines, cosines = seen["orientations"].reshape(2, 2)
    return State(_relative(np.arctan2(sines, cosines)), seen["velocity"])


def cartpole(seen: Fields) -> State:
    cosines, sines = seen["position"][1:].reshape(-1, 2).T
    return State(np.append(seen["position"][0], _relative(np.arctan2(sines, cosines))), seen["velocity"])


def pendulum(seen: Fields) -> State:
    cosine, sine = seen["orientation"]
    return State(np.array([np.arctan2(sine, cosine)]), seen["velocity"])


def finger(seen: Fields) -> State:
    proximal, distal, tip_x, tip_z = seen["position"]
    hinge = np.array([0.2, 0.4])
    target = (
        (("site_pos", ("target", ["x", "z"]), hinge + seen["target_position"]),)
        if "target_position" in seen
        else ()
    )
    return State(np.array([proximal, distal, np.arctan2(-tip_x, tip_z)]), seen["velocity"], model=target)


def reacher(seen: Fields) -> State:
    link = 0.12
    directions = np.cumsum(seen["position"])
    fingertip = link * np.array([np.cos(directions).sum(), np.sin(directions).sum()])
    return State(
        seen["position"],
        seen["velocity"],
        model=(("geom_pos", ("target", ["x", "y"]), fingertip + seen["to_target"]),),
    )


def walker(seen: Fields) -> State:
    cosines, sines = seen["orientations"].reshape(7, 2).T
    torso, *legs = np.arctan2(sines, cosines)
    # The leg joints turn against the axis of the torso, and their limits keep them within a half turn.
    bends = -np.diff(np.reshape(legs, (2, 3)), prepend=torso).ravel()
    height_of_zero = 1.3
    return State(
        np.concatenate([[seen["height"][0] - height_of_zero, 0.0, torso], _wrapped(bends)]), seen["velocity"]
    )


def swimmer(seen: Fields) -> State:
    """Water and floor are uniform, so the head is placed at the origin and faces ahead."""
    x, y, turning = seen["body_velocities"].reshape(-1, 3).T
    neck, nose = 0.05, np.array([0.0, -0.06])
    head = [x[0] + neck * turning[0], y[0], turning[0]]
    return State(
        np.concatenate([np.zeros(3), seen["joints"]]),
        np.concatenate([head, np.diff(turning)]),
        model=(("geom_pos", ("target", ["x", "y"]), nose + seen["to_target"]),),
    )


# The arm's joints are observed finger first and simulated thumb first.
_ARM = [0, 1, 2, 3, 6, 7, 4, 5]


def arm(seen: Fields, things: np.ndarray, velocities: np.ndarray, model: tuple[Edit, ...]) -> State:
    """Return the state of an arm and objects in its plane.

    Each object is given by x, z and half a quaternion, which gives its angle up to two full turns.
    """
    sines, cosines = seen["arm_pos"].reshape(8, 2).T
    angles = np.arctan2(sines, cosines)[_ARM]
    # The base turns without a limit, and the sign of the hand's quaternion gives the number of turns.
    _, _, w, y = seen["hand_pos"]
    angles[0] += 2 * np.pi * np.round((-2 * np.arctan2(y, w) - angles[:4].sum()) / (2 * np.pi))
    x, z, w, y = things.T
    poses = np.stack([x, z, 2 * np.arctan2(y, w)], axis=1)
    return State(
        np.concatenate([angles, poses.ravel()]),
        np.concatenate([seen["arm_vel"][_ARM], velocities.ravel()]),
        model=model,
    )


def manipulator(seen: Fields, physics: Physics) -> State:
    """Include the target, and its container if it has one."""
    bodies = [physics.model.id2name(i, "body") for i in range(physics.model.nbody)]
    places = [body for body in bodies if body in ("target_ball", "target_peg", "cup", "slot")]
    target = seen["target_pos"]
    edits = [
        (("body_pos", (body, ["x", "z"]), target[:2]), ("body_quat", (body, ["qw", "qy"]), target[2:]))
        for body in places
    ]
    return arm(seen, seen["object_pos"][None], seen["object_vel"], sum(edits, ()))


def stacker(seen: Fields) -> State:
    # Velocities of a box are observed as x, y, z and simulated as x, z, y.
    velocities = seen["box_vel"].reshape(-1, 3)[:, [0, 2, 1]]
    return arm(
        seen,
        seen["box_pos"].reshape(-1, 4),
        velocities,
        (("body_pos", ("target", ["x", "z"]), seen["target_pos"]),),
    )


# --- One observation and the bodies' kinematics, or what the step before left ---


def dog(seen: Fields, physics: Physics) -> State:
    """The torso senses the vertical, and the head its motion.

    Heading and spin of the ball are carried over.
    """
    data = physics.data
    up = seen["z_projection"].reshape(3, 3)[1]
    torso = _upright(_rotation(data.qpos[3:7]), up)
    data.qpos[2] = seen["torso_pelvis_height"][0]
    data.qpos[3:7] = _quaternion(torso)
    data.qpos[7:80] = seen["joint_angles"]
    data.qvel[:6] = 0.0
    data.qvel[6:79] = seen["joint_velocites"]
    data.act[:] = seen["actuator_state"]
    physics.forward()
    # The head's own motion on a torso at rest, and the torso's motion from what then remains.
    head = Rotation.from_matrix(physics.named.data.site_xmat["head"].reshape(3, 3))
    velocity, spin = seen["inertial_sensors"].reshape(3, 3)[1:]
    turning = head.apply(spin - physics.named.data.sensordata["gyro"])
    shifting = head.apply(velocity - physics.named.data.sensordata["velocimeter"])
    lever = physics.named.data.site_xpos["head"] - data.qpos[:3]
    data.qvel[:3] = shifting - np.cross(turning, lever)
    data.qvel[3:6] = torso.inv().apply(turning)
    if "ball_state" in seen:
        # The target lies at the origin.
        origin = physics.named.data.site_xpos["head"] + head.apply(seen["target_position"])
        data.qpos[:2] -= origin[:2]
        ball, speed = seen["ball_state"].reshape(2, 3)
        data.qpos[80:83] = (
            physics.named.data.site_xpos["head"] - np.append(origin[:2], 0.0) + head.apply(ball)
        )
        data.qvel[79:82] = head.apply(velocity + speed)
    return State(data.qpos.copy(), data.qvel.copy(), data.act.copy())


def floating(seen: Fields, physics: Physics) -> State:
    """Joints and all velocities are observed. Position and orientation of the body are carried over."""
    return State(np.concatenate([physics.data.qpos[:7], seen["joint_angles"]]), seen["velocity"])


def humanoid(seen: Fields, physics: Physics) -> State:
    return joints(seen) if "position" in seen else floating(seen, physics)


def quadruped(seen: Fields, physics: Physics) -> State:
    """The torso's orientation is carried over. In the arena with a ball, the target gives its position."""
    qpos, qvel = physics.data.qpos.copy(), physics.data.qvel.copy()
    torso = _rotation(qpos[3:7])
    qpos[7:23], qvel[6:22], act = np.split(seen["egocentric_state"], [16, 32])
    qvel[:3], qvel[3:6] = torso.apply(seen["torso_velocity"]), seen["imu"][3:]
    if "ball_state" in seen:
        qpos[:2] = (physics.named.data.site_xpos["target"] - torso.apply(seen["target_position"]))[:2]
        ball, speed, spin = torso.apply(seen["ball_state"].reshape(3, 3))
        qpos[23:26], qvel[22:25], qvel[25:28] = qpos[:3] + ball, qvel[:3] + speed, spin
    return State(qpos, qvel, act)


FROM_OBSERVATION: dict[str, Callable[[Fields], State]] = {
    "acrobot": acrobot,
    "ball_in_cup": joints,
    "cartpole": cartpole,
    "cheetah": on_a_line,
    "finger": finger,
    "hopper": on_a_line,
    "lqr": joints,
    "pendulum": pendulum,
    "point_mass": joints,
    "reacher": reacher,
    "stacker": stacker,
    "swimmer": swimmer,
    "walker": walker,
}
WITH_KINEMATICS: dict[str, Callable[[Fields, Physics], State]] = {
    "dog": dog,
    "fish": floating,
    "humanoid": humanoid,
    "humanoid_CMU": floating,
    "manipulator": manipulator,
    "quadruped": quadruped,
}


# --- What only the start of an episode tells ---


def fish_opening(environment: Environment, episode: Episode) -> None:
    """Find a fish's orientation: without weight, it only changes the direction in which the fish swims."""
    physics = environment.physics
    start = State(
        np.concatenate([np.zeros(3), [1.0, 0.0, 0.0, 0.0], episode.seen[0]["joint_angles"]]), np.zeros(13)
    )
    ours = np.array([seen["velocity"][:3] for seen in _attempt(environment, start, episode, steps=5)])
    theirs = np.array([seen["velocity"][:3] for seen in episode.seen[1:6]])
    turn, _ = Rotation.align_vectors(theirs, ours)
    start.qpos[3:7] = _quaternion(turn)
    _rest(physics, start)
    if "target" in episode.seen[0]:
        mouth = physics.named.data.geom_xmat["mouth"].reshape(3, 3)
        physics.named.model.geom_pos["target"] = (
            physics.named.data.geom_xpos["mouth"] + mouth @ episode.seen[0]["target"]
        )


def humanoid_opening(upper_body: str, environment: Environment, episode: Episode) -> None:
    """Find the heading from the first velocities, which are observed in world coordinates."""
    if "position" in episode.seen[0]:
        return
    physics = environment.physics
    seen = episode.seen[0]
    start = State(
        np.concatenate([np.zeros(3), [1.0, 0.0, 0.0, 0.0], seen["joint_angles"]]), np.zeros(physics.model.nv)
    )
    _rest(physics, start)
    upper = Rotation.from_matrix(physics.named.data.xmat[upper_body].reshape(3, 3))
    root = _upright(Rotation.identity(), upper.apply(seen["torso_vertical"]))
    start.qpos[3:7] = _quaternion(root)
    _rest(physics, start)
    start.qpos[2] = seen["head_height"][0] - physics.named.data.xpos["head", "z"]

    def across(seen: Fields) -> np.ndarray:
        """Return horizontal velocities as complex numbers, in which a turn is a factor."""
        vectors = np.stack([seen["velocity"][:2], seen["com_velocity"][:2]])
        return vectors[:, 0] + 1j * vectors[:, 1]

    theirs = np.array([across(seen) for seen in episode.seen[1:3]])
    # Friction depends slightly on the heading if there is contact from the start, so the heading is found by
    # iteration.
    for _ in range(5):
        ours = np.array([across(seen) for seen in _attempt(environment, start, episode, steps=2)])
        root = Rotation.from_euler("z", np.angle(np.sum(theirs * ours.conj()))) * root
        start.qpos[3:7] = _quaternion(root)
    _rest(physics, start)


def quadruped_opening(environment: Environment, episode: Episode) -> None:
    """Find a dropped quadruped's vertical.

    In free fall the torso's velocity beyond the legs' effect is down.
    """
    physics = environment.physics
    falling = 1.0e3  # high enough that nothing is touched
    start = State(physics.model.qpos0.copy(), np.zeros(physics.model.nv), np.zeros(physics.model.na))
    start.qpos[2] = falling
    [ours] = _attempt(environment, start, episode, steps=1)
    turned = _rotation(physics.data.qpos[3:7])
    gained = physics.model.opt.gravity[2] * environment.control_timestep()
    up = (
        np.array([0.0, 0.0, 1.0])
        + turned.apply(episode.seen[1]["torso_velocity"] - ours["torso_velocity"]) / gained
    )
    if abs(np.linalg.norm(up) - 1.0) > 1e-5:
        raise UndeterminedError("it touched the floor in the first step")
    start.qpos[3:7] = _quaternion(_upright(Rotation.identity(), up))
    _lift(physics, start)


def quadruped_arena_opening(environment: Environment, episode: Episode) -> None:
    """Set the pose: in the arena with a ball a quadruped is dropped upright."""
    physics = environment.physics
    _lift(physics, State(physics.model.qpos0.copy(), np.zeros(physics.model.nv), np.zeros(physics.model.na)))


def dog_opening(environment: Environment, episode: Episode) -> None:
    environment.physics.reset()


def lqr_opening(environment: Environment, episode: Episode) -> None:
    _fit(environment, episode, environment.physics.model.jnt_stiffness, steps=10)


def point_mass_opening(environment: Environment, episode: Episode) -> None:
    _fit(environment, episode, environment.physics.model.wrap_prm[:4], steps=3)


OPENINGS: dict[tuple[str, str], Callable[[Environment, Episode], None]] = {
    ("dog", ""): dog_opening,
    ("fish", ""): fish_opening,
    ("humanoid", ""): functools.partial(humanoid_opening, "torso"),
    ("humanoid_CMU", ""): functools.partial(humanoid_opening, "thorax"),
    ("lqr", ""): lqr_opening,
    ("point_mass", "hard"): point_mass_opening,
    ("quadruped", ""): quadruped_opening,
    ("quadruped", "fetch"): quadruped_arena_opening,
}
CARRIED = ("dog", "fish", "humanoid", "humanoid_CMU", "quadruped")
"""Robots with state that is carried over from step to step."""
HEADLESS = ("dog", "quadruped")
"""Robots whose observations do not depend on their heading."""


def constants(task: SuiteTask, physics: Physics) -> np.ndarray:
    """Return the unobserved values drawn for the episode, or for the environment."""
    known = {
        ("lqr", "lqr_2_1"): "jnt_stiffness",
        ("lqr", "lqr_6_2"): "jnt_stiffness",
        ("point_mass", "hard"): "wrap_prm",
    }
    name = known.get((task.domain, task.goal))
    return np.ravel(getattr(physics.model, name)).copy() if name else np.zeros(0)


def roughness(seen: Fields, physics: Physics) -> np.ndarray:
    """Return the difference of terrain bumps half a metre apart, if enough of them are in sight at the start.

    The quadruped is dropped in the middle of a bowl, so the observed origin gives the vertical and its
    height. The ends of the range finders' beams are then known up to a turn about the vertical, under which
    the bowl is symmetric. A bump is a factor on the height of the bowl.
    """
    beams = [f"rf_{row}{column}" for row in range(4) for column in range(5)]
    size, height = physics.model.hfield_size[0, [0, 2]]
    above = np.linalg.norm(seen["origin"])
    start = physics.model.qpos0.copy()
    start[:3] = 0.0, 0.0, above
    start[3:7] = _quaternion(_upright(Rotation.identity(), -seen["origin"] / above))
    place(physics, State(start, np.zeros(physics.model.nv), np.zeros(physics.model.na)))
    lengths = np.arctanh(np.minimum(seen["rangefinder"], 1.0 - 1e-9))
    ends = (
        physics.named.data.site_xpos[beams]
        + lengths[:, None] * physics.named.data.site_xmat[beams].reshape(-1, 3, 3)[:, :, 2]
    )
    radius = np.linalg.norm(ends[:, :2], axis=1)
    bumps = ends[:, 2] / (height * np.sin(np.pi * radius / size) ** 2)
    # Longer beams are lost to rounding in the hyperbolic tangent, and the very middle of the bowl is flat.
    seen_well = (lengths < 4.5) & (radius > 1.5) & (bumps > 0.1) & (bumps < 1.05)
    i, j = np.triu_indices(len(beams), 1)
    apart = np.linalg.norm(ends[i, :2] - ends[j, :2], axis=1)
    neighbours = seen_well[i] & seen_well[j] & (apart > 0.2) & (apart < 0.8)
    return np.array([np.mean(np.abs(bumps[i] - bumps[j])[neighbours])]) if neighbours.any() else np.zeros(0)


def _fit(environment: Environment, episode: Episode, constants: np.ndarray, steps: int) -> None:
    """Find the constants on which velocities depend linearly, from the first steps of an episode."""
    physics = environment.physics
    effects, answers = [], []
    for before, action, after in list(zip(episode.seen[:-1], episode.actions, episode.seen[1:], strict=True))[
        :steps
    ]:
        trials = []
        for trial in np.vstack([np.zeros(constants.size), np.eye(constants.size)]):
            constants[:] = trial
            trials.append(_answer(environment, joints(before), action).observation["velocity"].copy())
        effects.append(np.array(trials[1:]).T - trials[0][:, None])
        answers.append(after["velocity"] - trials[0])
    effect, answer = np.concatenate(effects), np.concatenate(answers)
    constants[:] = np.linalg.lstsq(effect, answer)[0]
    if np.max(np.abs(effect @ constants - answer)) > 1e-6:
        raise UndeterminedError("something else acted in the first steps, such as the end of a slide")
    physics.reset()


def _attempt(environment: Environment, start: State, episode: Episode, steps: int) -> list[Fields]:
    """Return the observations that follow from the first actions after ``start``."""
    _rest(environment.physics, start)
    return [dict(environment.step(action).observation) for action in episode.actions[:steps]]


def _rest(physics: Physics, start: State) -> None:
    """Set the state as after a reset, without the solver's warm start from a previous step."""
    physics.reset()
    place(physics, start)


def _lift(physics: Physics, start: State) -> None:
    """Lift a quadruped to the lowest whole centimetre without contacts, from which it is dropped."""
    start.qpos[2] = 0.0
    _rest(physics, start)
    while physics.data.ncon > 0:
        start.qpos[2] += 0.01
        _rest(physics, start)


def _relative(angles: np.ndarray) -> np.ndarray:
    """Return the angles between the links of a chain, from their angles in the world."""
    return np.diff(angles, prepend=0.0)


def _wrapped(angles: np.ndarray) -> np.ndarray:
    return np.arctan2(np.sin(angles), np.cos(angles))


def _rotation(quaternion: np.ndarray) -> Rotation:
    return Rotation.from_quat(quaternion, scalar_first=True)


def _quaternion(rotation: Rotation) -> np.ndarray:
    return rotation.as_quat(scalar_first=True)


def _upright(near: Rotation, up: np.ndarray) -> Rotation:
    """Return the rotation nearest to ``near`` of a body that senses the world's vertical as ``up``."""
    shift, _ = Rotation.align_vectors(near.inv().apply([0.0, 0.0, 1.0])[None], up[None])
    return near * shift
