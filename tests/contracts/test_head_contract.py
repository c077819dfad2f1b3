"""The contract that every registered head of a critic must fulfil."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_networks import randomised

from costate._base.errors import ConfigError
from costate._base.plain_data import decode, encode
from costate.policies.heads import HEADS, AbstractHead, HeadConfig

T, B, H, A, WIDTH = 4, 3, 5, 2, 6
every_head = pytest.mark.parametrize("name", HEADS.names())


@functools.cache
def build(name: str) -> AbstractHead:
    return randomised(HEADS[name]().build, jax.random.key(0), H + A, WIDTH, scale=0.5)


def inputs() -> tuple[jax.Array, jax.Array]:
    random = np.random.default_rng(1)
    return tuple(jnp.asarray(random.normal(size=(T, B, width)), jnp.float32) for width in (H, A))


@every_head
def test_values_and_losses_have_the_axes_of_the_streams_which_do_not_meet(name):
    head, (hidden, action) = build(name), inputs()
    backup = jnp.asarray(np.random.default_rng(2).normal(size=(T, B)), jnp.float32)
    prediction = head.predict(hidden, action)
    assert prediction.size == T * B * HEADS[name]().outputs
    value, loss = head.value(prediction), head.loss(prediction, head.target(backup))
    assert value.shape == loss.shape == (T, B)
    for t, b in np.ndindex(T, B):
        alone = head.predict(hidden[t, b], action[t, b])
        np.testing.assert_allclose(head.value(alone), value[t, b], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            head.loss(alone, head.target(backup[t, b])), loss[t, b], rtol=1e-4, atol=1e-5
        )


@every_head
def test_the_prediction_of_least_loss_has_the_value_of_the_backup(name):
    """Find the minimiser by Adam on the predictions themselves."""
    head, backup = build(name), jnp.array([-7.3, 0.0, 0.4, 31.9])
    start = jnp.zeros_like(head.predict(jnp.zeros((4, H)), jnp.zeros((4, A))))
    optimiser = optax.adam(0.1)

    @jax.jit
    def descend(prediction):
        def step(carry, _):
            prediction, state = carry
            gradient = jax.grad(lambda p: head.loss(p, head.target(backup)).sum())(prediction)
            change, state = optimiser.update(gradient, state)
            return (optax.apply_updates(prediction, change), state), None

        return jax.lax.scan(step, (prediction, optimiser.init(prediction)), length=3000)[0][0]

    # A probability that should be zero is only approached; each is about 1e-6 by then, and values reach 100.
    np.testing.assert_allclose(head.value(descend(start)), backup, atol=1e-2)


@every_head
def test_gradients_by_memory_control_and_weights_are_finite_differences(name):
    with jax.enable_x64(True):
        point = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (build(name), *inputs()))
        backup = jnp.asarray(np.random.default_rng(2).normal(size=(T, B)))

        @jax.jit
        def total(point):
            head, hidden, action = point
            prediction = head.predict(hidden, action)
            return jnp.sin(head.value(prediction)).sum() + head.loss(prediction, head.target(backup)).sum()

        gradient = jax.grad(total)(point)
        random = np.random.default_rng(3)
        direction = jax.tree.map(lambda leaf: random.normal(size=leaf.shape), point)
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
        ahead, behind = (
            total(jax.tree.map(lambda leaf, d, s=s: leaf + s * d, point, direction)) for s in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-7)


@every_head
def test_configs_are_plain_data(name):
    config = HEADS[name](count=3)
    assert encode(config)["name"] == name
    assert decode(HeadConfig, encode(config), "critic_head") == config


@every_head
@pytest.mark.parametrize("count", [0, -1])
def test_a_critic_without_heads_is_refused(name, count):
    with pytest.raises(ConfigError, match=f"count is {count}, but a critic needs at least 1 head"):
        HEADS[name](count=count)
