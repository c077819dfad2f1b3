"""Render images of a robot without a display, with any backend of MuJoCo that works on this machine."""

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

# Backends that need no display, and the Debian packages that provide them.
BACKENDS = {"mujoco.egl": "libegl1 libgl1-mesa-dri", "mujoco.osmesa": "libosmesa6"}

# Share of the remaining height difference that the camera covers with each image.
CLIMB = 0.1


def open_context(width: int, height: int) -> Any:
    """Open a graphics context. Raise if no backend works."""
    failures = []
    for name in BACKENDS:
        # Each backend sets its own platform, so that the setting of an earlier one must be removed.
        os.environ.pop("PYOPENGL_PLATFORM", None)
        try:
            context = importlib.import_module(name).GLContext(width, height)
            context.make_current()
        except Exception as error:
            failures.append(
                f"{name.removeprefix('mujoco.')}: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            )
            for module in [
                module for module in sys.modules if module == name or module.split(".")[0] == "OpenGL"
            ]:
                del sys.modules[module]
        else:
            return context
    packages = " or ".join(f"apt-get install {packages}" for packages in BACKENDS.values())
    raise ConfigError(
        f"No graphics backend works: neither EGL nor OSMesa ({'; '.join(failures)}). On Debian: {packages}."
    )


class Renderer:
    """Renders robots one after the other in images of one size. The camera follows from the side."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._context = open_context(width, height)
        self._scenes: dict[int, tuple[Any, Any, Any]] = {}

    def draw(self, model: Any, data: Any) -> UInt8[np.ndarray, "H W 3"]:
        """Render a robot in its present state."""
        self._context.make_current()
        scene, graphics, camera = self._scene(model, data)
        # Every robot's graphics have a buffer of their own, which must be selected again.
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, graphics)
        # The centre of mass of the heaviest body and everything attached to it.
        where = data.subtree_com[heaviest_body(model.body_mass)]
        camera.lookat[:2] = where[:2]
        # Slowly, so that a fall is visible.
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
            # The off-screen buffer must be at least as large as the image.
            model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._width)
            model.vis.global_.offheight = max(model.vis.global_.offheight, self._height)
            graphics = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
            self._scenes[id(model)] = mujoco.MjvScene(model, LARGEST_SCENE), graphics, _camera(model, data)
        return self._scenes[id(model)]


def _camera(model: Any, data: Any) -> Any:
    """Place the camera at the side, far enough away to show the whole robot."""
    reach = max(0.15, min(5.0, radius_of(Scene(model).shapes(model, data))))
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[2] = float(data.xpos[1:, 2].mean())
    camera.distance, camera.azimuth, camera.elevation = 4.2 * reach, 100.0, -12.0
    return camera
