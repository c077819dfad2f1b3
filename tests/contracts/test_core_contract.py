"""The contract that every registered core must fulfil."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_networks import randomised

from costate.policies import cores
from costate.policies.cores import CORES, AbstractCore

T, B, F, H = 12, 3, 5, 7
pytestmark = pytest.mark.parametrize("name", CORES.names())
# Each as one program: operation by operation, every one of them would be compiled for itself.
feature_gradients, read_sequence, step_batch, unroll = map(
    jax.jit, (cores.feature_gradients, cores.read_sequence, cores.step_batch, cores.unroll)
)


@functools.cache
def build(name: str) -> AbstractCore:
    # Of the size of orthogonal matrices, entries of 1/√H.
    return randomised(CORES[name]().build, jax.random.key(0), F, H, scale=0.4)


@functools.cache
def fresh(name: str) -> AbstractCore:
    """A core as it is before training."""
    return jax.jit(lambda: CORES[name]().build(jax.random.key(7), 16, 16))()


def sequence(core: AbstractCore) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Observations, the state to start from, and where episodes start."""
    random, is_first = np.random.default_rng(2), np.zeros((T, B), bool)
    is_first[[0, 5, 6], [0, 1, 1]] = True
    features, state = random.normal(size=(T, B, F)), random.normal(size=(B, core.state_size))
    return jnp.asarray(features, jnp.float32), jnp.asarray(state, jnp.float32), jnp.asarray(is_first)


def double(tree):
    return jax.tree.map(
        lambda a: jnp.asarray(np.asarray(a, np.float64)) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree
    )


def test_unroll_equals_stepping_one_stream_at_a_time(name):
    core = build(name)
    features, state, is_first = sequence(core)
    memory = read_sequence(core, features, state, is_first)
    step = jax.jit(lambda feature, s: core.step(feature, s))
    for b in range(B):
        s = state[b]
        for t in range(T):
            s = step(features[t, b], jnp.zeros_like(s) if is_first[t, b] else s)
            # float32 sums in another order.
            np.testing.assert_allclose(memory.hiddens[t, b], core.expose(s), atol=2e-6)
        # What a sequence is continued from is the whole state, and not only the part of it that is shown.
        np.testing.assert_allclose(memory.final[b], s, atol=4e-6)


def test_it_steps_the_same_unstacked(name):
    core = build(name)
    features, state, is_first = sequence(core)
    unstacked = jax.jit(lambda core, *row: cores.step_batch(core.unstacked(), *row))
    # float32 sums in another order.
    np.testing.assert_allclose(
        unstacked(core, features[0], state, is_first[0]),
        step_batch(core, features[0], state, is_first[0]),
        atol=1e-6,
    )
    assert (core.unstacked().hidden_size, core.unstacked().state_size) == (core.hidden_size, core.state_size)


def looped(core: AbstractCore, features: jax.Array, state: jax.Array, is_first: jax.Array) -> jax.Array:
    """Hidden states by the step of the core in a loop of Python, which JAX differentiates by itself."""
    hiddens = []
    for feature, first in zip(features, is_first, strict=True):
        state = jax.vmap(core.step)(feature, jnp.where(first[:, None], jnp.zeros_like(state), state))
        hiddens.append(core.expose(state))
    return jnp.stack(hiddens)


def test_unroll_equals_a_plain_loop_in_value_and_gradient(name):
    with jax.enable_x64(True):
        core = double(build(name))
        features, state, is_first = double(sequence(core))
        weights = jnp.asarray(np.random.default_rng(3).normal(size=(T, B, H)))

        def loss(way, core, features, state):
            return (weights * jnp.sin(way(core, features, state, is_first))).sum()

        fast = jax.jit(jax.value_and_grad(lambda *a: loss(unroll, *a), argnums=(0, 1, 2)))(
            core, features, state
        )
        plain = jax.jit(jax.value_and_grad(lambda *a: loss(looped, *a), argnums=(0, 1, 2)))(
            core, features, state
        )
        # Both are the same sums in float64, in another order.
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), fast, plain)


def test_gradient_equals_finite_differences(name):
    with jax.enable_x64(True):
        core = double(build(name))
        features, state, is_first = double(sequence(core))
        weights = jnp.asarray(np.random.default_rng(4).normal(size=(T, B, H)))

        @jax.jit
        def loss(inputs):
            return (weights * unroll(inputs[0], inputs[1], inputs[2], is_first)).sum()

        inputs = jax.device_get((core, features, state))
        gradient = jax.device_get(jax.jit(jax.grad(loss))(inputs))
        for seed in range(5):
            random = np.random.default_rng(seed)
            direction = jax.tree.map(lambda a, random=random: random.normal(size=a.shape), inputs)
            slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
            step = 1e-6
            ahead, behind = (
                loss(jax.tree.map(lambda a, d, s=s: a + s * d, inputs, direction)) for s in (step, -step)
            )
            # Central differences in float64: truncation ~ step², rounding ~ 1e-16 / step.
            np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-7)


def test_the_past_is_forgotten_where_an_episode_starts(name):
    core = build(name)
    features, state, is_first = sequence(core)
    other_past = features.at[:5, 1].add(1.0)
    same = np.asarray(unroll(core, features, state, is_first))
    changed = np.asarray(unroll(core, other_past, state + 1.0, is_first))
    np.testing.assert_array_equal(same[5:, 1], changed[5:, 1])
    np.testing.assert_array_equal(same[:, 0], changed[:, 0])
    # The stream without a start does remember, unless no step of the core depends on what it carried.
    remembers = np.any(jax.jit(jax.jacobian(lambda s: core.expose(core.step(features[0, 2], s))))(state[2]))
    assert np.allclose(same[0, 2], changed[0, 2]) == (not remembers)


def test_the_past_before_a_start_gets_no_gradient(name):
    core = build(name)
    features, state, is_first = sequence(core)
    gradient = np.asarray(
        jax.jit(jax.grad(lambda x: unroll(core, x, state, is_first)[5:, 1].sum()))(features)
    )
    assert not gradient[:5, 1].any()
    assert gradient[6, 1].any()


def test_previous_is_what_the_core_continued_from(name):
    core = build(name)
    features, state, is_first = sequence(core)
    memory = read_sequence(core, features, state, is_first)
    again = jax.jit(jax.vmap(jax.vmap(lambda feature, state: core.step(feature, state))))(
        features, memory.previous
    )
    np.testing.assert_allclose(core.expose(again), memory.hiddens, atol=2e-6)
    np.testing.assert_allclose(again[-1], memory.final, atol=4e-6)
    np.testing.assert_array_equal(memory.previous[5, 1], np.zeros(core.state_size))


def test_feature_gradients_equal_the_derivative_of_one_step(name):
    """Compare with the gradient of every single `step`, in float64: the tape must lose nothing."""
    with jax.enable_x64(True):
        core = double(build(name))
        features, state, is_first = double(sequence(core))
        cotangents = jnp.asarray(np.random.default_rng(5).normal(size=(T, B, H)))
        memory = read_sequence(core, features, state, is_first)
        gradients = feature_gradients(core, memory, cotangents)
        step = jax.jit(jax.vmap(lambda feature, s: core.step(feature, s)))
        shown_by = jax.jit(jax.vmap(jax.jacobian(lambda feature, s: core.expose(core.step(feature, s)))))
        s, (features, is_first, cotangents) = state, jax.device_get((features, is_first, cotangents))
        for t in range(T):
            s = np.where(is_first[t][:, None], 0.0, s)
            np.testing.assert_allclose(
                gradients[t],
                np.einsum("bh,bhf->bf", cotangents[t], shown_by(features[t], s)),
                rtol=1e-11,
                atol=1e-12,
            )
            s = step(features[t], s)


def test_a_batch_step_equals_single_steps(name):
    core = build(name)
    features, state, is_first = sequence(core)
    stepped, step = (
        step_batch(core, features[5], state, is_first[5]),
        jax.jit(lambda feature, state: core.step(feature, state)),
    )
    for b in range(B):
        # float32 sums in another order.
        np.testing.assert_allclose(
            stepped[b],
            step(features[5, b], jnp.zeros_like(state[b]) if is_first[5, b] else state[b]),
            atol=1e-6,
        )


def test_sizes_are_the_widths_of_what_is_carried_and_of_what_is_shown(name):
    core = build(name)
    state = core.step(jnp.zeros(F), jnp.zeros(core.state_size))
    assert state.shape == (core.state_size,)
    assert core.hidden_size == H
    assert core.expose(state).shape == (H,)


def test_memory_stays_finite_however_long_and_whatever_is_seen(name):
    """Feed the largest possible features for longer than any episode, with weights larger than fresh ones."""
    core = jax.tree.map(lambda leaf: 3.0 * leaf, build(name))
    features = jnp.asarray(np.sign(np.random.default_rng(6).normal(size=(2000, 1, F))), jnp.float32)
    hiddens = np.asarray(unroll(core, features, jnp.zeros((1, core.state_size)), jnp.zeros((2000, 1), bool)))
    assert np.isfinite(hiddens).all()
    # Nothing grows with time: the second half is like the first.
    assert np.abs(hiddens[1000:]).max() < 2.0 * np.abs(hiddens[:1000]).max()


def test_every_initial_recurrent_matrix_is_orthogonal(name):
    core = fresh(name)
    matrices = [m for m in jax.tree.leaves(core) if m.shape[-2:] == (16, 16)]
    assert matrices
    for stack in matrices:
        for matrix in np.asarray(stack).reshape(-1, 16, 16):
            # float32 rounding of 16 products.
            np.testing.assert_allclose(matrix.T @ matrix, np.eye(16), atol=1e-5)


def test_biases_start_at_zero(name):
    """Return the arrays of a core named ``bias`` or ``candidate_bias``, if it has any."""
    core = fresh(name)
    assert not any(np.any(getattr(core, bias)) for bias in ("bias", "candidate_bias") if hasattr(core, bias))
