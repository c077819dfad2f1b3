"""The Gaussian around the control, against SciPy, and the readouts' equations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from costate._base.errors import ConfigError
from costate.policies.readouts import READOUTS, Gaussian


def test_log_probability_and_entropy_equal_scipys():
    rng = np.random.default_rng(0)
    mean, log_std, action = rng.normal(size=(7, 3)), rng.normal(size=3), rng.normal(size=(7, 3))
    gaussian = Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32))
    expected = [
        scipy.stats.multivariate_normal(m, np.diag(np.exp(2 * log_std))).logpdf(a)
        for m, a in zip(mean, action, strict=True)
    ]
    np.testing.assert_allclose(gaussian.log_prob(jnp.asarray(action, jnp.float32)), expected, rtol=1e-5)
    np.testing.assert_allclose(
        gaussian.entropy(),
        scipy.stats.multivariate_normal(np.zeros(3), np.diag(np.exp(2 * log_std))).entropy(),
        rtol=1e-5,
    )


def test_samples_are_the_mean_plus_scaled_noise():
    gaussian = Gaussian(jnp.array([[1.0, 2.0]]), jnp.log(jnp.array([0.5, 2.0])))
    np.testing.assert_allclose(gaussian.sample(jnp.array([[2.0, -1.0]])), [[2.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("name", ["quadratic", "tanh"])
def test_smooth_readouts_start_near_zero_control_with_unit_deviation(name):
    readout = READOUTS[name]().build(jax.random.key(0), 32, 3)
    hidden = jax.random.normal(jax.random.key(1), (4, 5, 32))
    control = readout.distribution(hidden, hidden)
    assert control.mean.shape == (4, 5, 3)
    # Columns of length 0.01: |W h| ≤ 0.01 |h|.
    assert np.abs(control.mean).max() <= 0.01 * np.linalg.norm(hidden, axis=-1).max() + 1e-6
    np.testing.assert_array_equal(control.log_std, np.zeros(3))


@pytest.mark.parametrize("name", ["quadratic", "tanh"])
def test_exploration_starts_as_wide_as_it_is_told(name):
    readout = READOUTS[name](initial_deviation=0.4).build(jax.random.key(0), 32, 3)
    hidden = jnp.zeros(32)
    np.testing.assert_allclose(
        readout.distribution(hidden, hidden).sample(jnp.array([1.0, -2.0, 0.0])), [0.4, -0.8, 0.0], rtol=1e-6
    )
    assert float(readout.exploration()["training/action_std"]) == pytest.approx(0.4)
    for width in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"initial_deviation is .* a positive number"):
            READOUTS[name](initial_deviation=width)


def test_quadratic_is_linear_and_tanh_is_its_hyperbolic_tangent():
    hidden = 300.0 * jax.random.normal(jax.random.key(1), (32,))
    linear, bounded = (READOUTS[name]().build(jax.random.key(0), 32, 3) for name in ("quadratic", "tanh"))
    np.testing.assert_allclose(
        linear.control(hidden, 2.0 * hidden), 2.0 * linear.control(hidden, hidden), rtol=1e-5
    )
    np.testing.assert_allclose(
        bounded.control(hidden, hidden), np.tanh(linear.control(hidden, hidden)), rtol=1e-5
    )


def test_the_quadratic_law_minimises_its_hamiltonian():
    """With W_out = −½ G R⁻¹ no control on a grid around the law's has a smaller uᵀRu + uᵀGᵀh."""
    rng = np.random.default_rng(3)
    offsets = np.stack(np.meshgrid(np.linspace(-1.0, 1.0, 21), np.linspace(-1.0, 1.0, 21)), axis=-1).reshape(
        -1, 2
    )
    fresh = READOUTS["quadratic"]().build(jax.random.key(0), 4, 2)
    control = jax.jit(lambda weights, h: dataclasses.replace(fresh, weights=weights).control(jnp.zeros(4), h))
    for _ in range(50):
        root, G, h = rng.normal(size=(2, 2)), rng.normal(size=(4, 2)), rng.normal(size=4)
        R = root @ root.T + 0.1 * np.eye(2)
        law = np.asarray(
            control(jnp.asarray(-0.5 * G @ np.linalg.inv(R), jnp.float32), jnp.asarray(h, jnp.float32)),
            np.float64,
        )
        cost = [u @ R @ u + u @ (G.T @ h) for u in (law, *(law + offsets))]
        # The law is in float32, so it may miss the minimum by the square of its rounding.
        assert cost[0] <= min(cost) + 1e-9


def test_an_observed_influence_scales_what_each_component_of_the_memory_does():
    """σ = Wᵀ((1 + Mᵀỹ) ⊙ h), written out; at first M = 0 and G is the constant one."""
    rng = np.random.default_rng(1)
    feature, hidden, W, M = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4,), (4,), (4, 2), (4, 4))
    )
    observed, constant = (
        READOUTS["quadratic"](influence=kind).build(jax.random.key(0), 4, 2)
        for kind in ("observed", "constant")
    )
    np.testing.assert_array_equal(observed.control(feature, hidden), constant.control(feature, hidden))
    moved = dataclasses.replace(observed, weights=W, modulation=M)
    feature_, hidden_, W, M = (np.asarray(array) for array in (feature, hidden, W, M))
    expected = [
        sum(W[i, a] * (1.0 + sum(M[k, i] * feature_[k] for k in range(4))) * hidden_[i] for i in range(4))
        for a in range(2)
    ]
    np.testing.assert_allclose(moved.control(feature, hidden), expected, rtol=1e-5)
