"""Test the parts of a view: switchable sensors, equal blackouts, shapes, pacing, and access control."""

import dataclasses
import pathlib
import shutil
import socket
import urllib.error
import urllib.request
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import viser
import websockets.asyncio.server
from dm_control import suite
from shown_runs import made_run

from costate._base.errors import CheckpointError, ConfigError
from costate._base.task_files import load_task_files
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import TASKS
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import Run, create_run
from costate.show.drawing import DARK, _rgb
from costate.show.guard import is_allowed, start_server
from costate.show.live import check_watchable
from costate.show.pace import LARGEST_BACKLOG, Pace
from costate.show.page import Page
from costate.show.performance import Push, strongest
from costate.show.player import Moment, Player, sensor_names
from costate.show.plots import bars_of, curve_picture
from costate.show.requirements import require
from costate.show.scene import DRAWN, GEOM, Scene, Shape, mesh_of, quaternion, radius_of
from costate.show.sensors import Blackouts, SwitchedSensors, next_dark
from costate.show.settings import EpisodeConfig, ViewConfig
from costate.show.view import Meter, _take_newest, open_performance, titles_of, view
from costate.trained.recording import record_episode
from costate.trained.trained import load_controller

SMALL = RunConfig(
    task="CartpoleSwingup", policy=PolicyConfig(hidden_size=8), rollout=RolloutConfig(environments=4)
)
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
LAYOUT = (("position", 2), ("velocity", 1))


def darkness(blackouts: Blackouts, steps: int) -> np.ndarray:
    draws, dark, rows = np.random.default_rng(0), False, []
    for step in range(steps):
        dark = next_dark(blackouts, dark, step == 0, draws)
        rows.append(dark)
    return np.array(rows)


@pytest.mark.quick("0.5-None", "0.75-20.0")
@pytest.mark.parametrize(("probability", "length"), [(0.5, None), (0.5, 10.0), (0.75, 20.0), (0.1, 3.0)])
def test_commanded_blackouts_are_those_of_training(probability: float, length: float | None) -> None:
    """A share p is dark, in bursts of the given mean length, or else of 1/(1 − p)."""
    dark = darkness(Blackouts(probability, length), 60_000)
    ends = np.flatnonzero(dark[:-1] & ~dark[1:])
    assert dark.mean() == pytest.approx(probability, rel=0.08)
    assert dark.sum() / len(ends) == pytest.approx(length or 1.0 / (1.0 - probability), rel=0.08)


def test_extreme_blackouts_and_bursts_that_are_too_short() -> None:
    assert darkness(Blackouts(1.0, 5.0), 50).all()
    assert not darkness(Blackouts(0.0, 5.0), 50).any()
    # Bursts of one step cannot cover nine tenths of the time, so they are lengthened.
    assert darkness(Blackouts(0.9, 1.0), 50_000).mean() == pytest.approx(0.9, abs=0.02)


def test_the_switch_hides_everything_and_leaves_other_faults() -> None:
    sensors = SwitchedSensors(SensorConfig(dropout=0.7, hide=("velocity",), mask_input="bit"), LAYOUT)
    true = np.array([1.0, 2.0, 3.0])
    for step, dark in enumerate([False, True, False]):
        seen = sensors.read(true, dark, seed=0, step=step)
        expected = [0.0, 0.0, 0.0, 0.0] if dark else [1.0, 2.0, 0.0, 1.0]
        np.testing.assert_allclose(seen.timestep.observation, [expected])
        np.testing.assert_allclose(seen.timestep.complete, [[1.0, 2.0, 3.0, 1.0]])
        assert bool(seen.timestep.is_first[0]) == (step == 0)
        assert seen.share == pytest.approx(0.0 if dark else 2 / 3)


def test_what_is_held_in_the_dark_is_the_last_value_of_the_episode() -> None:
    sensors = SwitchedSensors(SensorConfig(dropout=0.5, dark="hold"), LAYOUT)
    rows = [(1.0, False, 0), (2.0, True, 1), (3.0, False, 2), (4.0, True, 0)]
    read = [
        float(sensors.read(np.full(3, value), dark, seed=1, step=step).timestep.observation[0, 0])
        for value, dark, step in rows
    ]
    assert read == [1.0, 1.0, 3.0, 0.0]


def test_noise_is_drawn_by_seed_and_step_alone() -> None:
    config = SensorConfig(dropout=0.0, noise=1.0)
    first, second = SwitchedSensors(config, LAYOUT), SwitchedSensors(config, LAYOUT)
    rows = [
        [
            np.asarray(one.read(np.zeros(3), False, seed=3, step=step).timestep.observation)
            for step in range(4)
        ]
        for one in (first, second)
    ]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert len({float(row[0, 0]) for row in rows[0]}) == 4


def test_a_robot_of_another_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="observes 2 numbers, but the policy was trained with 3"):
        SwitchedSensors(SensorConfig(), LAYOUT).read(np.zeros(2), False, seed=0, step=0)


def test_pace_keeps_real_time_and_lets_go_of_what_is_too_old() -> None:
    pace = Pace(0.025, now=0.0)
    steps = sum(pace.due(tick / 60, speed=1.0) for tick in range(1, 601))
    assert steps == pytest.approx(10.0 / 0.025, abs=1)
    assert Pace(0.025, now=0.0).due(1e3, speed=1.0) == round(LARGEST_BACKLOG / 0.025)
    assert sum(pace.due(10.0 + tick / 60, speed=0.5) for tick in range(1, 121)) == pytest.approx(
        1.0 / 0.025, abs=1
    )
    pace.skip(now=100.0)
    assert pace.due(100.0, speed=1.0) == 0


def test_the_meter_says_how_fast_time_runs() -> None:
    meter = Meter(0.02, now=0.0)
    meter.count(50)
    assert meter.factor(2.0) == pytest.approx(0.5)
    meter.count(200)
    assert meter.factor(2.5) == pytest.approx(0.5)
    assert meter.factor(4.0) == pytest.approx(2.0)


VOLUMES = {
    GEOM.mjGEOM_SPHERE: ((0.3, 0.3, 0.3), 4 / 3 * np.pi * 0.3**3),
    GEOM.mjGEOM_ELLIPSOID: ((0.1, 0.2, 0.4), 4 / 3 * np.pi * 0.1 * 0.2 * 0.4),
    GEOM.mjGEOM_CAPSULE: ((0.1, 0.1, 0.4), np.pi * 0.1**2 * 0.8 + 4 / 3 * np.pi * 0.1**3),
    GEOM.mjGEOM_CYLINDER: ((0.2, 0.2, 0.5), np.pi * 0.2**2 * 1.0),
    GEOM.mjGEOM_BOX: ((0.1, 0.2, 0.3), 8 * 0.1 * 0.2 * 0.3),
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_meshes_enclose_the_volume_of_their_shape_about_its_middle(kind: int) -> None:
    size, volume = VOLUMES[kind]
    shape = Shape(int(kind), size, np.zeros(3), np.eye(3), (1.0, 1.0, 1.0, 1.0), -1, True)
    vertices, faces = mesh_of(None, shape)
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    parts = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6.0
    assert parts.sum() == pytest.approx(volume, rel=0.04)
    np.testing.assert_allclose((parts[:, None] * (a + b + c) / 4.0).sum(0) / parts.sum(), 0.0, atol=1e-3)


@pytest.mark.parametrize("domain", sorted({domain for domain, _ in suite.ALL_TASKS}))
def test_every_robot_of_dm_control_can_be_drawn(domain: str) -> None:
    """The scene has all shapes that MuJoCo would draw, in MuJoCo's positions."""
    goal = next(goal for robot, goal in suite.ALL_TASKS if robot == domain)
    environment = suite.load(domain, goal, task_kwargs={"random": 0})
    environment.reset()
    model, data = environment.physics.model.ptr, environment.physics.data.ptr
    shapes = Scene(model).shapes(model, data)
    visible = [
        i
        for i in range(model.ngeom)
        if model.geom_group[i] < 3
        and model.geom_rgba[i, 3] > 0
        and (model.geom_matid[i] < 0 or model.mat_rgba[model.geom_matid[i], 3] > 0)
    ]
    assert len(shapes) >= len(visible)
    assert {int(model.geom_type[i]) for i in visible} <= set(map(int, DRAWN))
    for i in visible:
        plane = model.geom_type[i] == GEOM.mjGEOM_PLANE
        # Infinite planes are drawn near the camera.
        found = plane or any(
            np.allclose(shape.position, data.geom_xpos[i], atol=1e-5) and shape.kind == model.geom_type[i]
            for shape in shapes
        )
        assert found, f"geom {i} of type {model.geom_type[i]}"
    for shape in shapes:
        vertices, faces = mesh_of(model, shape)
        assert np.isfinite(vertices).all()
        assert faces.max() < len(vertices)
    assert 0.0 < radius_of(shapes) < np.inf


def test_a_height_field_has_its_heights() -> None:
    field, ground = (
        '<hfield name="h" nrow="2" ncol="3" size="1 2 0.5 0.1"/>',
        '<geom type="hfield" hfield="h"/>',
    )
    xml = f"<mujoco><asset>{field}</asset><worldbody>{ground}</worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(xml)
    model.hfield_data[:] = [0.0, 0.5, 1.0, 0.0, 0.0, 0.0]
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    (shape,) = Scene(model).shapes(model, data)
    vertices, faces = mesh_of(model, shape)
    np.testing.assert_allclose(vertices[:3], [[-1.0, -2.0, 0.0], [0.0, -2.0, 0.25], [1.0, -2.0, 0.5]])
    assert len(faces) == 4


def test_quaternions_turn_as_their_matrix_does() -> None:
    angle = 0.7
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0], [0.0, 0.0, 1.0]]
    )
    np.testing.assert_allclose(quaternion(turn), [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)], atol=1e-12)


def test_a_robot_is_darker_in_the_dark_and_the_ground_is_not() -> None:
    robot = Shape(
        int(GEOM.mjGEOM_SPHERE), (1.0, 1.0, 1.0), np.zeros(3), np.eye(3), (0.8, 0.6, 0.4, 1.0), -1, True
    )
    assert _rgb(robot, dark=False) == (204, 153, 102)
    assert _rgb(robot, dark=True) == tuple(
        round(255 * (0.2 * part + 0.8 * grey)) for part, grey in zip((0.8, 0.6, 0.4), DARK, strict=True)
    )
    assert _rgb(robot._replace(moves=False), dark=True) == (204, 153, 102)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    plain = dataclasses.replace(SMALL, learner=dataclasses.replace(SMALL.learner, costate_coef=0.0), seed=1)
    return [made_run(folder / "nc", SMALL), made_run(folder / "plain", plain)]


def test_a_player_plays_the_episode_that_exact_states_are_recorded_of(runs: list[Run]) -> None:
    """Robot, start and policy are the same, but the recording is in float64."""
    player = Player(runs[0], None, pytest.fail)
    player.start(5)
    moments = [player.advance(dark=False)[0] for _ in range(30)]
    episode = record_episode(
        "CartpoleSwingup", load_controller(runs[0], None, pytest.fail)[1], seed=5, dropout=0.0, steps=30
    )
    np.testing.assert_allclose([moment.action for moment in moments], episode.controls, atol=1e-3)
    np.testing.assert_allclose([moment.reward for moment in moments], episode.rewards, atol=1e-3)
    assert moments[-1].total == pytest.approx(sum(moment.reward for moment in moments))
    assert moments[-1].time == pytest.approx(30 * 0.01)
    player.close()


def test_a_player_of_soft_actor_critic_shows_its_critic(tmp_path: pathlib.Path) -> None:
    run = made_run(tmp_path / "sac", dataclasses.replace(SMALL, learner=SACConfig(head_width=8)))
    player = Player(run, 4000, pytest.fail)
    seen, blind = player.advance(dark=False)[0], player.advance(dark=True)[0]
    assert player.env_steps == 4000
    assert seen.seen == 1.0
    assert blind.seen == 0.0
    # Its critic observes the true state in a blackout, so its co-state is not zero.
    assert np.abs(blind.expected).max() > 0.0
    assert seen.remembered.shape == (5,)
    player.close()


def test_robots_side_by_side_meet_the_same_blackouts_and_the_same_episode(runs: list[Run]) -> None:
    performance = open_performance(runs, ViewConfig(EpisodeConfig(dropout=0.5, seed=3)), pytest.fail)
    starts = [player.robot.observe() for player in performance.players]
    np.testing.assert_array_equal(*starts)
    for _ in range(40):
        performance.advance()
    left, right = ([moment.seen for moment in history] for history in performance.histories)
    assert left == right
    assert 0.0 < np.mean(left) < 1.0
    assert [moment.action[0] for moment in performance.histories[0]] != [
        moment.action[0] for moment in performance.histories[1]
    ]
    # The same episode repeats exactly, including its blackouts.
    before = [moment.reward for moment in performance.histories[0]]
    performance.restart()
    np.testing.assert_array_equal(performance.players[0].robot.observe(), starts[0])
    for _ in range(40):
        performance.advance()
    assert [moment.seen for moment in performance.histories[0]] == left
    np.testing.assert_allclose([moment.reward for moment in performance.histories[0]], before, atol=1e-9)
    performance.close()


def test_an_episode_ends_at_its_time_limit_and_the_next_begins(runs: list[Run]) -> None:
    performance = open_performance(runs[:1], ViewConfig(EpisodeConfig(dropout=0.0)), pytest.fail)
    performance.episode_steps = 5
    for _ in range(7):
        performance.advance()
    assert performance.seed == 1
    assert performance.step == 2
    assert len(performance.returns) == 1
    performance.close()


def test_sensors_can_be_switched_off_and_policies_exchanged(runs: list[Run]) -> None:
    performance = open_performance(runs[:1], ViewConfig(EpisodeConfig(dropout=0.0)), pytest.fail)
    performance.advance()
    assert not performance.dark
    performance.blackouts = performance.blackouts._replace(off=True)
    performance.advance()
    assert performance.dark
    newest = performance.histories[0][-1].action
    performance.load(0, 0)
    assert performance.players[0].env_steps == 0
    performance.restart()
    performance.advance()
    performance.advance()
    assert performance.histories[0][-1].action != newest
    performance.close()


def test_a_push_gives_the_robot_its_momentum(tmp_path: pathlib.Path) -> None:
    """A push of n weights for time t changes the speed of a robot in free flight by n g t.

    This holds whatever its own controls do.
    """
    walker = made_run(tmp_path / "walker", dataclasses.replace(SMALL, task="WalkerStand"), steps=(0,))
    performance = open_performance([walker], ViewConfig(EpisodeConfig(dropout=0.0)), pytest.fail)
    robot = performance.players[0].robot
    # High above the ground.
    robot.data.qpos[0] = 50.0
    mujoco.mj_forward(robot.model, robot.data)

    def speed() -> float:
        mujoco.mj_subtreeVel(robot.model, robot.data)
        return float(robot.data.subtree_linvel[0, 0])

    before = speed()
    performance.push(Push((1.0, 0.0, 0.0), strength=2.0))
    for _ in range(12):
        performance.advance()
    assert speed() - before == pytest.approx(2.0 * 9.81 * 0.2, rel=0.02)
    assert not robot.data.xfrc_applied.any()
    performance.close()


def test_the_strongest_components_come_first_whatever_their_lengths() -> None:
    moment = Moment(
        0.0, 1.0, np.zeros(1), 0.0, 0.0, 0.0, 0.0, np.array([0.1, -2.0, 0.0]), np.array([30.0, 10.0, 0.0])
    )
    assert strongest([moment], ("a", "b", "c"), 2) == [
        ("b", -1.0, pytest.approx(1 / 3)),
        ("a", pytest.approx(0.05), 1.0),
    ]
    assert strongest([], ("a",), 2) == []
    assert sensor_names((("height", 1), ("velocity", 2))) == ("height", "velocity 0", "velocity 1")
    assert "<script>" not in bars_of("<script>", [("<script>", 1.0, -1.0)])


def test_curves_go_from_corner_to_corner() -> None:
    picture = curve_picture("return", [[(0.0, 5.0), (10.0, 15.0)]])
    assert 'points="0.0,110.0 260.0,0.0 260.0,0.0"' in picture
    assert "from 5 to 15" in picture
    assert "nothing logged yet" in curve_picture("return", [[]])


@pytest.mark.parametrize(
    ("host", "asked", "origin", "answer"),
    [
        ("127.0.0.1", "127.0.0.1:8080", None, True),
        ("127.0.0.1", "localhost:8080", "http://localhost:8080", True),
        ("127.0.0.1", "[::1]:8080", None, True),
        ("127.0.0.1", "evil.example:8080", None, False),
        ("127.0.0.1", "evil.example", "http://evil.example", False),
        ("127.0.0.1", "127.0.0.1:8080", "http://evil.example", False),
        ("127.0.0.1", "127.0.0.1:8080", "http://127.0.0.1:9999", False),
        ("127.0.0.1", "localhost.evil.example", None, False),
        ("127.0.0.1", None, None, False),
        ("0.0.0.0", "192.168.0.7:8080", "http://192.168.0.7:8080", True),
        ("lab-machine", "lab-machine:8080", None, True),
        ("lab-machine", "other:8080", None, False),
    ],
)
def test_only_requests_for_this_server_are_answered(
    host: str, asked: str | None, origin: str | None, answer: bool
) -> None:
    assert is_allowed(host, asked, origin) == answer


def status_of(port: int, path: str = "/", **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_other_hosts_and_other_paths_get_nothing() -> None:
    server = start_server("127.0.0.1", 0, "test")
    try:
        port = server.get_port()
        code, page = status_of(port)
        assert code == 200
        assert b"<html" in page.lower()
        assert status_of(port, Host="evil.example")[0] == 403
        assert status_of(port, Host="evil.example")[1] == b""
        assert status_of(port, Origin="http://evil.example")[0] == 403
        for path in ("/etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/config.json"):
            code, content = status_of(port, path)
            assert code == 404
            assert b"root" not in content
        # Nothing listens on this machine's other addresses.
        assert {address[0] for address in [socket.getaddrinfo("127.0.0.1", port)[0][4]]} == {"127.0.0.1"}
    finally:
        server.stop()


def test_other_servers_in_the_process_start_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a page does not change `websockets` for others, during the start or after it."""
    serve, seen = websockets.asyncio.server.serve, []

    class Watched(viser.ViserServer):
        def __init__(self, **settings: Any) -> None:
            seen.append(websockets.asyncio.server.serve)
            super().__init__(**settings)

    monkeypatch.setattr(viser, "ViserServer", Watched)
    server = start_server("127.0.0.1", 0, "test")
    try:
        assert seen == [serve]
        assert websockets.asyncio.server.serve is serve
        assert status_of(server.get_port(), Host="evil.example")[0] == 403
    finally:
        server.stop()


def test_a_port_in_use_is_said_and_the_next_one_is_taken(runs: list[Run]) -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        view(runs[:1], ViewConfig(port=port), said.append, stopped=lambda: True)
    assert said[0].startswith(f"port {port} is in use; serving on ")
    assert said[1].startswith("open http://127.0.0.1:")


def test_what_cannot_be_looked_at_is_named(runs: list[Run], tmp_path: pathlib.Path) -> None:
    empty = create_run(tmp_path / "empty", SMALL, {}, overwrite=False)
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        open_performance([empty], ViewConfig(), pytest.fail)
    lqr = made_run(tmp_path / "lqr", dataclasses.replace(SMALL, task="LQR"))
    with pytest.raises(ConfigError, match="LQR cannot be drawn: the engine jax has no MuJoCo model"):
        open_performance([lqr], ViewConfig(), pytest.fail)
    with pytest.raises(ConfigError, match="LQR cannot be drawn"):
        check_watchable(lqr.config, 8080)
    walker = made_run(tmp_path / "walker", dataclasses.replace(SMALL, task="WalkerStand"))
    with pytest.raises(ConfigError, match="different tasks, CartpoleSwingup and WalkerStand"):
        open_performance([runs[0], walker], ViewConfig(), pytest.fail)
    with pytest.raises(ConfigError, match="3 runs were given"):
        open_performance([*runs, walker], ViewConfig(), pytest.fail)
    with pytest.raises(ConfigError, match="dropout is 2"):
        open_performance(runs, ViewConfig(EpisodeConfig(dropout=2.0)), pytest.fail)


def test_the_picture_and_the_words_say_the_same_of_the_sensors_in_every_frame(runs: list[Run]) -> None:
    """The status is updated less often, unless it would contradict the image."""
    performance = open_performance(runs[:1], ViewConfig(EpisodeConfig(dropout=0.5)), pytest.fail)
    page = Page(performance, "127.0.0.1", 0)
    said = []
    try:
        page.update_status(1.0)
        for _ in range(40):
            performance.advance()
            page.update_scene()
            label = "sensors dark" in page._drawings[0]._label.text
            said.append(label)
            assert (
                label
                == ("&nbsp;dark&nbsp;" in page._status.content)
                == (performance.histories[0][-1].seen == 0.0)
            )
        assert {True, False} == set(said)
        # A new episode starts with no known readings, whatever the last one ended with.
        while not performance.dark:
            performance.advance()
        performance.restart()
        page.update_scene()
        assert "sensors dark" not in page._drawings[0]._label.text
        assert "&nbsp;sees&nbsp;" in page._status.content
    finally:
        page.close()
        performance.close()


def test_a_policy_that_was_asked_for_stays_and_one_that_is_gone_is_said(tmp_path: pathlib.Path) -> None:
    run = made_run(tmp_path / "run", SMALL)
    performance = open_performance([run], ViewConfig(step=0), pytest.fail)
    page = Page(performance, "127.0.0.1", 0, newest=False)
    try:
        _take_newest(page)
        assert performance.players[0].env_steps == 0
        page.load_policy(0, 4000)
        assert performance.players[0].env_steps == 4000
        # Training deletes old checkpoints, and a user may delete all of them.
        shutil.rmtree(run.path / "milestones")
        page.load_policy(0, 0)
        assert performance.players[0].env_steps == 4000
        page.update_status(1.0)
        assert "no checkpoint at step 0" in page._status.content
        shutil.rmtree(run.path / "checkpoints")
        page.load_policy(0, None)
        assert performance.players[0].env_steps == 4000
    finally:
        page.close()
        performance.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"burst_length": -1.0}, "burst_length is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"dropout": 1.5}, "dropout is 1.5"),
        ({"port": 99999}, "port is 99999"),
        ({"fps": 0.0}, "fps is 0"),
    ],
)
def test_impossible_views_are_refused(
    runs: list[Run], capsys: pytest.CaptureFixture[str], changes: dict[str, float], message: str
) -> None:
    options = [
        word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    assert main(["view", str(runs[0].path), *options]) != 0
    assert message in capsys.readouterr().err


def test_runs_are_told_apart_by_their_titles(runs: list[Run]) -> None:
    assert titles_of(runs) == ["nc-gru+environments=4+hidden-size=8", "gru+environments=4+hidden-size=8"]
    assert titles_of([runs[0], runs[0]]) == [
        f"nc-gru+environments=4+hidden-size=8, seed 0 ({which})" for which in "AB"
    ]


def test_a_robot_of_ones_own_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot matches the training engine in start, observations and rewards."""
    monkeypatch.setenv("COSTATE_TASKS", str(EXAMPLES / "own_robot" / "arm.py"))
    load_task_files()
    task = TASKS["OwnArm"]
    robot, env = task.visible(), task.build(1, [0])
    simulator = env._simulator
    shown = simulator.start([7])
    robot.start(7)
    np.testing.assert_allclose(robot.observe(), shown[0], atol=1e-6)
    for control in np.linspace(-1.0, 1.0, 5):
        action = np.full((1, task.action_size), control)
        rows, outcome = simulator.advance(action), robot.step(action[0])
        assert outcome.reward == pytest.approx(float(rows.reward[0]))
        np.testing.assert_allclose(robot.observe(), rows.observation[0], atol=1e-5)
    assert Scene(robot.model).shapes(robot.model, robot.data)
    env.close()
    robot.close()


def test_gymnasiums_mujoco_robots_can_be_looked_at() -> None:
    robot = TASKS["gym:InvertedPendulum-v5"].visible()
    robot.start(3)
    other = gymnasium.make("InvertedPendulum-v5")
    np.testing.assert_allclose(robot.observe(), other.reset(seed=3)[0], atol=1e-6)
    for _ in range(5):
        observation, reward, terminated, _, _ = other.step(np.array([0.3], np.float32))
        assert robot.step(np.array([0.3])) == (pytest.approx(reward), terminated)
        np.testing.assert_allclose(robot.observe(), observation, atol=1e-6)
    assert Scene(robot.model).shapes(robot.model, robot.data)
    robot.close()


def test_what_is_missing_is_said_with_what_brings_it() -> None:
    require("A view", "numpy")
    with pytest.raises(
        ConfigError, match=r"A view needs nowhere_to_be_found, .* pip install 'costate\[view\]'"
    ):
        require("A view", "numpy", "nowhere_to_be_found")
