"""Split learning over devices of any kind: whole seeds first, then the streams of each minibatch."""

import dataclasses
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Array

SEEDS, STREAMS = "seeds", "streams"
"""Names of the two axes of the mesh."""

Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class Shards:
    """The devices that compute one minibatch together, as seen by the program of one of them."""

    count: int

    def part(self, array: Array, axis: int) -> Array:
        """Return this device's share of ``array`` along ``axis``."""
        if self.count == 1:
            return array
        size = array.shape[axis] // self.count
        return jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index(STREAMS) * size, size, axis)

    def total(self, tree: Tree) -> Tree:
        """Return the sum over the devices, on each of them.

        All arrays of one dtype are sent as one message. Devices wait for each other once per message, and
        with one message for each small array of a network that would take as long as a short update itself.
        """
        if self.count == 1:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        sums = list(leaves)
        for kind in dict.fromkeys(leaf.dtype for leaf in leaves):
            places = [place for place, leaf in enumerate(leaves) if leaf.dtype == kind]
            message = jax.lax.psum(jnp.concatenate([leaves[place].ravel() for place in places]), STREAMS)
            ends = np.cumsum([leaves[place].size for place in places])
            for place, piece in zip(places, jnp.split(message, ends[:-1]), strict=True):
                sums[place] = piece.reshape(leaves[place].shape)
        total: Tree = jax.tree.unflatten(structure, sums)
        return total


ALONE = Shards(1)


class DeviceGrid(NamedTuple):
    """Devices in groups: each group trains some seeds, and its devices share every minibatch."""

    seeds: int
    """Groups of devices. Each trains its share of the seeds without communication."""
    streams: int
    """Devices in a group. Each takes its share of every minibatch, and gradients are summed."""

    @property
    def devices(self) -> int:
        return self.seeds * self.streams

    @property
    def shards(self) -> Shards:
        return Shards(self.streams)

    def mesh(self) -> jax.sharding.Mesh:
        devices = np.array(jax.devices()[: self.devices]).reshape(self.seeds, self.streams)
        return jax.sharding.Mesh(devices, (SEEDS, STREAMS))


def choose_grid(devices: int | None, available: int, seeds: int, streams: int) -> DeviceGrid:
    """Return the grid for ``devices`` of the ``available`` ones, or for as many as can be used if it is None.

    Seeds need no communication, so the grid has as many groups as possible. ``streams`` is the number of
    streams in a minibatch.
    """
    grids = {grid.devices: grid for grid in _grids(seeds, streams) if grid.devices <= available}
    if devices is None:
        return grids[max(grids)]
    if devices in grids:
        return grids[devices]
    works = f"Numbers that work: {', '.join(map(str, sorted(grids)))}."
    if devices > available:
        raise ConfigError(
            f"devices is {devices}, but JAX sees {available} ({jax.devices()[0].platform}). {works} "
            "JAX_NUM_CPU_DEVICES sets the number of devices that a CPU is split into; more than its cores "
            "are only useful for testing."
        )
    what = (
        f"{streams} streams of a minibatch"
        if seeds == 1
        else f"{seeds} seeds with {streams} streams in a minibatch"
    )
    raise ConfigError(f"devices is {devices}, but {what} cannot be split evenly over {devices}. {works}")


def _grids(seeds: int, streams: int) -> list[DeviceGrid]:
    """Return all grids that split seeds and streams evenly, those with more groups last."""
    return [DeviceGrid(s, m) for s in _divisors(seeds) for m in _divisors(streams)]


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
