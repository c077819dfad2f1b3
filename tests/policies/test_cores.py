"""The cores' equations, written out with NumPy from the paper and compared."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.policies.cores import read_sequence
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.gru import GRUConfig, ResetAfterGRUConfig
from costate.policies.cores.lstm import LSTMConfig
from costate.policies.cores.rnn import RNNConfig


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=4).astype(np.float32), rng.normal(size=6).astype(np.float32)


def test_gru_follows_the_papers_equation_with_the_reset_gate_inside_the_product():
    core = GRUConfig().build(jax.random.key(0), 4, 6)
    core = eqx.tree_at(
        lambda c: c.bias, core, jnp.asarray(np.random.default_rng(1).normal(size=(3, 6)), jnp.float32)
    )
    y, h = inputs()
    W, U, b = (np.asarray(a, np.float64) for a in (core.input_weights, core.recurrent_weights, core.bias))
    r = sigmoid(W[0].T @ y + U[0].T @ h + b[0])
    z = sigmoid(W[1].T @ y + U[1].T @ h + b[1])
    n = np.tanh(W[2].T @ y + U[2].T @ (r * h) + b[2])
    np.testing.assert_allclose(
        core.step(jnp.asarray(y), jnp.asarray(h)), (1 - z) * n + z * h, atol=1e-6
    )  # float32 against float64


def test_reset_after_gru_equals_equinox_cell():
    core = ResetAfterGRUConfig(initialisation="uniform").build(jax.random.key(0), 4, 6)
    cell = eqx.nn.GRUCell(4, 6, key=jax.random.key(1))
    W, U = core.input_weights, core.recurrent_weights
    cell = eqx.tree_at(
        lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n),
        cell,
        (
            jnp.concatenate([w.T for w in W]),
            jnp.concatenate([u.T for u in U]),
            core.bias.reshape(-1),
            core.candidate_bias,
        ),
    )
    y, h = map(jnp.asarray, inputs())
    np.testing.assert_allclose(core.step(y, h), cell(y, h), atol=1e-6)  # float32 sums in another order


def test_ctrnn_is_leaky_integration_with_a_rate_per_unit():
    core = CTRNNConfig().build(jax.random.key(0), 4, 6)
    log_alpha = np.linspace(-2.0, 2.0, 6).astype(np.float32)
    core = eqx.tree_at(lambda c: c.log_alpha, core, jnp.asarray(log_alpha))
    y, h = inputs()
    alpha = sigmoid(log_alpha)
    target = np.tanh(np.asarray(core.input_weights).T @ y + np.asarray(core.recurrent_weights).T @ h)
    np.testing.assert_allclose(
        core.step(jnp.asarray(y), jnp.asarray(h)), (1 - alpha) * h + alpha * target, atol=1e-6
    )  # float32


def test_ctrnn_leaks_one_half_at_first():
    core = CTRNNConfig().build(jax.random.key(0), 4, 6)
    np.testing.assert_array_equal(jax.nn.sigmoid(core.log_alpha), np.full(6, 0.5))


def test_rnn_is_tanh_of_what_is_seen_and_what_was():
    core = eqx.tree_at(
        lambda c: c.bias, RNNConfig().build(jax.random.key(0), 4, 6), jnp.linspace(-1.0, 1.0, 6)
    )
    y, h = inputs()
    W, U, b = (np.asarray(a, np.float64) for a in (core.input_weights, core.recurrent_weights, core.bias))
    np.testing.assert_allclose(
        core.step(jnp.asarray(y), jnp.asarray(h)), np.tanh(W.T @ y + U.T @ h + b), atol=1e-6
    )  # float32 against float64


def lstm_by_numpy(core, features, h, c):
    """Hochreiter & Schmidhuber's cell with a forget gate, in float64; the order of gates is i, f, o, g."""
    W, U, b = (np.asarray(a, np.float64) for a in (core.input_weights, core.recurrent_weights, core.bias))
    shown = []
    for y in features:
        i, f, o, g = (W[k].T @ y + U[k].T @ h + b[k] for k in range(4))
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        shown.append(h)
    return np.array(shown), c


def test_lstm_follows_its_equations_over_a_sequence_and_carries_both_parts():
    rng = np.random.default_rng(0)
    core = eqx.tree_at(
        lambda c: c.bias,
        LSTMConfig().build(jax.random.key(0), 4, 6),
        jnp.asarray(rng.normal(size=(4, 6)), jnp.float32),
    )
    features, h, c = rng.normal(size=(9, 4)), rng.normal(size=6), rng.normal(size=6)
    shown, cell = lstm_by_numpy(core, features, h, c)
    state = jnp.concatenate([jnp.asarray(h, jnp.float32), jnp.asarray(c, jnp.float32)])
    memory = read_sequence(
        core, jnp.asarray(features, jnp.float32)[:, None], state[None], jnp.zeros((9, 1), bool)
    )
    # float32 against float64, over nine steps.
    np.testing.assert_allclose(memory.hiddens[:, 0], shown, atol=1e-5)
    np.testing.assert_allclose(memory.final[0], np.concatenate([shown[-1], cell]), atol=1e-5)


def test_a_fresh_lstm_keeps_three_quarters_of_its_cell():
    core = LSTMConfig().build(jax.random.key(0), 4, 2)
    state = core.step(jnp.zeros(4), jnp.array([0.0, 0.0, 1.0, -1.0]))
    # σ(1) = 0.7310586 of ±1 is kept, and half of its tanh, 0.6236, is shown, because the output gate is σ(0).
    np.testing.assert_allclose(state, [0.3118, -0.3118, 0.7310586, -0.7310586], atol=1e-4)


def test_a_forget_bias_that_is_no_number_is_refused():
    with pytest.raises(
        ConfigError, match=r"forget_bias is nan, but it must be a finite number\. The usual value is 1\."
    ):
        LSTMConfig(forget_bias=float("nan"))


def test_uniform_initialisation_stays_within_the_inverse_root_of_the_width():
    core = ResetAfterGRUConfig(initialisation="uniform").build(jax.random.key(0), 9, 16)
    for array in jax.tree.leaves(core):
        assert np.abs(array).max() <= 0.25
    assert np.std(core.recurrent_weights) > 0.1  # uniform in ±¼ has deviation 0.144
