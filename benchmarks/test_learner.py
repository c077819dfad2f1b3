"""Guard the learner's speed as ratios within one run (`make bench`), independent of the machine's speed.

Each test times two ways of doing the same work in turn and compares the best times. A ratio that grows is a
slow-down, on any machine.
"""

import dataclasses
import time

import jax
import jax.numpy as jnp
import pytest

from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.learners.ppo.batch import Batch, Rows
from costate.learners.ppo.losses import total_loss
from costate.policies.cores import scan_unroll, unroll
from costate.training.programs import fresh_state

STEPS, STREAMS, WIDTH = 1000, 8, 128


def best_of_each(*ways, rounds=12):
    """Return the shortest time of each way, measured in turn, after one call that compiles."""
    for way in ways:
        jax.block_until_ready(way())
    times = [[] for _ in ways]
    for _ in range(rounds):
        for way, series in zip(ways, times, strict=True):
            started = time.perf_counter()
            jax.block_until_ready(way())
            series.append(time.perf_counter() - started)
    return [min(series) for series in times]


def minibatch(config) -> Batch:
    shape, task = (STEPS, STREAMS), config.task_record
    keys = jax.random.split(jax.random.key(0), 3)
    observation, action = (
        jax.random.normal(keys[0], (*shape, task.observation_size)),
        jax.random.normal(keys[1], (*shape, task.action_size)),
    )
    scalar = jax.random.normal(keys[2], shape)
    weight = jnp.full(shape, 1.0 / (STEPS * STREAMS))
    rows = Rows(
        observation,
        jnp.zeros(shape, bool).at[0].set(True),
        weight,
        action,
        scalar,
        scalar,
        scalar,
        scalar,
        jnp.zeros(shape),
    )
    return Batch(rows, jnp.zeros((STREAMS, WIDTH)))


def gradient_of(name: str):
    config = preset(name, "WalkerStand")
    policy, batch = fresh_state(config).policy, minibatch(config)
    program = jax.jit(lambda policy, batch: jax.grad(total_loss, has_aux=True)(policy, batch, config.learner))
    return lambda: program(policy, batch)


@pytest.mark.parametrize(("name", "most"), [("gru", 0.75), ("ctrnn", 0.9)])
def test_the_fast_core_against_the_plain_scan(benchmark, name, most):
    """Compare the hand-written reverse pass of a sequence with automatic differentiation of the scan."""
    core = fresh_state(preset(name, "WalkerStand")).policy.core
    features, hidden = (
        jax.random.normal(jax.random.key(1), (STEPS, STREAMS, WIDTH)),
        jnp.zeros((STREAMS, WIDTH)),
    )
    is_first = jnp.zeros((STEPS, STREAMS), bool)
    ways = []
    for way in (unroll, scan_unroll):
        program = jax.jit(
            jax.grad(
                lambda core, features, way=way: jnp.square(way(core, features, hidden, is_first)).sum(),
                argnums=(0, 1),
            )
        )
        ways.append(lambda program=program: program(core, features))
    fast, plain = best_of_each(*ways)
    benchmark.extra_info["ratio"] = fast / plain
    benchmark.pedantic(lambda: jax.block_until_ready(ways[0]()), rounds=5)
    print(f"\n{name}: fast / plain scan = {fast / plain:.2f}")
    assert fast / plain < most


@pytest.mark.parametrize(("left", "right", "most"), [("nc-gru", "gru", 1.15), ("nc-ctrnn", "nc-gru", 0.8)])
def test_a_minibatch_of_one_variant_against_another(benchmark, left, right, most):
    """The co-state loss is cheap, and a CT-RNN is cheaper than a GRU.

    The whole gradient is timed. Baselines compute their co-state loss too.
    """
    ways = [gradient_of(left), gradient_of(right)]
    first, second = best_of_each(*ways)
    benchmark.extra_info["ratio"] = first / second
    benchmark.pedantic(lambda: jax.block_until_ready(ways[0]()), rounds=5)
    print(f"\n{left} / {right} = {first / second:.2f}")
    assert first / second < most


def of_a_step(config: RunConfig) -> float:
    """Return the operations in the matrix products of an environment step."""
    return config.learner.flops_per_env_step(config)


def test_a_minibatch_against_its_own_matrix_products(benchmark):
    """Compare the gradient with one large product of equally many operations, the machine's limit."""
    config = preset("nc-gru", "WalkerStand")
    once = dataclasses.replace(config, learner=dataclasses.replace(config.learner, epochs=1))
    flops = STEPS * STREAMS * (of_a_step(config) - of_a_step(once)) / 3.0
    size = 2048
    matrix = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    gradient, whole = best_of_each(gradient_of("nc-gru"), lambda: product(matrix, matrix))
    ratio = gradient / (whole * flops / (2.0 * size**3))
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(lambda: jax.block_until_ready(gradient_of("nc-gru")()), rounds=1)
    print(f"\none minibatch on one device / its products at full speed = {ratio:.2f}")
    assert ratio < 4.0
