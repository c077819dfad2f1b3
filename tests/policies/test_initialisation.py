"""Initial weights against LAPACK and JAX's own initialiser."""

import jax
import numpy as np
import pytest

from costate.policies.initialisation import orthogonal, orthonormal_columns


@pytest.mark.parametrize("shape", [(128, 128), (24, 128), (128, 6), (1, 3)])
def test_orthogonal_matrices_are_those_of_jax(shape):
    """Compare with a QR factorisation by LAPACK, which is unique if its diagonal is positive."""
    expected = jax.nn.initializers.orthogonal(0.5)(jax.random.key(3), shape)
    # float32, for a matrix whose condition number is about its size.
    np.testing.assert_allclose(orthogonal(jax.random.key(3), *shape, 0.5), expected, atol=5e-5)


def test_columns_are_orthonormal_even_of_an_ill_conditioned_matrix():
    """Columns differ by a thousandth, so that a single projection would err by a thousand rounding units."""
    matrix = np.ones((16, 8)) + 1e-3 * np.random.default_rng(0).normal(size=(16, 8))
    basis = np.asarray(orthonormal_columns(jax.numpy.asarray(matrix, jax.numpy.float32)))
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-6)
    # It spans the same space: nothing of the matrix lies outside, beyond the rounding of its entries near 1.
    np.testing.assert_allclose(matrix - basis @ (basis.T @ matrix), 0.0, atol=1e-6)
