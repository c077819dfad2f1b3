"""Advantages against numbers computed by hand and against the definition as a double sum."""

import jax.numpy as jnp
import numpy as np

from costate.learners.advantages import generalised_advantages


def advantages(reward, discount, value, trace_decay):
    return generalised_advantages(
        *(jnp.asarray(a, jnp.float32) for a in (reward, discount, value, trace_decay))
    )


def test_three_steps_by_hand():
    # γ = ½, κ = ½, V = (1, 2, 3, 4), r = (1, 0, 2):
    # δ = (1 + 1 − 1, 0 + 1.5 − 2, 2 + 2 − 3) = (1, −0.5, 1)
    # Â₂ = 1, Â₁ = −0.5 + ¼·1 = −0.25, Â₀ = 1 + ¼·(−0.25) = 0.9375
    result = advantages([1, 0, 2], [0.5] * 3, [1, 2, 3, 4], [0.5] * 3)
    np.testing.assert_allclose(result, [0.9375, -0.25, 1.0], rtol=1e-6)


def test_a_termination_takes_no_value_from_beyond_and_passes_no_credit():
    # The second step terminates: γ₁ = 0, so δ₁ = 0 − 2 = −2 and nothing of the third step comes back.
    result = advantages([1, 0, 2], [0.5, 0.0, 0.5], [1, 2, 3, 4], [0.5] * 3)
    np.testing.assert_allclose(result, [1.0 + 0.25 * -2.0, -2.0, 1.0], rtol=1e-6)


def test_a_time_limit_bootstraps_but_passes_no_credit():
    # The second step is cut by a time limit: κ₁ = 0 with γ₁ = ½, so δ₁ = 0 + ½·3 − 2 = −0.5 alone.
    result = advantages([1, 0, 2], [0.5] * 3, [1, 2, 3, 4], [0.5, 0.0, 0.5])
    np.testing.assert_allclose(result, [1.0 + 0.25 * -0.5, -0.5, 1.0], rtol=1e-6)


def test_the_recursion_equals_the_definition_as_a_sum():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=40), rng.normal(size=41)
    discount, decay = rng.uniform(0.5, 1.0, size=40), rng.uniform(0.5, 1.0, size=40)
    delta = reward + discount * value[1:] - value[:-1]
    expected = [sum(np.prod((discount * decay)[t:k]) * delta[k] for k in range(t, 40)) for t in range(40)]
    # float32 against float64 over 40 terms.
    np.testing.assert_allclose(advantages(reward, discount, value, decay), expected, atol=1e-4)


def test_trace_decay_one_gives_the_return_minus_the_value():
    reward, value = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.125, 8.0])
    returns = [1 + 0.9 * (2 + 0.9 * (3 + 0.9 * 8)), 2 + 0.9 * (3 + 0.9 * 8), 3 + 0.9 * 8]
    np.testing.assert_allclose(
        advantages(reward, [0.9] * 3, value, [1.0] * 3), returns - value[:3], rtol=1e-6
    )
