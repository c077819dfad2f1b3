"""Draw a robot in the browser as moving meshes, which turn grey during a sensor blackout."""

from typing import Any

import numpy as np
import viser

from costate._base.types import Float
from costate.envs.visible import AbstractVisibleRobot
from costate.show.performance import heaviest_body
from costate.show.player import Player
from costate.show.scene import GEOM, HORIZON, Scene, Shape, mesh_of, quaternion

GROUND = (0.80, 0.82, 0.86)
DARK = np.array([0.10, 0.10, 0.14])
# Share of a robot's colour that is lost in a blackout.
DIM = 0.8


class Drawing:
    """One robot in its own frame, which moves so that the robot stays in the middle."""

    def __init__(
        self, server: viser.ViserServer, name: str, player: Player, robot: AbstractVisibleRobot, across: float
    ) -> None:
        self._server, self._name, self._player, self._robot, self._across = (
            server,
            name,
            player,
            robot,
            across,
        )
        self._scene = Scene(robot.model)
        self._frame = server.scene.add_frame(name, show_axes=False)
        self._label = server.scene.add_label(f"{name}/label", "")
        self._handles: list[Any] = []
        self._shown: list[Shape] = []
        self._dark = False

    def update(self, dark: bool, follow: bool) -> None:
        """Draw the robot in its present state."""
        shapes = self._scene.shapes(self._robot.model, self._robot.data)
        with self._server.atomic():
            for i, shape in enumerate(shapes):
                if i >= len(self._shown) or shape.form != self._shown[i].form:
                    self._replace(i, shape, dark)
                else:
                    self._move(i, shape, dark)
            for handle in self._handles[len(shapes) :]:
                handle.remove()
            del self._handles[len(shapes) :]
            self._place(follow, dark)
        self._shown, self._dark = shapes, dark

    def _replace(self, i: int, shape: Shape, dark: bool) -> None:
        # A new shape replaces the one with the same name.
        handle = self._add(f"{self._name}/shape {i}", shape, dark)
        self._handles[i : i + 1] = [handle]

    def _move(self, i: int, shape: Shape, dark: bool) -> None:
        handle, before = self._handles[i], self._shown[i]
        if not np.array_equal(shape.position, before.position):
            handle.position = shape.position
        if not np.array_equal(shape.rotation, before.rotation):
            handle.wxyz = quaternion(shape.rotation)
        if shape.moves and (dark != self._dark or shape.color != before.color):
            handle.color = _rgb(shape, dark)

    def _add(self, name: str, shape: Shape, dark: bool) -> Any:
        pose: dict[str, Any] = {"position": shape.position, "wxyz": quaternion(shape.rotation)}
        if shape.kind == GEOM.mjGEOM_PLANE:
            width, height = (2.0 * half if half > 0.0 else 2.0 * HORIZON for half in shape.size[:2])
            return self._server.scene.add_grid(
                name,
                width,
                height,
                plane_color=GROUND,
                plane_opacity=1.0,
                cell_size=0.25,
                fade_distance=60.0,
                **pose,
            )
        vertices, faces = mesh_of(self._robot.model, shape)
        opacity = None if shape.color[3] >= 1.0 else shape.color[3]
        return self._server.scene.add_mesh_simple(
            name, vertices, faces, color=_rgb(shape, dark), opacity=opacity, side="double", **pose
        )

    def _place(self, follow: bool, dark: bool) -> None:
        where = self._robot.data.xpos[heaviest_body(self._robot.model.body_mass)]
        middle = where if follow else np.zeros(3)
        # The height is not followed, so that a fall is visible.
        self._frame.position = (-middle[0], self._across - middle[1], 0.0)
        self._label.position = (where[0], where[1], where[2] + 0.6)
        text = f"{self._player.title}{' · sensors dark' if dark else ''}"
        if self._label.text != text:
            self._label.text = text


def _rgb(shape: Shape, dark: bool) -> tuple[int, int, int]:
    color: Float[np.ndarray, " 3"] = np.asarray(shape.color[:3])
    mixed = (1.0 - DIM) * color + DIM * DARK if dark and shape.moves else color
    red, green, blue = (round(255 * float(part)) for part in np.clip(mixed, 0.0, 1.0))
    return red, green, blue
