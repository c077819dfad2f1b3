"""The loops of the gated recurrent unit in C, as functions of JAX arrays; gru.c says what they compute."""

import jax
import jax.numpy as jnp

from costate._types import Array, Bool, Float
from costate.native.library import state

# Widths that every processor's vectors divide.
MULTIPLE = 16


def serves(size: int, dtype: jnp.dtype) -> bool:
    """Whether there is a loop for hidden states of this width and type."""
    return dtype == jnp.float32 and size % MULTIPLE == 0 and state().available


def read(
    drives: tuple[Float[Array, "T B H"], ...], matrices: Float[Array, "3 H H"], hidden: Float[Array, "B H"], is_first: Bool[Array, "T B"]
) -> tuple[Array, Array, Array, Array]:
    """Hidden states and the three gates of every step, from what the observations contribute to the gates."""
    sequence = jax.ShapeDtypeStruct(drives[0].shape, jnp.float32)
    hiddens, r, z, n = jax.ffi.ffi_call("costate_gru_read", (sequence,) * 4, vmap_method="sequential")(*drives, matrices, hidden, is_first)
    return hiddens, r, z, n


def retrace(
    previous: Float[Array, "T B H"],
    gates: tuple[Float[Array, "T B H"], ...],
    cotangents: Float[Array, "T B H"],
    matrices: Float[Array, "3 H H"],
    is_first: Bool[Array, "T B"],
) -> tuple[tuple[Array, Array, Array], Array]:
    """What is asked of the three gates before their non-linearities, and of the first state."""
    sequence, first = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (previous.shape, previous.shape[1:]))
    call = jax.ffi.ffi_call("costate_gru_retrace", (sequence, sequence, sequence, first), vmap_method="sequential")
    d_r, d_z, d_n, d_hidden = call(previous, *gates, cotangents, matrices, is_first)
    return (d_r, d_z, d_n), d_hidden
