"""The contract that every registered readout must fulfil.

A readout with the setting ``influence`` is tested with a constant and with an observed influence.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.policies.readouts import READOUTS, AbstractReadout

T, B, H, A = 4, 3, 6, 2
WITH_INFLUENCE = [
    name
    for name in READOUTS.names()
    if "influence" in {field.name for field in dataclasses.fields(READOUTS[name])}
]
INFLUENCES = [(name, influence) for name in WITH_INFLUENCE for influence in ("constant", "observed")]
every_readout = pytest.mark.parametrize(
    ("name", "influence"),
    INFLUENCES + [(name, "its own") for name in READOUTS.names() if name not in WITH_INFLUENCE],
)


def build(name: str, influence: str) -> AbstractReadout:
    """A readout whose every array is random, so that no bias or width hides at its initial value."""
    config = READOUTS[name]()
    chosen = dataclasses.replace(config, influence=influence) if name in WITH_INFLUENCE else config
    readout = chosen.build(jax.random.key(0), H, A)
    leaves, structure = jax.tree.flatten(readout)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return jax.tree.unflatten(
        structure,
        [leaf + 0.7 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)],
    )


def states() -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(2), 3)
    features, hidden, noise = (
        jax.random.normal(key, (T, B, width)) for key, width in zip(keys, (H, H, A), strict=True)
    )
    return features, hidden, noise


@functools.cache
def outcome(name: str, influence: str) -> dict[str, np.ndarray]:
    """Compute all that the tests check, by one compiled program."""

    @jax.jit
    def program(readout, features, hidden, noise):
        distribution = readout.distribution(features, hidden)
        samples = jnp.stack([distribution.sample(scale * noise) for scale in (-2.0, -0.5, 0.5, 1.0)])
        return {
            "law": jax.vmap(jax.vmap(readout.control))(features, hidden),
            "mode": distribution.mode(),
            "samples": samples,
            "best": distribution.log_prob(distribution.mode()),
            "others": jax.vmap(distribution.log_prob)(samples),
            "elsewhere": readout.distribution(features + 1.0, hidden).log_prob(samples[0]),
            "entropy": distribution.entropy(),
            "exploration": jnp.stack(list(readout.exploration().values())),
        }

    return jax.tree.map(np.asarray, program(build(name, influence), *states()))


@every_readout
def test_the_mode_is_the_control_law_exactly(name, influence):
    found = outcome(name, influence)
    np.testing.assert_array_equal(found["mode"], found["law"])
    assert found["law"].shape == (T, B, A)


@every_readout
def test_no_control_is_more_likely_than_the_mode(name, influence):
    found = outcome(name, influence)
    assert found["others"].shape == (4, T, B)
    assert (found["best"][None] >= found["others"]).all()


@pytest.mark.parametrize(("name", "influence"), INFLUENCES)
def test_the_observation_matters_exactly_where_the_influence_is_observed(name, influence):
    found = outcome(name, influence)
    assert np.array_equal(found["others"][0], found["elsewhere"]) == (influence == "constant")


@every_readout
def test_entropy_is_one_number_or_one_for_every_stream_and_exploration_is_measured(name, influence):
    found = outcome(name, influence)
    assert found["entropy"].shape in ((), (T, B))
    assert np.isfinite(found["entropy"]).all()
    assert np.isfinite(found["exploration"]).all()


@every_readout
def test_the_likelihood_gradient_equals_finite_differences(name, influence):
    """By every weight, in float64, for controls that were sampled: what the policy gradient rests on."""
    readout, (features, hidden, _) = build(name, influence), states()
    action = jnp.asarray(outcome(name, influence)["samples"][-1])
    with jax.enable_x64(True):
        readout, features, hidden, action = jax.tree.map(
            lambda a: a.astype(jnp.float64), (readout, features, hidden, action)
        )

        @jax.jit
        def value(readout):
            distribution = readout.distribution(features, hidden)
            return jnp.sin(distribution.log_prob(action)).sum() + distribution.entropy().mean()

        gradient = jax.grad(value)(readout)
        leaves, structure = jax.tree.flatten(readout)
        keys = jax.random.split(jax.random.key(5), len(leaves))
        direction = jax.tree.unflatten(
            structure, [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
        )
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
        ahead, behind = (
            value(jax.tree.map(lambda a, d, s=s: a + s * d, readout, direction)) for s in (1e-6, -1e-6)
        )
        # Central differences: truncation ~ 1e-12, rounding ~ 1e-16 / 1e-6.
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-7)
