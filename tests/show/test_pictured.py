"""Test films and views of environments that draw themselves with `render()`, and those that cannot."""

import pathlib
import sys
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from PIL import Image
from shown_runs import made_run

from costate import cli
from costate._base.errors import ConfigError
from costate.config.run_config import RunConfig
from costate.envs import TASKS, register_gymnasium, register_gymnasium_vector
from costate.envs.visible import AbstractPicturedRobot
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import Run
from costate.show import renderer
from costate.show.film import fitted
from costate.show.page import Page
from costate.show.sensors import Blackouts
from costate.show.settings import ViewConfig
from costate.show.view import open_performance


class Lamp(gymnasium.Env):
    """Renders 64 × 32 pixels: the left half is red, the right half as bright as ten times the step count."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as Gymnasium's own environments have it)
    observation_space, action_space = Box(-9.0, 9.0, (2,)), Box(-1.0, 1.0, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(2, 0.1, np.float32), 1.0, False, False, {}

    def render(self):
        return self.drawn() if self.render_mode == "rgb_array" else None

    def drawn(self):
        picture = np.zeros((32, 64, 3), np.uint8)
        picture[:, :32, 0] = 255
        picture[:, 32:] = 10 * self.steps
        return picture


class Loud(Lamp):
    def render(self):
        raise RuntimeError("no bulb")


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    before = dict(TASKS._items)
    register_gymnasium("Lamp", Lamp, episode_steps=20)
    yield
    TASKS._items.clear()
    TASKS._items.update(before)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    return made_run(
        tmp_path / "run",
        RunConfig("Lamp", policy=PolicyConfig(hidden_size=4), rollout=RolloutConfig(environments=4)),
        steps=(0, 4000),
    )


def test_a_robot_that_draws_itself_shows_what_its_environment_draws() -> None:
    robot = TASKS["Lamp"].visible()
    assert isinstance(robot, AbstractPicturedRobot)
    robot.start(0)
    assert robot.step(np.array([0.5])) == (1.0, False)
    robot.step(np.array([0.5]))
    picture = robot.picture()
    assert picture[0, 0].tolist() == [255, 0, 0]
    assert picture[31, 63].tolist() == [20, 20, 20]
    robot.close()


def test_a_picture_of_any_shape_fills_a_tile_as_far_as_it_can() -> None:
    """64 × 32 in 96 × 96 is as wide as the tile and 48 high, with 24 black rows above and below."""
    picture = np.full((32, 64, 3), 200, np.uint8)
    tile = fitted(picture, 96, 96)
    assert tile.shape == (96, 96, 3)
    assert not tile[:24].any()
    assert not tile[72:].any()
    assert (tile[24:72] == 200).all()


def test_a_film_needs_nothing_that_draws(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(renderer, "BACKENDS", {"nowhere.egl": "none"})
    size = ["--width", "128", "--height", "64"]
    # The environment does not give its time step, so it is a twentieth of a second.
    assert (
        cli.main(
            [
                "video",
                str(run.path),
                "--out",
                str(tmp_path / "lamp.gif"),
                "--seconds",
                "0.5",
                "--fps",
                "20",
                "--dropout",
                "0",
                *size,
            ]
        )
        == 0
    )
    assert "return 10.0" in capsys.readouterr().out
    with Image.open(tmp_path / "lamp.gif") as film:
        frames = []
        for number in range(film.n_frames):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")).astype(int))
    assert len(frames) == 10
    # Below the title and above the strip: red on the left, brighter with every step on the right.
    for number, frame in enumerate(frames, 1):
        np.testing.assert_allclose(frame[48, 30], [255, 0, 0], atol=8)
        np.testing.assert_allclose(frame[48, 100], 10 * number, atol=8)


def test_the_live_view_shows_the_same_picture(run: Run) -> None:
    performance = open_performance([run], ViewConfig(), pytest.fail)
    page = Page(performance, "127.0.0.1", 0)
    try:
        performance.blackouts = Blackouts(0.0)
        for _ in range(3):
            performance.advance()
        page.update_scene()
        (screen,) = page._drawings
        assert screen._image.image[0, 0].tolist() == [255, 0, 0]
        assert screen._image.image[0, 63].tolist() == [30, 30, 30]
        performance.blackouts = Blackouts(1.0)
        performance.advance()
        page.update_scene()
        # A fifth of the image, and four fifths of dark grey.
        np.testing.assert_allclose(screen._image.image[0, 0], [71, 20, 28], atol=1)
    finally:
        page.close()
        performance.close()


def test_what_shows_no_picture_is_refused_with_what_to_do() -> None:
    register_gymnasium("Fixed", lambda: Lamp(), episode_steps=20)
    with pytest.raises(
        ConfigError,
        match=r"Fixed cannot be drawn: its render\(\) returned NoneType.*"
        r"render mode is None, and it knows rgb_array.*render_mode=None",
    ):
        TASKS["Fixed"].visible()
    register_gymnasium("Loud", Loud, episode_steps=20)
    with pytest.raises(
        ConfigError, match=r"Loud cannot be drawn: its render\(\) raised RuntimeError: no bulb\."
    ):
        TASKS["Loud"].visible()
    register_gymnasium_vector(
        "Lamps",
        lambda count: gymnasium.vector.SyncVectorEnv([lambda: Lamp("rgb_array")] * count),
        episode_steps=20,
    )
    assert isinstance(TASKS["Lamps"].visible(), AbstractPicturedRobot)


def test_a_package_that_render_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(
        ConfigError,
        match=r"gym:Pendulum-v1 cannot be drawn: its render\(\) needs a package that is missing\..*"
        r"gymnasium\[classic_control\]",
    ):
        TASKS["gym:Pendulum-v1"].visible()


def test_a_pendulum_is_drawn_where_pygame_is_installed() -> None:
    pytest.importorskip("pygame")
    robot = TASKS["gym:Pendulum-v1"].visible()
    robot.start(0)
    assert robot.picture().shape == (500, 500, 3)
    robot.close()
