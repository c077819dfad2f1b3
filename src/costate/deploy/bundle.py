"""A policy as one file: weights, normaliser, architecture, observation names, action bounds and provenance.

The file and its checks are described in ``numpy_runtime``, which reads it without this library.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from costate._base.errors import BundleError, ConfigError, MisuseError
from costate._base.first_release import FIRST_RELEASE, filled
from costate._base.plain_data import decode
from costate.deploy import numpy_runtime
from costate.deploy.network import FORMS, AbstractNetwork
from costate.deploy.numpy_runtime import NO_DIGEST, Description, Tensors
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import RunningStats

Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The content of a bundle file."""

    description: Description
    tensors: Tensors
    name: str = "The bundle"
    """The name of the bundle in error messages."""

    @property
    def sizes(self) -> numpy_runtime.Sizes:
        return numpy_runtime.sizes_of(self.description)


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of the NumPy runtime, which imports nothing from here, into errors of this library."""
    try:
        yield
    except numpy_runtime.BundleError as error:
        raise BundleError(str(error)) from error
    except numpy_runtime.MisuseError as error:
        raise MisuseError(str(error)) from error


def pack(bundle: Bundle) -> bytes:
    """Return the bytes of a bundle file."""
    table, parts, position = {}, [], 0
    for name, tensor in sorted(bundle.tensors.items()):
        content = np.ascontiguousarray(tensor, "<f4").tobytes()
        table[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [position, position + len(content)],
        }
        position += len(content)
        parts.append(content)
    description = json.dumps(bundle.description, separators=(",", ":"), allow_nan=False)
    header = json.dumps(
        {"__metadata__": {"costate": description, "sha256": NO_DIGEST}} | table, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    start = struct.pack("<Q", len(header))
    digest = hashlib.sha256(b"".join([start, header, *parts])).hexdigest()
    return b"".join(
        [start, header.replace(f'"sha256":"{NO_DIGEST}"'.encode(), f'"sha256":"{digest}"'.encode()), *parts]
    )


def unpack(content: bytes, name: str = "The bundle") -> Bundle:
    """Parse the bytes of a bundle. Raise if they are damaged, malicious or of another format version."""
    with translated_errors():
        return _checked(Bundle(*numpy_runtime.parse_bundle(content, name), name))


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle file."""
    with translated_errors():
        return _checked(Bundle(*numpy_runtime.read_bundle(path), os.fspath(path)))


def _checked(bundle: Bundle) -> Bundle:
    """Compare a bundle with its own description, as far as that is possible without building the policy.

    A user-defined core is compared when it is built.
    """
    policy = bundle.description["policy"]
    if policy["core"]["name"] in numpy_runtime.CORES and policy["readout"]["name"] in numpy_runtime.READOUTS:
        numpy_runtime.check_tensors(bundle.description, bundle.tensors, bundle.name)
    return bundle


def network_of(bundle: Bundle) -> AbstractNetwork:
    """Build the policy that a bundle holds."""
    description, sizes = bundle.description, bundle.sizes
    try:
        config: PolicyConfig = decode(
            PolicyConfig, filled(description["policy"], FIRST_RELEASE["policy"]), "policy"
        )
    except ConfigError as error:
        raise BundleError(f"{bundle.name} cannot be used with this version of costate: {error}") from error
    form = FORMS[description["algorithm"]]
    template = jax.eval_shape(
        lambda: form.template(config, jax.random.key(0), sizes.observation, sizes.action)
    )
    own = {name: tensor for name, tensor in bundle.tensors.items() if not name.startswith("normaliser.")}
    weights = from_tensors(template, own, bundle.name)
    stats = RunningStats(
        *(jnp.asarray(bundle.tensors[f"normaliser.{part}"]) for part in ("mean", "variance", "count"))
    )
    clip, low, high = (
        description["observation_clip"],
        tuple(description["action"]["low"]),
        tuple(description["action"]["high"]),
    )
    return form.build(weights, stats, clip, low, high)


def to_tensors(tree: Any) -> Tensors:
    """Return every array of a pytree under its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): np.asarray(leaf, np.float32) for path, leaf in leaves}


def from_tensors(template: Tree, tensors: Tensors, name: str) -> Tree:
    """Invert :func:`to_tensors` for a pytree shaped like ``template``."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {jax.tree_util.keystr(path).lstrip("."): leaf.shape for path, leaf in leaves}
    if wanted.keys() != tensors.keys():
        raise BundleError(
            f"{name} does not fit its own description. Arrays in only one of them: "
            f"{', '.join(sorted(wanted.keys() ^ tensors.keys()))}."
        )
    for key, shape in wanted.items():
        if tensors[key].shape != shape:
            raise BundleError(
                f"{name}: {key} has shape {list(tensors[key].shape)}, but its description implies "
                f"{list(shape)}."
            )
    tree: Tree = jax.tree_util.tree_unflatten(structure, [jnp.asarray(tensors[key]) for key in wanted])
    return tree
