"""The Gaussian around the control, against SciPy, and the readouts' equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from costate.readouts import READOUTS, Gaussian, distribution


def test_log_probability_and_entropy_equal_scipys():
    rng = np.random.default_rng(0)
    mean, log_std, action = rng.normal(size=(7, 3)), rng.normal(size=3), rng.normal(size=(7, 3))
    gaussian = Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32))
    expected = [scipy.stats.multivariate_normal(m, np.diag(np.exp(2 * log_std))).logpdf(a) for m, a in zip(mean, action, strict=True)]
    np.testing.assert_allclose(gaussian.log_prob(jnp.asarray(action, jnp.float32)), expected, rtol=1e-5)
    np.testing.assert_allclose(gaussian.entropy(), scipy.stats.multivariate_normal(np.zeros(3), np.diag(np.exp(2 * log_std))).entropy(), rtol=1e-5)


def test_samples_are_the_mean_plus_scaled_noise():
    gaussian = Gaussian(jnp.array([[1.0, 2.0]]), jnp.log(jnp.array([0.5, 2.0])))
    np.testing.assert_allclose(gaussian.sample(jnp.array([[2.0, -1.0]])), [[2.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("name", READOUTS.names())
def test_every_readout_starts_near_zero_control_with_unit_deviation(name):
    readout = READOUTS[name]().build(jax.random.key(0), 32, 3)
    hidden = jax.random.normal(jax.random.key(1), (4, 5, 32))
    control = distribution(readout, hidden)
    assert control.mean.shape == (4, 5, 3)
    # Columns of length 0.01: |W h| ≤ 0.01 |h|.
    assert np.abs(control.mean).max() <= 0.01 * np.linalg.norm(hidden, axis=-1).max() + 1e-6
    np.testing.assert_array_equal(control.log_std, np.zeros(3))


def test_quadratic_is_linear_and_tanh_is_its_hyperbolic_tangent():
    hidden = 300.0 * jax.random.normal(jax.random.key(1), (32,))
    linear, bounded = (READOUTS[name]().build(jax.random.key(0), 32, 3) for name in ("quadratic", "tanh"))
    np.testing.assert_allclose(linear.control(2.0 * hidden), 2.0 * linear.control(hidden), rtol=1e-5)
    np.testing.assert_allclose(bounded.control(hidden), np.tanh(linear.control(hidden)), rtol=1e-5)
