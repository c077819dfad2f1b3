"""Pictures of a robot without a screen, by whatever MuJoCo can draw with on this machine."""

import contextlib
import importlib
import os
import sys
from typing import Any

import mujoco
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import UInt8
from costate.show.performance import heaviest_body
from costate.show.scene import LARGEST_SCENE, Scene, radius_of

# What can draw without a screen, and the Debian package that brings it.
BACKENDS = {"mujoco.egl": "libegl1 libgl1-mesa-dri", "mujoco.osmesa": "libosmesa6"}

# Share of the way to a robot's height that the camera goes with every picture.
CLIMB = 0.1


def open_context(width: int, height: int) -> Any:
    """Somewhere to draw; raises if there is nothing that can."""
    failures = []
    for name in BACKENDS:
        # Each asks for the platform of its own; what an earlier one has asked for must not stay.
        os.environ.pop("PYOPENGL_PLATFORM", None)
        try:
            context = importlib.import_module(name).GLContext(width, height)
            context.make_current()
        except Exception as error:
            failures.append(
                f"{name.removeprefix('mujoco.')}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            )
            for module in [
                module for module in sys.modules if module == name or module.split(".")[0] == "OpenGL"
            ]:
                del sys.modules[module]
        else:
            return context
    packages = " or ".join(f"apt-get install {packages}" for packages in BACKENDS.values())
    raise ConfigError(
        f"There is nothing to draw with: neither EGL nor OSMesa works here ({'; '.join(failures)}). On Debian: {packages}."
    )


class Renderer:
    """Draws robots, one after the other, in pictures of one size. The camera looks from the side and follows."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._context = open_context(width, height)
        self._scenes: dict[int, tuple[Any, Any, Any]] = {}

    def draw(self, model: Any, data: Any) -> UInt8[np.ndarray, "H W 3"]:
        """A robot as it stands."""
        self._context.make_current()
        scene, graphics, camera = self._scene(model, data)
        # Every robot's graphics have a buffer of their own, and the last one that was chosen would be drawn over.
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, graphics)
        # The middle of the heaviest part and of all that hangs on it.
        where = data.subtree_com[heaviest_body(model.body_mass)]
        camera.lookat[:2] = where[:2]
        # Slowly, so that a robot that falls is seen to fall.
        camera.lookat[2] += CLIMB * (where[2] - camera.lookat[2])
        mujoco.mjv_updateScene(
            model, data, mujoco.MjvOption(), mujoco.MjvPerturb(), camera, mujoco.mjtCatBit.mjCAT_ALL, scene
        )
        viewport = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(viewport, scene, graphics)
        picture = np.empty((self._height, self._width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, viewport, graphics)
        return picture[::-1]

    def close(self) -> None:
        for _, graphics, _ in self._scenes.values():
            with contextlib.suppress(Exception):
                graphics.free()
        self._scenes.clear()
        self._context.free()

    def _scene(self, model: Any, data: Any) -> tuple[Any, Any, Any]:
        if id(model) not in self._scenes:
            # The off-screen buffer must be as large as the picture.
            model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._width)
            model.vis.global_.offheight = max(model.vis.global_.offheight, self._height)
            graphics = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
            self._scenes[id(model)] = mujoco.MjvScene(model, LARGEST_SCENE), graphics, _camera(model, data)
        return self._scenes[id(model)]


def _camera(model: Any, data: Any) -> Any:
    """From the side, far enough away to see the robot whole."""
    reach = max(0.15, min(5.0, radius_of(Scene(model).shapes(model, data))))
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[2] = float(data.xpos[1:, 2].mean())
    camera.distance, camera.azimuth, camera.elevation = 4.2 * reach, 100.0, -12.0
    return camera
