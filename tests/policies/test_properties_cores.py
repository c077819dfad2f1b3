"""Every registered core at any length, any pattern of starts and inputs from nothing to enormous ones.

That the gradients of the fast way are those of the plain one is in the contract of cores, in float64; here
they must be numbers.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from random_networks import randomised

from costate.policies.cores import CORES, AbstractCore, feature_gradients, read_sequence, scan_unroll

LONGEST, B, F, H = 9, 2, 3, 4
every_core = pytest.mark.parametrize("name", CORES.names())
# Those whose way through a sequence is their own, or that of a whole family; a program for each of the others
# takes long to compile.
OWN_WAY = ("gru", "ctrnn", "rnn", "ssm", "frame-stack")
core_with_its_own_way = pytest.mark.parametrize(
    "name",
    [name if name in OWN_WAY else pytest.param(name, marks=pytest.mark.slow) for name in CORES.names()],
)

units = arrays(np.float32, (LONGEST, B, F), elements=st.floats(-1.0, 1.0, width=32))
starts = arrays(np.bool_, (LONGEST, B))
sizes = st.sampled_from([0.0, 1e-20, 1.0, 1e6])
EVERYWHERE, NOWHERE = np.ones((LONGEST, B), bool), np.zeros((LONGEST, B), bool)
ONES = np.ones((LONGEST, B, F), np.float32)


@functools.cache
def build(name: str) -> AbstractCore:
    return randomised(CORES[name]().build, jax.random.key(0), F, H, scale=0.4)


@functools.cache
def starting_state(name: str) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(B, build(name).state_size)).astype(np.float32)


@jax.jit
def read(core, features, state, is_first):
    """Return hidden states by the fast way and by a scan of steps, and two gradients of the fast way.

    The gradients are those of a loss, and those by the features alone.
    """
    weights = jnp.cos(jnp.arange(features.shape[0] * B * H, dtype=jnp.float32)).reshape(-1, B, H)

    def loss(core, features, state):
        memory = read_sequence(core, features, state, is_first)
        return (weights * memory.hiddens).sum(), memory

    gradient, memory = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(core, features, state)
    return (
        memory.hiddens,
        scan_unroll(core, features, state, is_first),
        gradient,
        feature_gradients(core, memory, weights),
    )


@every_core
@settings(max_examples=12)
@given(unit=units, is_first=starts, size=sizes, carried=sizes)
@example(unit=ONES, is_first=EVERYWHERE, size=1e6, carried=1e6)
@example(unit=ONES, is_first=NOWHERE, size=1e6, carried=0.0)
@example(unit=ONES, is_first=NOWHERE, size=0.0, carried=0.0)
def test_states_and_gradients_are_finite_and_the_fast_way_is_the_plain_one(
    name, unit, is_first, size, carried
):
    check(name, unit, is_first, size, carried)


@core_with_its_own_way
@settings(max_examples=8)
@given(unit=units, is_first=starts, size=sizes, carried=sizes)
def test_so_they_are_for_a_sequence_of_one_step(name, unit, is_first, size, carried):
    check(name, unit[:1], is_first[:1], size, carried)


def check(name, unit, is_first, size, carried):
    features, state = jnp.asarray(size * unit), jnp.asarray(carried * starting_state(name))
    found = jax.device_get(read(build(name), features, state, jnp.asarray(is_first)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    fast, plain, *_ = found
    # float32 sums in another order. Enormous numbers saturate, so that their larger errors are not passed on.
    np.testing.assert_allclose(fast, plain, atol=1e-5 * max(1.0, np.abs(plain).max()))


@every_core
@settings(max_examples=10)
@given(unit=units, other=units, is_first=starts, size=sizes, carried=sizes)
@example(
    unit=ONES,
    other=-ONES,
    is_first=np.arange(LONGEST)[:, None] == np.array([4, LONGEST]),
    size=1e6,
    carried=1e6,
)
def test_nothing_of_the_past_is_left_where_an_episode_starts(name, unit, other, is_first, size, carried):
    """No bit after a stream's first start depends on what came before it, the carried state included."""
    begun = np.logical_or.accumulate(is_first, axis=0)
    replaced = np.where(begun[..., None], unit, size * other)
    state = starting_state(name)
    one, two = (
        np.asarray(read(build(name), jnp.asarray(features), jnp.asarray(start), jnp.asarray(is_first))[0])
        for features, start in ((unit, state), (replaced, carried * state[::-1]))
    )
    np.testing.assert_array_equal(one[begun], two[begun])
