"""Initial weights (Appendix E.1): orthogonal matrices, or the uniform ones that common libraries use by default."""

from typing import Literal

import jax
import jax.numpy as jnp

from costate._types import Array, Float, Key

Initialisation = Literal["orthogonal", "uniform"]


def orthogonal(key: Key[Array, ""], rows: int, columns: int, scale: float = 1.0) -> Float[Array, "rows columns"]:
    """A matrix whose shorter side is orthonormal, times ``scale``."""
    return jax.nn.initializers.orthogonal(scale)(key, (rows, columns), jnp.float32)


def uniform(key: Key[Array, ""], rows: int, columns: int, fan: int) -> Float[Array, "rows columns"]:
    """Entries uniform in ±1/√fan, the default of PyTorch's and Equinox's recurrent cells."""
    return jax.random.uniform(key, (rows, columns), jnp.float32, -(fan**-0.5), fan**-0.5)


def recurrent_matrix(key: Key[Array, ""], kind: Initialisation, rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A weight matrix of a recurrent core; ``columns`` is the hidden size."""
    return orthogonal(key, rows, columns) if kind == "orthogonal" else uniform(key, rows, columns, columns)
