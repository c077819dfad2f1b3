"""Initial weights: orthogonal matrices (Appendix E.1), or the uniform ones that common libraries use."""

from typing import Literal

import jax
import jax.numpy as jnp

from costate._base.types import Array, Float, Int, Key

Initialisation = Literal["orthogonal", "uniform"]


def orthogonal(
    key: Key[Array, ""], rows: int, columns: int, scale: float = 1.0
) -> Float[Array, "rows columns"]:
    """Return a random matrix whose shorter side is orthonormal, times ``scale``.

    All such matrices are equally likely (Mezzadri 2007).
    """
    tall: Float[Array, "M N"] = orthonormal_columns(
        jax.random.normal(key, (max(rows, columns), min(rows, columns)))
    )
    return scale * (tall if rows >= columns else tall.T)


@jax.jit
def orthonormal_columns(matrix: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """Return Q of matrix = QR with a positive diagonal of R, by Gram–Schmidt with every projection twice.

    LAPACK would do, but several of its factorisations inside one compiled program can deadlock on a CPU.
    This is a program of its own, because a policy has many matrices of one shape, and the loop would be
    traced for each.
    """

    def add_column(j: Int[Array, ""], basis: Float[Array, "M N"]) -> Float[Array, "M N"]:
        column = matrix[:, j]
        # Once leaves rounding errors that grow with the condition number; twice suffices (Giraud et al.
        # 2005).
        for _ in range(2):
            column = column - basis @ (column @ basis)
        return basis.at[:, j].set(column / jnp.linalg.norm(column))

    basis: Float[Array, "M N"] = jax.lax.fori_loop(0, matrix.shape[1], add_column, jnp.zeros_like(matrix))
    return basis


def uniform(key: Key[Array, ""], rows: int, columns: int, fan: int) -> Float[Array, "rows columns"]:
    """Return entries uniform in ±1/√fan, the default of PyTorch's and Equinox's recurrent cells."""
    return jax.random.uniform(key, (rows, columns), jnp.float32, -(fan**-0.5), fan**-0.5)


def recurrent_matrix(
    key: Key[Array, ""], kind: Initialisation, rows: int, columns: int
) -> Float[Array, "rows columns"]:
    """Return a weight matrix of a recurrent core; ``columns`` is the hidden size."""
    return orthogonal(key, rows, columns) if kind == "orthogonal" else uniform(key, rows, columns, columns)


def recurrent_matrices(
    keys: Key[Array, " K"], kind: Initialisation, rows: int, columns: int
) -> Float[Array, "K rows columns"]:
    """Return several weight matrices, drawn separately so that each one is orthogonal."""
    return jax.vmap(lambda key: recurrent_matrix(key, kind, rows, columns))(keys)
