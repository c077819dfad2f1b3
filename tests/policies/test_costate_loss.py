"""The co-state target by brute force, and the cosine by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.policies.cores import CORES, read_sequence, unroll
from costate.policies.costate_loss import cosine, costate_distance, costate_targets
from costate.policies.critics import linear_critic

T, B, H = 6, 2, 5


@pytest.mark.quick("gru", "ctrnn", "ssm")
@pytest.mark.parametrize("name", CORES.names())
def test_target_equals_the_gradient_of_the_critic_by_brute_force(name):
    """Compute ∂V/∂ỹ_t of the unrolled network by central differences in float64, one component at a time."""
    with jax.enable_x64(True):
        key_core, key_critic, key_feature = jax.random.split(jax.random.key(0), 3)
        parts = (
            CORES[name]().build(key_core, H, H),
            linear_critic(key_critic, H),
            jax.random.normal(key_feature, (T, B, H)),
        )
        core, critic, features = jax.tree.map(lambda a: a.astype(jnp.float64), parts)
        hidden, is_first = jnp.ones((B, core.state_size)) * 0.3, jnp.zeros((T, B), bool).at[3, 0].set(True)

        @jax.jit
        def values(features):
            return critic.value(unroll(core, features, hidden, is_first))

        targets = costate_targets(core, critic, read_sequence(core, features, hidden, is_first))
        step = 1e-6
        for t, b, i in np.ndindex(T, B, H):
            # V at time t depends on ỹ_t only through h_t, so perturbing the network at time t is the partial
            # derivative wanted.
            slope = (
                values(features.at[t, b, i].add(step))[t, b] - values(features.at[t, b, i].add(-step))[t, b]
            ) / (2 * step)
            np.testing.assert_allclose(targets[t, b, i], slope, rtol=1e-6, atol=1e-9)


def test_target_is_frozen():
    core, critic = CORES["gru"]().build(jax.random.key(0), H, H), linear_critic(jax.random.key(1), H)
    features, hidden = jax.random.normal(jax.random.key(2), (T, B, H)), jnp.ones((B, H))

    def total(core, critic, features, hidden):
        return costate_targets(
            core, critic, read_sequence(core, features, hidden, jnp.zeros((T, B), bool))
        ).sum()

    gradient = jax.grad(total, argnums=(0, 1, 2, 3))(core, critic, features, hidden)
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [((1, 0), (5, 0), 0.0), ((1, 0), (0, 3), 1.0), ((1, 1), (-2, -2), 2.0), ((3, 4), (4, 3), 0.04)],
)
def test_distance_is_one_minus_the_cosine_and_ignores_length(left, right, expected):
    distance = costate_distance(jnp.array([[left]], jnp.float32), jnp.array([[right]], jnp.float32))
    np.testing.assert_allclose(distance, [[expected]], atol=1e-6)


def test_gradient_is_finite_where_memory_is_empty():
    gradient = jax.grad(lambda h: cosine(h, jnp.ones(4)))(jnp.zeros(4))
    assert np.isfinite(gradient).all()
