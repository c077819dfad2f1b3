"""A robot in its scene as shapes: everything that MuJoCo would draw, independent of a renderer."""

from typing import Any, NamedTuple

import mujoco
import numpy as np
import trimesh

from costate._base.types import Float, Int

# Half-size of a plane that is infinite in the model.
HORIZON = 40.0
LARGEST_SCENE = 5000

GEOM = mujoco.mjtGeom


class Shape(NamedTuple):
    """One object to draw."""

    kind: int
    """One of MuJoCo's ``mjtGeom``."""
    size: tuple[float, float, float]
    position: Float[np.ndarray, " 3"]
    rotation: Float[np.ndarray, "3 3"]
    color: tuple[float, float, float, float]
    """Red, green, blue and opacity, from 0 to 1."""
    data: int
    """Number of the mesh or height field, if it is one."""
    moves: bool
    """Whether it belongs to a moving body."""

    @property
    def form(self) -> tuple[int, tuple[float, float, float], int]:
        """The properties that determine its mesh."""
        return self.kind, self.size, self.data


class Scene:
    """The shapes of one robot, in the order of MuJoCo's own scene."""

    def __init__(self, model: Any) -> None:
        self._option, self._camera, self._perturbation = (
            mujoco.MjvOption(),
            mujoco.MjvCamera(),
            mujoco.MjvPerturb(),
        )
        self._scene = mujoco.MjvScene(model, LARGEST_SCENE)

    def shapes(self, model: Any, data: Any) -> list[Shape]:
        """Return the shapes of the robot in its present state, without fully transparent ones."""
        mujoco.mjv_updateScene(
            model,
            data,
            self._option,
            self._perturbation,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        found = (_shape(self._scene.geoms[i]) for i in range(self._scene.ngeom))
        return [shape for shape in found if shape.kind in DRAWN and shape.color[3] > 0.0]


def _shape(geom: Any) -> Shape:
    x, y, z = (round(float(part), 6) for part in geom.size)
    red, green, blue, alpha = (float(part) for part in geom.rgba)
    moves = geom.category != mujoco.mjtCatBit.mjCAT_STATIC
    return Shape(
        int(geom.type),
        (x, y, z),
        geom.pos.astype(float),
        geom.mat.astype(float).reshape(3, 3),
        (red, green, blue, alpha),
        int(geom.dataid),
        bool(moves),
    )


def mesh_of(model: Any, shape: Shape) -> tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]:
    """Return vertices and triangles of a shape relative to its own origin."""
    return DRAWN[shape.kind](model, shape)


def _of_trimesh(mesh: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(mesh.vertices, float), np.asarray(mesh.faces, int)


def _sphere(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return a sphere, or an ellipsoid with the shape's three radii."""
    vertices, faces = _of_trimesh(trimesh.creation.icosphere(subdivisions=3))
    return vertices * np.asarray(shape.size), faces


def _capsule(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    radius, _, half = shape.size
    mesh = trimesh.creation.capsule(height=2.0 * half, radius=radius, count=[16, 16])
    mesh.vertices -= mesh.bounds.mean(axis=0)
    return _of_trimesh(mesh)


def _cylinder(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    radius, _, half = shape.size
    return _of_trimesh(trimesh.creation.cylinder(radius=radius, height=2.0 * half, sections=24))


def _box(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return _of_trimesh(trimesh.creation.box(extents=2.0 * np.asarray(shape.size)))


def _plane(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    x, y = (half if half > 0.0 else HORIZON for half in shape.size[:2])
    return np.array([[-x, -y, 0.0], [x, -y, 0.0], [x, y, 0.0], [-x, y, 0.0]]), np.array(
        [[0, 1, 2], [0, 2, 3]]
    )


def _mesh(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    # MuJoCo's numbering includes the convex hull of every mesh.
    number = shape.data // 2
    first, count = model.mesh_vertadr[number], model.mesh_vertnum[number]
    start, faces = model.mesh_faceadr[number], model.mesh_facenum[number]
    return np.array(model.mesh_vert[first : first + count], float), np.array(
        model.mesh_face[start : start + faces], int
    )


def _height_field(model: Any, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    number = shape.data
    rows, columns, first = (
        int(model.hfield_nrow[number]),
        int(model.hfield_ncol[number]),
        int(model.hfield_adr[number]),
    )
    x, y, top, _ = model.hfield_size[number]
    heights = np.asarray(model.hfield_data[first : first + rows * columns], float) * top
    across, along = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    lower = np.stack([corner, corner + 1, corner + columns + 1], axis=1)
    upper = np.stack([corner, corner + columns + 1, corner + columns], axis=1)
    return np.stack([across.ravel(), along.ravel(), heights], axis=1), np.concatenate([lower, upper])


DRAWN = {
    GEOM.mjGEOM_PLANE: _plane,
    GEOM.mjGEOM_HFIELD: _height_field,
    GEOM.mjGEOM_SPHERE: _sphere,
    GEOM.mjGEOM_ELLIPSOID: _sphere,
    GEOM.mjGEOM_CAPSULE: _capsule,
    GEOM.mjGEOM_CYLINDER: _cylinder,
    GEOM.mjGEOM_BOX: _box,
    GEOM.mjGEOM_MESH: _mesh,
}
"""Functions that make a mesh for each kind of shape. MuJoCo's arrows and labels are not shown."""


def quaternion(rotation: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, " 4"]:
    """Return a rotation as a quaternion w, x, y, z."""
    result = np.empty(4)
    mujoco.mju_mat2Quat(result, rotation.ravel())
    return result


def radius_of(shapes: list[Shape]) -> float:
    """Return how far a robot extends from its middle."""
    moving = [shape for shape in shapes if shape.moves] or shapes
    positions = np.array([shape.position for shape in moving])
    reach = np.array([max(shape.size) for shape in moving])
    return float((np.linalg.norm(positions - positions.mean(axis=0), axis=1) + reach).max())
