"""The page in the browser: controls, scene and plots.

User actions go into a queue, which one thread processes between two steps.
"""

import contextlib
import html
import io
import queue
import time
from collections.abc import Callable
from typing import Any

import viser

from costate._base.errors import CheckpointError, ConfigError
from costate.envs.visible import AbstractPicturedRobot, AbstractRobot, AbstractVisibleRobot
from costate.runs.run_directory import Run
from costate.show.drawing import Drawing
from costate.show.guard import start_server
from costate.show.performance import Performance, Push
from costate.show.player import Player
from costate.show.plots import LivePlots, TrainingPlots
from costate.show.scene import Scene, radius_of
from costate.show.screen import HEIGHT, Screen
from costate.show.sensors import Blackouts
from costate.trained.trained import shown_steps

NEWEST = "newest"
# Seconds after the last event of a held button until it counts as released.
HELD = 0.3
HOLD_RATE = 10.0
DIRECTIONS = {"← push": (-1.0, 0.0, 0.0), "push →": (1.0, 0.0, 0.0), "push ↑": (0.0, 0.0, 1.0)}
BADGES = {
    False: '<span style="background:#9fdf9f">&nbsp;sees&nbsp;</span>',
    True: '<span style="background:#222;color:#fff">&nbsp;dark&nbsp;</span>',
}

Command = Callable[[], None]


class Page:
    """The browser's page of a performance."""

    def __init__(self, performance: Performance, host: str, port: int, newest: bool = True) -> None:
        titles = [player.title for player in performance.players]
        self.performance = performance
        self.server = start_server(host, port, f"costate: {performance.players[0].run.config.task}")
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.playing = True
        self.speed = 1.0
        self.follow = True
        self.steps_asked = 0
        self.newest = [newest for _ in titles]
        """Whether each robot loads every new checkpoint."""
        self._starts = [NEWEST if newest else f"{player.env_steps:,}" for player in performance.players]
        self._trouble = ""
        self._factor = 1.0
        self._blind_in_status: tuple[bool, ...] = ()
        self._off_until = 0.0
        self._off_held = False
        self._titles = titles
        gui = self.server.gui
        gui.configure_theme(
            show_logo=False, show_share_button=False, control_width="medium", brand_color=(31, 119, 180)
        )
        gui.set_panel_label("costate")
        self._status = gui.add_html("")
        self._add_play(gui)
        self._add_sensors(gui)
        if self._can_be_pushed:
            self._add_robot(gui)
        self._pickers = [self._add_picker(gui, i, title) for i, title in enumerate(titles)]
        panel = gui.add_panel()
        inside, training = panel.add_tab("Inside"), panel.add_tab("Training")
        panel.dock_left()
        with inside:
            self._plots = LivePlots(gui, performance, titles)
        with training:
            self._training = TrainingPlots(gui, titles)
        self._drawings = self._add_scene()
        self.update_plots()
        self.update_training()

    @property
    def port(self) -> int:
        return int(self.server.get_port())

    @property
    def watched(self) -> bool:
        """Return whether any browser is connected."""
        return bool(self.server.get_clients())

    def close(self) -> None:
        # viser would print a message of its own.
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    def process_commands(self, now: float) -> None:
        """Process the commands in the queue."""
        while not self.commands.empty():
            self.commands.get()()
        off = self._off_held or now < self._off_until
        if off != self.performance.blackouts.off:
            self.performance.blackouts = self.performance.blackouts._replace(off=off)

    def load_policy(self, which: int, step: int | None) -> None:
        """Give a robot the policy of a step, or the newest one.

        If training has deleted it meanwhile, report that and change nothing.
        """
        try:
            steps = shown_steps(self.performance.players[which].run)
            self.performance.load(which, steps[-1] if step is None else step)
            self._trouble = ""
        except (CheckpointError, ConfigError, IndexError) as error:
            self._trouble = str(error) or "This policy no longer exists."

    def update_scene(self) -> None:
        blind = self.performance.blind
        with self.server.atomic():
            for drawing, dark in zip(self._drawings, blind, strict=True):
                drawing.update(dark, self.follow)
            if blind != self._blind_in_status:
                # The status is updated less often, and would contradict the image until then.
                self.update_status(self._factor)

    def update_plots(self) -> None:
        self._plots.update()

    def update_training(self) -> None:
        """Update the learning curves and the list of policies."""
        runs = [player.run for player in self.performance.players]
        self._training.update([run.read_metrics() for run in runs])
        for picker, run in zip(self._pickers, runs, strict=True):
            options = _choices(run)
            if tuple(picker.options) != options:
                chosen = picker.value
                picker.options = options
                picker.value = chosen if chosen in options else NEWEST

    def update_status(self, factor: float) -> None:
        """Update the status text. ``factor`` is the speed relative to real time."""
        self._factor, self._blind_in_status = factor, self.performance.blind
        lines = []
        for title, player, history, dark in zip(
            self._titles,
            self.performance.players,
            self.performance.histories,
            self._blind_in_status,
            strict=True,
        ):
            now = history[-1] if history else None
            total = f"{now.total:.1f}" if now else "0"
            lines.append(f"<b>{title}</b> after {player.env_steps:,} steps {BADGES[dark]} return {total}")
        state = f"{factor:.2f} × real time" if self.playing else "paused"
        second = self.performance.step * self.performance.timestep
        played = self.performance.returns
        last = (
            f"; last returns {', '.join('/'.join(f'{r:.0f}' for r in returns) for returns in played)}"
            if played
            else ""
        )
        where = f"episode {self.performance.seed}, {second:.2f} s, {state}{last}"
        lines += [where, html.escape(self._trouble)] if self._trouble else [where]
        self._status.content = (
            f'<div id="costate-status" style="font-size:.85em;padding:.2em .8em">{"<br>".join(lines)}</div>'
        )

    def _ask(self, command: Command) -> Callable[[Any], None]:
        """Return a widget callback that only queues the command, because it runs in another thread."""
        return lambda _: self.commands.put(command)

    def _add_play(self, gui: viser.GuiApi) -> None:
        with gui.add_folder("Play"):
            self._play = gui.add_button("Pause")
            self._play.on_click(self._ask(self._toggle))
            gui.add_button("Step", hint="One control step, while paused").on_click(self._ask(self._ask_step))
            gui.add_button("Reset", hint="Restart the same episode").on_click(
                self._ask(lambda: self.performance.restart())
            )
            gui.add_button("Next episode").on_click(
                self._ask(lambda: self.performance.restart(self.performance.seed + 1))
            )
            speed = gui.add_slider(
                "Speed",
                min=0.1,
                max=3.0,
                step=0.1,
                initial_value=1.0,
                hint="Seconds of robot time per second",
            )
            speed.on_update(self._ask(lambda: setattr(self, "speed", float(speed.value))))

    def _add_sensors(self, gui: viser.GuiApi) -> None:
        start = self.performance.blackouts
        with gui.add_folder("Sensors"):
            probability = gui.add_slider(
                "Blackout",
                min=0.0,
                max=1.0,
                step=0.01,
                initial_value=start.probability,
                hint="Share of observations that black out",
            )
            burst = gui.add_slider(
                "Burst steps",
                min=0,
                max=50,
                step=1,
                initial_value=min(50, round(start.burst_length or 0)),
                hint="Mean length of a blackout in steps; 0 draws every step independently",
            )
            held = gui.add_button("Sensors off now", color="dark", hint="While the button is held down")
            held.on_hold(self._hold, callback_hz=HOLD_RATE)
            lock = gui.add_checkbox("Keep them off", initial_value=False)

        def change() -> None:
            self.performance.blackouts = Blackouts(
                float(probability.value), float(burst.value) or None, self.performance.blackouts.off
            )

        probability.on_update(self._ask(change))
        burst.on_update(self._ask(change))
        lock.on_update(self._ask(lambda: setattr(self, "_off_held", bool(lock.value))))

    def _add_robot(self, gui: viser.GuiApi) -> None:
        with gui.add_folder("Robot"):
            strength = gui.add_slider(
                "Strength",
                min=0.1,
                max=5.0,
                step=0.1,
                initial_value=1.0,
                hint="Force of a push for a fifth of a second, in weights of the robot",
            )
            buttons = gui.add_button_group("Push", tuple(DIRECTIONS))

            def push(event: Any) -> None:
                wanted = Push(DIRECTIONS[event.target.value], float(strength.value))
                self.commands.put(lambda: self.performance.push(wanted))

            buttons.on_click(push)
            follow = gui.add_checkbox("Camera follows", initial_value=True)
            follow.on_update(self._ask(lambda: setattr(self, "follow", bool(follow.value))))

    def _add_picker(self, gui: viser.GuiApi, which: int, title: str) -> Any:
        run = self.performance.players[which].run
        label = "Policy after" if len(self._titles) == 1 else title
        picker = gui.add_dropdown(
            label,
            _choices(run),
            initial_value=self._starts[which],
            hint="Training steps at which the policy was saved",
        )

        def choose() -> None:
            value = str(picker.value)
            self.newest[which] = value == NEWEST
            self.load_policy(which, None if value == NEWEST else int(value.replace(",", "")))

        picker.on_update(self._ask(choose))
        return picker

    def _add_scene(self) -> list[Drawing | Screen]:
        scene, players = self.server.scene, self.performance.players
        scene.set_up_direction("+z")
        scene.configure_default_lights(cast_shadow=False)
        reach, height = _extent(players[0].robot)
        spacing = 1.5 * reach if len(players) > 1 else 0.0
        drawings = [
            self._add_drawing(i, player, (2 * i - 1) * spacing if spacing else 0.0)
            for i, player in enumerate(players)
        ]
        camera = self.server.initial_camera
        camera.look_at = (0.0, 0.0, height)
        # Screens are viewed from the front.
        aside, above = (
            (0.8 * reach + spacing, 0.7 * reach + 0.5 * spacing) if self._can_be_pushed else (0.0, 0.0)
        )
        camera.position = (aside, -2.6 * reach - spacing, height + above)
        for drawing in drawings:
            drawing.update(dark=False, follow=True)
        return drawings

    def _add_drawing(self, number: int, player: Player, across: float) -> Drawing | Screen:
        name, robot = f"/robot {number + 1}", player.robot
        if isinstance(robot, AbstractPicturedRobot):
            return Screen(self.server, name, player, robot, across)
        assert isinstance(robot, AbstractVisibleRobot)
        return Drawing(self.server, name, player, robot, across)

    @property
    def _can_be_pushed(self) -> bool:
        return isinstance(self.performance.players[0].robot, AbstractVisibleRobot)

    def _hold(self, event: Any) -> None:
        # Only a number is written here. The thread that steps the robots reads it.
        self._off_until = time.monotonic() + HELD

    def _toggle(self) -> None:
        self.playing = not self.playing
        self._play.label = "Pause" if self.playing else "Play"

    def _ask_step(self) -> None:
        self.steps_asked += 1


def _extent(robot: AbstractRobot) -> tuple[float, float]:
    """Return how far a robot extends from its middle, and the height of its middle."""
    if not isinstance(robot, AbstractVisibleRobot):
        return 0.5 * HEIGHT, 0.5 * HEIGHT
    reach = max(0.3, min(5.0, radius_of(Scene(robot.model).shapes(robot.model, robot.data))))
    return reach, float(robot.data.xpos[1:, 2].mean())


def _choices(run: Run) -> tuple[str, ...]:
    return (NEWEST, *(f"{step:,}" for step in reversed(shown_steps(run))))
