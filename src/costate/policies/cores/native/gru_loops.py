"""The GRU's loops in C as functions of JAX arrays. See gru.c for what they compute."""

import jax
import jax.numpy as jnp

from costate._base.types import Array, Bool, Float
from costate.policies.cores.native.library import state

# Vectors of every processor divide a width that is a multiple of this.
MULTIPLE = 16
# Gradients of the weights are summed in C from this number of rows on. Below it both ways are equally fast.
LONG = 256


def serves(is_first: Array, *arrays: Array) -> bool:
    """Return True if there is a loop for arrays of these types and widths.

    C reads every number as a float32.
    """
    types = is_first.dtype == jnp.bool_ and all(array.dtype == jnp.float32 for array in arrays)
    return types and all(array.shape[-1] % MULTIPLE == 0 for array in arrays) and state().available


def sums(is_first: Array, *arrays: Array) -> bool:
    """Return True if gradients of the weights are better summed in C."""
    return is_first.size >= LONG and serves(is_first, *arrays)


def read(
    drives: tuple[Float[Array, "T B H"], ...],
    matrices: Float[Array, "3 H H"],
    hidden: Float[Array, "B H"],
    is_first: Bool[Array, "T B"],
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the hidden states after and before every step and its three gates.

    ``drives`` are the observations' contributions to the gates.
    """
    sequence = jax.ShapeDtypeStruct(drives[0].shape, jnp.float32)
    call = jax.ffi.ffi_call("costate_gru_read", (sequence,) * 5, vmap_method="sequential")
    hiddens, previous, r, z, n = call(*drives, matrices, hidden, is_first)
    return hiddens, previous, r, z, n


def retrace(
    previous: Float[Array, "T B H"],
    gates: tuple[Float[Array, "T B H"], ...],
    cotangents: Float[Array, "T B H"],
    matrices: Float[Array, "3 H H"],
    is_first: Bool[Array, "T B"],
) -> tuple[tuple[Array, Array, Array], Array]:
    """Return the gradients by the three gates before their non-linearities, and by the first state."""
    sequence, first = (
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (previous.shape, previous.shape[1:])
    )
    call = jax.ffi.ffi_call(
        "costate_gru_retrace", (sequence, sequence, sequence, first), vmap_method="sequential"
    )
    d_r, d_z, d_n, d_hidden = call(previous, *gates, cotangents, matrices, is_first)
    return (d_r, d_z, d_n), d_hidden


def gradients(
    features: Float[Array, "T B F"],
    previous: Float[Array, "T B H"],
    r: Float[Array, "T B H"],
    *deltas: Float[Array, "T B H"],
) -> tuple[Float[Array, "3 F H"], Float[Array, "3 H H"], Float[Array, "3 H"]]:
    """Return the gradients by weights and biases, summed over steps and streams."""
    width, size = features.shape[-1], previous.shape[-1]
    shapes = tuple(
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((3, width, size), (3, size, size), (3, size))
    )
    d_W, d_U, d_b = jax.ffi.ffi_call("costate_gru_gradients", shapes, vmap_method="sequential")(
        features, previous, r, *deltas
    )
    return d_W, d_U, d_b
