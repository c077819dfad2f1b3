"""Bundles of policies with random weights, made without training."""

from typing import Any

import jax
import numpy as np

from costate._base.plain_data import encode
from costate.deploy.bundle import Bundle
from costate.deploy.numpy_runtime import FORMAT, VERSION
from costate.policies.policy import PolicyConfig, build_policy
from costate.policies.sac_networks import build_actor

LAYOUT = (("position", 3), ("velocity", 2))


def random_bundle(
    policy: PolicyConfig, *, algorithm: str = "ppo", mask_input: str = "none", seed: int = 0, **changes: Any
) -> Bundle:
    """Return an untrained policy with random values in every array, so that tests notice a forgotten one."""
    sensors = sum(size for _, size in LAYOUT)
    size, actions, rng = (
        sensors + {"none": 0, "bit": 1, "bits": sensors}[mask_input],
        2,
        np.random.default_rng(seed),
    )
    build = build_actor if algorithm == "sac" else build_policy
    # Shapes only, because drawing orthogonal matrices would be compiled again for each size.
    template = jax.eval_shape(lambda: build(policy, jax.random.key(0), size, actions))
    leaves, _ = jax.tree_util.tree_flatten_with_path(template)
    weights = {jax.tree_util.keystr(path).lstrip("."): leaf.shape for path, leaf in leaves}
    # Large enough to reach bounds, dead zones and switches, and small enough for a memory that is not
    # chaotic.
    shaken = {
        name: (0.6 * rng.standard_normal(shape) / np.sqrt(max((1, *shape[-2:])))).astype(np.float32)
        for name, shape in weights.items()
    }
    normaliser = {
        "mean": rng.standard_normal(size),
        "variance": rng.random(size) + 0.1,
        "count": np.asarray(10.0),
    }
    normaliser["variance"][1] = 0.0  # a constant sensor
    description = {
        "format": FORMAT,
        "version": VERSION,
        "algorithm": algorithm,
        "policy": encode(policy),
        "observation": [list(group) for group in LAYOUT],
        "mask_input": mask_input,
        "action": {"low": [-1.0, -0.5], "high": [1.0, 2.0]},
        "observation_clip": 5.0,
        "sensors": {},
        "provenance": {"task": "Nothing", "env_steps": 0, "control_timestep": 0.01},
    }
    return Bundle(
        description | changes,
        shaken | {f"normaliser.{name}": array.astype(np.float32) for name, array in normaliser.items()},
    )
