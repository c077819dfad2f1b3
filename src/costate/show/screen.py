"""A robot in the browser that draws itself: its image on a screen, which turns grey during a blackout."""

import numpy as np
import viser

from costate.envs.visible import AbstractPicturedRobot
from costate.show.drawing import DARK, DIM
from costate.show.player import Player

# Height of every screen, in units of the scene.
HEIGHT = 1.0
# Image rows run downwards, so a screen hangs from its upper edge and faces a viewer who looks along y.
UPRIGHT = (0.5**0.5, -(0.5**0.5), 0.0, 0.0)


class Screen:
    """The image of one robot, used instead of a drawing."""

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
        """Show the robot in its present state.

        ``follow`` has no effect, because the image has its own camera.
        """
        picture = self._robot.picture()
        self._image.image = ((1.0 - DIM) * picture + DIM * 255.0 * DARK).astype(np.uint8) if dark else picture
        text = f"{self._player.title}{' · sensors dark' if dark else ''}"
        if self._label.text != text:
            self._label.text = text
