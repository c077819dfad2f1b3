"""The contract that every distribution over controls must fulfil, for any number of streams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from costate.policies.distribution import AbstractDistribution
from costate.policies.readouts import Gaussian, Gibbs
from costate.policies.squashed import SquashedGaussian

T, B, A = 4, 3, 2


def location(streams: tuple[int, ...]) -> jax.Array:
    """One row of numbers near 0, the same for every stream."""
    return jnp.broadcast_to(jnp.array([0.6, -0.2]), (*streams, A))


def gaussian(streams: tuple[int, ...]) -> Gaussian:
    return Gaussian(location(streams), jnp.array([-0.5, 0.1]))


def bang_bang(streams: tuple[int, ...]) -> Gibbs:
    return Gibbs(location(streams), jnp.array([-0.3, 0.2]), (-1.0, 1.0), 0.0)


def bang_off_bang(streams: tuple[int, ...]) -> Gibbs:
    return Gibbs(location(streams), jnp.array([-0.3, 0.2]), (-1.0, 0.0, 1.0), 0.4)


def squashed(streams: tuple[int, ...]) -> SquashedGaussian:
    return SquashedGaussian(location(streams), jnp.broadcast_to(jnp.array([-0.5, 0.1]), (*streams, A)))


pytestmark = pytest.mark.parametrize("build", [gaussian, bang_bang, bang_off_bang, squashed])


def noise(streams: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(*streams, A)), jnp.float32)


@pytest.mark.parametrize("streams", [(), (B,), (T, B)])
def test_controls_and_probabilities_have_the_axes_of_the_streams(build, streams):
    distribution = build(streams)
    assert isinstance(distribution, AbstractDistribution)
    action, log_prob = distribution.sample_and_log_prob(noise(streams))
    assert distribution.mode().shape == action.shape == (*streams, A)
    assert log_prob.shape == streams
    entropy = distribution.entropy()
    assert entropy is None or entropy.shape in ((), streams)
    margin = distribution.margin()
    assert margin is None or (margin.shape == action.shape and (margin >= 0.0).all())


def test_a_sample_with_its_log_probability_is_the_sample_and_its_log_probability(build):
    distribution, ε = build((T, B)), noise((T, B))
    action, log_prob = distribution.sample_and_log_prob(ε)
    np.testing.assert_array_equal(action, distribution.sample(ε))
    # Of a squashed control the second way goes through artanh, in float32.
    np.testing.assert_allclose(log_prob, distribution.log_prob(action), rtol=1e-4, atol=1e-4)


def test_streams_do_not_meet(build):
    together, ε = build((T, B)), noise((T, B))
    alone = build(())
    action, log_prob = together.sample_and_log_prob(ε)
    for t, b in np.ndindex(T, B):
        one_action, one_log_prob = alone.sample_and_log_prob(ε[t, b])
        np.testing.assert_allclose(action[t, b], one_action, rtol=1e-6)
        np.testing.assert_allclose(log_prob[t, b], one_log_prob, rtol=1e-5)


def test_the_entropy_is_the_mean_of_the_negative_log_probability(build):
    """Compare quantiles of the noise, the same for both components, which are independent."""
    count = 20_001
    quantiles = scipy.stats.norm.ppf((np.arange(count) + 0.5) / count)
    ε = jnp.asarray(np.repeat(quantiles[:, None], A, axis=1), jnp.float32)
    _, log_prob = build((count,)).sample_and_log_prob(ε)
    entropy = build(()).entropy()
    if entropy is None:
        assert build is squashed
    else:
        # Quantiles leave out the tails: 1e-3 of a normal distribution's variance.
        assert float(entropy) == pytest.approx(-float(np.mean(log_prob)), abs=2e-3)


def test_actuators_stay_within_their_bounds(build):
    low, high = np.array([-0.5, -2.0], np.float32), np.array([1.5, 0.5], np.float32)
    distribution = build((T, B))
    for action in (distribution.mode(), distribution.sample(3.0 * noise((T, B)))):
        moved = np.asarray(distribution.actuate(action, low, high))
        assert ((moved >= low - 1e-6) & (moved <= high + 1e-6)).all()
