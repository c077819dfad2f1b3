"""Test the live view in Debian's chromium, operated like a user, with `costate view` in its own process."""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from shown_runs import made_run

from costate.config.run_config import RunConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
    # One process for all tests, which share the browser.
    pytest.mark.xdist_group("browser"),
]
# A machine without a graphics card renders in software, which takes seconds per page.
PATIENCE = 90_000
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
SMALL = RunConfig(
    task="CartpoleSwingup", policy=PolicyConfig(hidden_size=8), rollout=RolloutConfig(environments=4)
)
NC, PLAIN = (f"{name}+environments=4+hidden-size=8" for name in ("nc-gru", "gru"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the command like a user, and return the process and the address that it prints."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "costate.cli", "view", *arguments, "--port", str(free_port())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found.group(), process
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    plain = dataclasses.replace(SMALL, learner=dataclasses.replace(SMALL.learner, costate_coef=0.0), seed=1)
    runs = [made_run(folder / "nc", SMALL), made_run(folder / "plain", plain)]
    with served(*(str(run.path) for run in runs), "--dropout", "0") as (found, _):
        yield found


@dataclasses.dataclass
class Opened:
    """A page and its error messages."""

    page: Page
    complaints: list[str]

    @property
    def status(self) -> str:
        return self.page.inner_text("#costate-status")

    @property
    def moment(self) -> tuple[int, float]:
        """Return the episode, and the seconds of robot time since it started."""
        found = re.search(r"episode (\d+), ([\d.]+) s,", self.status)
        return int(found.group(1)), float(found.group(2))

    @property
    def sights(self) -> list[str]:
        """Return the text of every robot's badge."""
        return re.findall(r"sees|dark", self.status)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def enter(self, label: str, value: str) -> None:
        """Return the number beside a slider."""
        box = self.page.locator(f"xpath=//*[text()='{label}']/following::input[@type='text'][1]")
        box.fill(value)
        box.press("Enter")

    def plot(self, title: str) -> np.ndarray:
        """Return the image of a live plot."""
        canvas = self.page.locator(".uplot", has=self.page.locator(".u-title", has_text=title)).locator(
            "canvas"
        )
        return np.asarray(Image.open(io.BytesIO(canvas.screenshot())).convert("RGB")).astype(int)

    def scene(self) -> np.ndarray:
        """Return an image of the middle of the scene, beside the panels."""
        shot = self.page.screenshot(clip={"x": 320, "y": 150, "width": 340, "height": 500})
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)

    def wait(self, condition: str) -> None:
        """Wait for a condition in JavaScript on the text of the status."""
        self.page.wait_for_function(
            f"() => "
            f"{{ const text = document.querySelector('#costate-status').innerText; return {condition} }}",
            timeout=PATIENCE,
        )


@pytest.fixture(scope="module")
def opened(browser: Browser, address: str) -> Opened:
    page = browser.new_page(viewport={"width": 1000, "height": 760})
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []

    def complain(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    page.on("console", complain)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    page.goto(address)
    page.wait_for_selector("#costate-status")
    found = Opened(page, complaints)
    found.wait("/, [1-9]|0\\.[2-9]/.test(text)")
    return found


def line_height(plot: np.ndarray) -> float:
    """Return the height of a plot's lines, from 0 at its top to 1 at its bottom.

    It is the mean row of pixels in the colours of the robots.
    """
    colours = np.array([[31, 119, 180], [255, 127, 14]])
    near = (np.abs(plot[:, :, None, :] - colours).sum(-1) < 60).any(-1)
    rows = np.flatnonzero(near.any(axis=1))
    assert len(rows), "no line was found"
    return float(np.nonzero(near)[0].mean() / len(plot))


def brightness_of_robots(scene: np.ndarray) -> float:
    """Return the colourfulness of the darkest 0.1 % of pixels.

    Ground and sky are light, and text is small.
    """
    light = np.sort(scene.sum(-1), axis=None)
    return float(light[: len(light) // 1000].mean())


def test_the_page_loads_without_errors_and_shows_both_runs(opened: Opened) -> None:
    assert opened.complaints == []
    assert re.search(rf"{re.escape(NC)} after 8,000 steps", opened.status)
    assert re.search(rf"^{re.escape(PLAIN)} after 8,000 steps", opened.status, re.MULTILINE)
    titles = opened.page.locator(".u-title").all_inner_texts()
    assert titles[:5] == [
        "cos(h, λ̂): memory and the critic's co-state",
        "share of sensors that work",
        "reward",
        "return so far",
        "value V predicted by the critic",
    ]
    assert titles[5:] == [f"controls of {NC}", f"controls of {PLAIN}"]
    bars = opened.page.locator(".costate-bars").first.inner_text()
    assert re.search(r"(position|velocity) \d", bars)


@pytest.mark.thorough
def test_the_robots_move_until_they_are_paused(opened: Opened) -> None:
    before, then = opened.moment, opened.scene()
    opened.page.wait_for_timeout(2000)
    assert opened.moment > before
    assert np.abs(opened.scene() - then).max() > 40
    # Start a new episode, so that the next one is far away.
    opened.press("Reset")
    opened.press("Pause")
    opened.wait("text.includes('paused')")
    # By then all pending updates are drawn.
    opened.page.wait_for_timeout(3000)
    before, then = opened.moment, opened.scene()
    opened.page.wait_for_timeout(1500)
    assert opened.moment == before
    assert np.abs(opened.scene() - then).max() < 40
    opened.press("Step")
    opened.wait(f"!text.includes(', {before[1]:.2f} s,')")
    assert opened.moment == (before[0], pytest.approx(before[1] + 0.01))
    opened.press("Play")
    opened.wait("!text.includes('paused')")


@pytest.mark.thorough
def test_the_blackout_slider_changes_what_is_seen(opened: Opened) -> None:
    opened.press("Reset")
    opened.page.wait_for_timeout(1500)
    assert "dark" not in opened.status
    seen, bright = line_height(opened.plot("share of sensors that work")), opened.scene()
    opened.enter("Blackout", "1")
    try:
        opened.wait("text.includes('dark')")
        opened.press("Reset")
        opened.page.wait_for_timeout(2500)
        # The lines have moved from the top of the plot to its bottom, and the robots are grey.
        assert line_height(opened.plot("share of sensors that work")) > seen + 0.2
        assert brightness_of_robots(opened.scene()) < 0.6 * brightness_of_robots(bright)
    finally:
        opened.enter("Blackout", "0")
        opened.wait("!text.includes('dark')")


@pytest.mark.thorough
def test_sensors_are_off_while_the_button_is_held(opened: Opened) -> None:
    button = opened.page.get_by_role("button", name="Sensors off now").bounding_box()
    opened.page.mouse.move(button["x"] + button["width"] / 2, button["y"] + button["height"] / 2)
    assert opened.sights == ["sees", "sees"]
    opened.page.mouse.down()
    opened.wait("text.includes('dark')")
    assert opened.sights == ["dark", "dark"]
    opened.page.mouse.up()
    opened.wait("!text.includes('dark')")
    assert opened.sights == ["sees", "sees"]


@pytest.mark.thorough
def test_an_earlier_policy_can_be_chosen(opened: Opened) -> None:
    boxes = [
        box for box in opened.page.locator("input:not([type=hidden])").all() if box.input_value() == "newest"
    ]
    assert len(boxes) == 2
    boxes[0].click()
    opened.page.get_by_role("option", name="4,000").click()
    opened.wait(f"text.includes('{NC} after 4,000 steps')")


@pytest.mark.thorough
def test_curves_of_training_are_beside(opened: Opened) -> None:
    opened.page.get_by_role("tab", name="Training").click()
    text = opened.page.locator(".costate-training").inner_text()
    assert "return in training\nfrom 0 to 20" in text
    assert opened.page.locator(".costate-training polyline").count() == 6
    opened.page.get_by_role("tab", name="Inside").click()


@pytest.mark.thorough
def test_a_second_browser_that_leaves_disturbs_nobody(opened: Opened, browser: Browser, address: str) -> None:
    other = browser.new_page()
    other.goto(address)
    other.wait_for_selector("#costate-status", timeout=PATIENCE)
    other.close()
    before = opened.moment
    opened.page.wait_for_timeout(1500)
    assert opened.moment > before
    assert opened.complaints == []


def test_nobody_else_is_answered(address: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(address, headers={"Host": "evil.example"}))


@pytest.mark.thorough
def test_the_command_ends_when_it_is_asked_to(tmp_path: pathlib.Path) -> None:
    run = made_run(tmp_path / "run", SMALL)
    with served(str(run.path)) as (found, process):
        assert urllib.request.urlopen(found).status == 200
        process.terminate()
        assert process.wait(30) == 0
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(found.rsplit(":", 1)[1]))) != 0:
                    return
        pytest.fail("the port is still open")
