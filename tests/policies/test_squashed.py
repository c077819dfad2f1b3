"""The squashed normal distribution against numerical integration and the textbook formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from costate.policies.squashed import HIGHEST, LOWEST, SquashedGaussian, bounded_log_std


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.8)])
def test_probabilities_add_up_to_one_and_follow_the_change_of_variables(mean, std):
    u = np.linspace(-1.0, 1.0, 200_001)[1:-1]
    x = np.arctanh(u)
    noise = jnp.asarray(((x - mean) / std)[:, None], jnp.float32)
    shape = (len(u), 1)
    policy = SquashedGaussian(jnp.full(shape, mean), jnp.full(shape, np.log(std)))
    action, log_prob = policy.sample_and_log_prob(noise)
    np.testing.assert_allclose(action[:, 0], u, atol=1e-6)
    np.testing.assert_allclose(log_prob, scipy.stats.norm.logpdf(x, mean, std) - np.log1p(-(u**2)), atol=2e-3)
    # Wide distributions pile up at the bounds, which a grid resolves to this much.
    assert np.trapezoid(np.exp(np.asarray(log_prob, np.float64)), u) == pytest.approx(1.0, abs=2e-3)


def test_components_add_and_far_out_everything_stays_finite():
    mean, log_std = jnp.array([[30.0, -30.0]]), jnp.zeros((1, 2))
    action, log_prob = SquashedGaussian(mean, log_std).sample_and_log_prob(jnp.zeros((1, 2)))
    np.testing.assert_allclose(action, [[1.0, -1.0]])
    # 1 − tanh² x = 4 e^(−2|x|) far out.
    np.testing.assert_allclose(log_prob, [2 * (-0.5 * np.log(2 * np.pi) - np.log(4.0) + 60.0)], rtol=1e-5)
    gradient = jax.grad(
        lambda m: SquashedGaussian(m, log_std).sample_and_log_prob(jnp.zeros((1, 2)))[1].sum()
    )(mean)
    assert np.isfinite(gradient).all()


def test_the_mode_is_the_squashed_mean_and_log_std_stays_in_its_bounds():
    np.testing.assert_allclose(
        SquashedGaussian(jnp.array([0.5]), jnp.zeros(1)).mode(), np.tanh([0.5]), rtol=1e-6
    )
    np.testing.assert_allclose(
        bounded_log_std(jnp.array([-100.0, 0.0, 100.0])), [LOWEST, (LOWEST + HIGHEST) / 2, HIGHEST], rtol=1e-6
    )


def test_the_log_probability_of_any_control_follows_the_change_of_variables():
    mean, std = np.array([0.4, -1.0]), np.array([0.5, 1.2])
    u = np.random.default_rng(0).uniform(-0.99, 0.99, (50, 2))
    expected = (scipy.stats.norm.logpdf(np.arctanh(u), mean, std) - np.log1p(-(u**2))).sum(-1)
    policy = SquashedGaussian(*(jnp.broadcast_to(jnp.asarray(each), u.shape) for each in (mean, np.log(std))))
    # float32: artanh of 0.99 keeps about five digits.
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(u, jnp.float32)), expected, rtol=2e-4, atol=2e-4)


def test_the_bounds_themselves_have_a_finite_log_probability():
    """artanh 1 is infinite; the largest float32 below 1 is 1 − 2⁻²⁴, of which artanh is 12.5 log 2."""
    x = 12.5 * np.log(2.0)
    policy = SquashedGaussian(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    expected = scipy.stats.norm.logpdf(x) - np.log(4.0) + 2.0 * x
    np.testing.assert_allclose(policy.log_prob(jnp.array([[1.0], [-1.0]])), [expected] * 2, rtol=1e-4)
    gradient = jax.grad(lambda u: policy.log_prob(u).sum())(jnp.array([[1.0], [-1.0]]))
    assert np.isfinite(gradient).all()


def test_controls_reach_the_bounds_of_the_actuators():
    policy = SquashedGaussian(jnp.zeros((3, 1)), jnp.zeros((3, 1)))
    low, high = np.array([-3.0], np.float32), np.array([1.0], np.float32)
    found = policy.actuate(jnp.array([[-1.0], [0.0], [1.0]]), low, high)
    np.testing.assert_allclose(found, [[-3.0], [-1.0], [1.0]])


def test_controls_without_bounds_to_speak_of_are_not_scaled_to_them():
    low, high = np.array([-1e10, -2.0], np.float32), np.array([1e10, 4.0], np.float32)
    policy = SquashedGaussian(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    np.testing.assert_allclose(policy.actuate(jnp.array([[0.5, 0.5]]), low, high), [[0.5, 2.5]])
