"""Networks whose every array is random, so that no bias or rate hides at its initial value."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Network = TypeVar("Network")


def randomised(build: Callable[..., Network], *arguments: Any, scale: float = 0.3, seed: int = 0) -> Network:
    """Return a network of the shapes that ``build`` makes, in float32, with normal entries of this scale.

    NumPy draws them, because compiling JAX's generator and initialisation for every shape takes longer than
    most tests.
    """
    random = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(build, *arguments)
    return jax.tree.map(lambda leaf: jnp.asarray(scale * random.normal(size=leaf.shape), jnp.float32), shapes)
