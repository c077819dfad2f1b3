"""The contract that every registered auxiliary loss must fulfil."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.plain_data import decode, encode
from costate.losses import LOSSES, AbstractAuxiliaryLoss, AuxiliaryLossConfig, Evidence

T, S, H, F, SENSORS = 5, 3, 4, 6, 2
every_loss = pytest.mark.parametrize("name", LOSSES.names())


def build(name: str) -> AbstractAuxiliaryLoss:
    """A loss whose every array is random, so that no weight hides at its initial value."""
    loss = LOSSES[name]().build(jax.random.key(0), H, F, SENSORS)
    leaves, structure = jax.tree.flatten(loss)
    keys = jax.random.split(jax.random.key(1), max(1, len(leaves)))
    shaken = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=False)
    ]
    return jax.tree.unflatten(structure, shaken)


def evidence(seed: int = 0, streams: int = S) -> Evidence:
    keys = iter(jax.random.split(jax.random.key(seed), 7))

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), (T, streams, *shape))

    def flags() -> jax.Array:
        return jax.random.bernoulli(next(keys), 0.4, (T, streams))

    return Evidence(normal(H), normal(F), normal(SENSORS), normal(SENSORS), normal(F), flags(), flags())


@every_loss
def test_every_step_of_every_stream_has_a_finite_loss_of_its_own(name):
    loss, whole = build(name), evidence()
    measure = jax.jit(lambda evidence: loss.distance(evidence))
    distance = np.asarray(measure(whole))
    assert distance.shape == (T, S)
    assert np.isfinite(distance).all()
    for stream in range(S):
        alone = jax.tree.map(lambda leaf, stream=stream: leaf[:, stream : stream + 1], whole)
        np.testing.assert_allclose(measure(alone)[:, 0], distance[:, stream], rtol=1e-5, atol=1e-6)


@every_loss
def test_gradients_by_memory_features_and_weights_are_finite_differences(name):
    """Along random directions, in float64 with central differences of 1e-6, whose error is about 1e-10."""
    with jax.enable_x64(True):
        loss, seen = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
            (build(name), evidence()),
        )
        weight = jax.random.uniform(jax.random.key(3), (T, S), jnp.float64)

        def total(point):
            loss, hidden, features = point
            return (loss.distance(dataclasses.replace(seen, hidden=hidden, features=features)) * weight).sum()

        point = (loss, seen.hidden, seen.features)
        gradient = jax.jit(jax.grad(total))(point)
        leaves, structure = jax.tree.flatten(point)
        for number in range(3):
            keys = jax.random.split(jax.random.key(10 + number), len(leaves))
            pairs = zip(keys, leaves, strict=True)
            along = jax.tree.unflatten(
                structure, [jax.random.normal(key, leaf.shape, jnp.float64) for key, leaf in pairs]
            )
            ahead, behind = (
                total(jax.tree.map(lambda leaf, step, e=e: leaf + e * step, point, along))
                for e in (1e-6, -1e-6)
            )
            slope = sum(jnp.vdot(g, a) for g, a in zip(*map(jax.tree.leaves, (gradient, along)), strict=True))
            assert np.isfinite(slope)
            np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-8)


@every_loss
def test_configs_are_plain_data(name):
    config = LOSSES[name](coef=0.25)
    assert encode(config)["name"] == name
    assert decode(AuxiliaryLossConfig, encode(config), "losses") == config
    assert LOSSES[name]().coef == 0.0, "off unless asked for"
