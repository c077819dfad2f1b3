"""A robot in the browser that draws itself: its picture on a screen, which turns grey while its sensors are dark."""

import numpy as np
import viser

from costate.envs.visible import AbstractPicturedRobot
from costate.show.drawing import DARK, DIM
from costate.show.player import Player

# Of every screen, in the units of the scene.
HEIGHT = 1.0
# Pictures have their rows from above; so they hang from their upper edge, towards who looks along y.
UPRIGHT = (0.5**0.5, -(0.5**0.5), 0.0, 0.0)


class Screen:
    """The picture of one robot, in the place of a drawing."""

    def __init__(
        self,
        server: viser.ViserServer,
        name: str,
        player: Player,
        robot: AbstractPicturedRobot,
        across: float,
    ) -> None:
        self._player, self._robot = player, robot
        picture = robot.picture()
        width = HEIGHT * picture.shape[1] / picture.shape[0]
        place = (across, 0.0, 0.5 * HEIGHT)
        self._image = server.scene.add_image(
            name,
            picture,
            width,
            HEIGHT,
            wxyz=UPRIGHT,
            position=place,
            cast_shadow=False,
            receive_shadow=False,
        )
        self._label = server.scene.add_label(f"{name}/label", "", position=(0.0, -0.6 * HEIGHT, 0.0))

    def update(self, dark: bool, follow: bool) -> None:
        """Show the robot as it stands. There is nothing to follow: the picture says what it shows."""
        picture = self._robot.picture()
        self._image.image = ((1.0 - DIM) * picture + DIM * 255.0 * DARK).astype(np.uint8) if dark else picture
        text = f"{self._player.title}{' · sensors dark' if dark else ''}"
        if self._label.text != text:
            self._label.text = text
