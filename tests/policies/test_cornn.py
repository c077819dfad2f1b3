"""Coupled oscillators against mechanics: conserved energy, a differential equation, bounds of stability."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from costate._base.errors import ConfigError
from costate.policies.cores import read_sequence
from costate.policies.cores.cornn import CoRNN, CoRNNConfig

H = 4


def undriven(**settings: float) -> CoRNN:
    """Without weights nothing couples or drives the oscillators: y'' = −γ y − ε y'."""
    return CoRNN(jnp.zeros((2, H)), jnp.zeros((2, H, H)), jnp.zeros(H), **settings)


def test_an_undamped_oscillator_keeps_its_energy():
    """The symplectic Euler rule conserves z² + γ y² − Δt γ y z exactly, as inserting one step shows."""
    step, stiffness = 0.3, 2.0
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        start = rng.normal(size=(1, 2 * H))
        memory = read_sequence(
            undriven(time_step=step, stiffness=stiffness, damping=0.0),
            jnp.zeros((400, 1, 2)),
            jnp.asarray(start),
            jnp.zeros((400, 1), bool),
        )
        y, z = np.split(np.asarray(memory.previous)[:, 0], 2, axis=-1)
    energy = z**2 + stiffness * y**2 - step * stiffness * y * z
    # Rounding of float64 in 400 steps.
    np.testing.assert_allclose(energy, np.broadcast_to(energy[0], energy.shape), rtol=1e-12)
    assert np.ptp(y, axis=0).min() > 0.1, "it does swing"


def test_with_a_short_step_it_is_the_differential_equation():
    """Against SciPy, with random weights: the rule is of first order, so the error falls with the step."""
    feature, end = np.array([0.3, -0.7]), 3.0
    errors = []
    with jax.enable_x64(True):
        fresh = CoRNNConfig().build(jax.random.key(0), 2, H)
        V, (Wy, Wz), b = (
            np.asarray(fresh.input_weights, float),
            np.asarray(fresh.recurrent_weights, float),
            np.linspace(-0.5, 0.5, H),
        )

        def flow(_, state):
            y, z = state[:H], state[H:]
            return np.concatenate([z, np.tanh(V.T @ feature + Wy.T @ y + Wz.T @ z + b) - 1.5 * y - 0.5 * z])

        start = np.random.default_rng(1).normal(size=2 * H)
        exact = scipy.integrate.solve_ivp(flow, (0.0, end), start, rtol=1e-10, atol=1e-12).y[:, -1]
        for steps in (300, 600):
            core = CoRNN(
                jnp.asarray(V),
                jnp.asarray([Wy, Wz]),
                jnp.asarray(b),
                time_step=end / steps,
                stiffness=1.5,
                damping=0.5,
            )
            features = jnp.broadcast_to(jnp.asarray(feature), (steps, 1, 2))
            final = read_sequence(
                core, features, jnp.asarray(start)[None], jnp.zeros((steps, 1), bool)
            ).final[0]
            errors.append(np.abs(np.asarray(final) - exact).max())
    assert errors[0] < 0.02
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.1)


def test_the_position_is_shown_and_follows_what_is_seen_while_the_velocity_comes_to_rest():
    core = dataclasses.replace(
        undriven(time_step=0.5, stiffness=2.0, damping=1.0), bias=jnp.array([0.0, 0.5, -1.0, 3.0])
    )
    final = read_sequence(
        core, jnp.zeros((200, 1, 2)), jnp.zeros((1, 2 * H)), jnp.zeros((200, 1), bool)
    ).final[0]
    # Where nothing moves, γ y = tanh(b) and z = 0: only the position can tell what is observed.
    np.testing.assert_allclose(core.expose(final), np.tanh([0.0, 0.5, -1.0, 3.0]) / 2.0, atol=1e-6)
    np.testing.assert_allclose(final[H:], 0.0, atol=1e-6)


def growth(time_step: float, stiffness: float, damping: float) -> float:
    """Largest eigenvalue of one step without weights, from its definition."""
    y_of = np.array([1.0 - time_step**2 * stiffness, time_step * (1.0 - time_step * damping)])
    z_of = np.array([-time_step * stiffness, 1.0 - time_step * damping])
    return float(np.abs(np.linalg.eigvals(np.stack([y_of, z_of]))).max())


@pytest.mark.parametrize(
    "settings",
    [(1.0, 1.0, 1.4), (1.9, 0.1, 0.9), (0.5, 15.0, 0.1), (1.0, 1.0, 1.6), (1.9, 0.4, 0.9), (0.5, 16.0, 0.1)],
)
def test_a_config_is_refused_exactly_where_the_oscillators_would_grow(settings):
    if growth(*settings) < 1.0:
        CoRNNConfig("orthogonal", *settings)
    else:
        with pytest.raises(ConfigError, match="from 4 on the oscillators grow without bound"):
            CoRNNConfig("orthogonal", *settings)


def test_oscillators_without_friction_are_refused():
    with pytest.raises(
        ConfigError, match=r"damping is 0\.0, but it must be positive, or the oscillators are unbounded"
    ):
        CoRNNConfig(damping=0.0)
