"""Count the matrix products in the learner's program, which finds duplicated work that timing cannot show."""

import dataclasses
import math

import jax
import jax.extend.core
import jax.numpy as jnp
import pytest

from costate.config.presets import PRESETS, preset
from costate.config.run_config import RunConfig
from costate.learners.ppo.batch import Batch, Rows
from costate.learners.ppo.losses import total_loss
from costate.learners.replay import ReplayConfig
from costate.learners.sac.config import SACConfig
from costate.learners.sac.flops import flops_per_update
from costate.learners.sac.update import sac_update
from costate.policies.cores import CORES, empty_core_state
from costate.policies.policy import act
from costate.training.programs import fresh_state


def of_a_step(config: RunConfig) -> float:
    return config.learner.flops_per_env_step(config)


STEPS, STREAMS = 6, 3


def product_flops(jaxpr) -> float:
    """Sum 2mkn over the products of m×k by k×n matrices in a program, times the length of their loops."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, (result,) = equation.invars[0].aval, equation.outvars
            total += 2.0 * math.prod(result.aval.shape) * math.prod(left.shape[axis] for axis in contracted)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(
            product_flops(inner) for inner in jax.extend.core.jaxprs_in_params(equation.params)
        )
    return total


def minibatch(config) -> Batch:
    task, shape = config.task_record, (STEPS, STREAMS)
    zeros = jnp.zeros(shape)
    rows = Rows(
        jnp.zeros((*shape, task.observation_size)),
        jnp.zeros(shape, bool),
        zeros,
        jnp.zeros((*shape, task.action_size)),
        zeros,
        zeros,
        zeros,
        zeros,
        zeros,
    )
    return Batch(rows, empty_core_state(fresh_state(config).policy.core, STREAMS))


def with_core(name: str) -> RunConfig:
    """Return the run of a preset, or that of NC-GRU with another core."""
    if name in PRESETS:
        return preset(name, "WalkerStand")
    config = preset("nc-gru", "WalkerStand")
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, core=CORES[name]()))


@pytest.mark.quick("nc-gru", "nc-ctrnn")
@pytest.mark.parametrize("name", ["nc-gru", "nc-ctrnn", "ncp", "rnn", "lstm", "cornn", "ssm"])
def test_a_gradient_takes_the_products_of_the_hand_count_and_no_more(name):
    config = with_core(name)
    state = fresh_state(config)
    gradient = jax.make_jaxpr(
        lambda policy, batch: jax.grad(total_loss, has_aux=True)(policy, batch, config.learner)
    )
    counted = product_flops(gradient(state.policy, minibatch(config)).jaxpr) / (STEPS * STREAMS)
    rollout = (
        product_flops(
            jax.make_jaxpr(act)(
                state.policy, jnp.zeros((STREAMS, 24)), minibatch(config).core_state, jnp.zeros(STREAMS, bool)
            ).jaxpr
        )
        / STREAMS
    )
    expected = of_a_step(config)
    one_epoch = of_a_step(dataclasses.replace(config, learner=dataclasses.replace(config.learner, epochs=1)))
    assert rollout == pytest.approx(one_epoch - (expected - one_epoch) / 3, rel=1e-9)
    # Biases are summed by products with a row of ones, which the hand count leaves out: 2·3·128 of some
    # 700,000.
    assert counted == pytest.approx((expected - rollout) / config.learner.epochs, rel=0.01)


@pytest.mark.quick("nc-gru-recurrent")
@pytest.mark.parametrize(
    ("policy", "critic"),
    [*((name, "recurrent") for name in ("nc-gru", "nc-ctrnn", "ncp", "lstm", "ssm")), ("nc-gru", "sighted")],
)
def test_an_update_off_policy_takes_the_products_of_the_hand_count_and_no_more(policy, critic):
    sac = SACConfig(critic=critic, replay=ReplayConfig(capacity=2000, window=6, burn_in=2, batch=STREAMS))
    config = dataclasses.replace(
        preset("nc-sac-gru", "WalkerStand"), policy=with_core(policy).policy, learner=sac
    )
    state = fresh_state(config)
    program = jax.make_jaxpr(
        lambda learner, replay, key: sac_update(config.learner, 10.0, learner, replay, key)
    )
    counted = product_flops(program(state.learner, state.replay, state.key).jaxpr)
    # Beside what is needed, biases are summed by products with a row of ones, and the gradient of the first
    # rows' memory is formed and not used.
    assert counted == pytest.approx(flops_per_update(config, config.learner), rel=0.01)
