"""The state-space core against its recurrence, written out, and against its sum in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.policies.cores import read_sequence
from costate.policies.cores.ssm import SSM, SSMConfig

F, H, K = 3, 5, 4


def core() -> SSM:
    fresh = SSMConfig(modes=K, largest_phase=3.0).build(jax.random.key(0), F, H)
    return dataclasses.replace(fresh, bias=jnp.linspace(-0.3, 0.3, H))


def parts(core: SSM) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Λ, the complex input matrix with its normaliser, and the complex output matrix, in complex128."""
    W, C, nu, theta = (
        np.asarray(a, np.float64)
        for a in (core.input_weights, core.output_weights, core.log_decay, core.phase)
    )
    modulus = np.exp(-np.exp(nu))
    # Re(C x) with a complex C is C_re Re x − C_im Im x: the lower half of the real matrix is −C_im.
    return (
        modulus * np.exp(1j * theta),
        np.sqrt(1.0 - modulus**2)[:, None] * (W[:, :K] + 1j * W[:, K:]).T,
        (C[:K] - 1j * C[K:]).T,
    )


def test_all_states_at_once_are_those_of_the_recurrence():
    """Compute Λ x + B ỹ step by step with NumPy's complex numbers; episodes start in the middle."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        built = jax.tree.map(lambda a: a.astype(jnp.float64), core())
        Lambda, B, C = parts(built)
        features, start = rng.normal(size=(11, 2, F)), rng.normal(size=(2, 2 * K))
        is_first = np.zeros((11, 2), bool)
        is_first[0, 1] = is_first[4, 0] = is_first[5, 0] = True
        memory = read_sequence(built, jnp.asarray(features), jnp.asarray(start), jnp.asarray(is_first))
    x = start[:, :K] + 1j * start[:, K:]
    for t in range(11):
        x = np.where(is_first[t][:, None], 0.0, x) * Lambda + features[t] @ B.T
        np.testing.assert_allclose(
            memory.hiddens[t], np.tanh((x @ C.T).real + np.asarray(built.bias)), rtol=1e-12, atol=1e-13
        )
    np.testing.assert_allclose(memory.final, np.concatenate([x.real, x.imag], axis=-1), rtol=1e-12)


def test_a_constant_observation_adds_up_to_the_geometric_series():
    """x_T = (1 − Λᵀ)/(1 − Λ) B ỹ from nothing."""
    with jax.enable_x64(True):
        built = jax.tree.map(lambda a: a.astype(jnp.float64), core())
        Lambda, B, _ = parts(built)
        feature = np.array([0.5, -1.0, 0.2])
        features = jnp.broadcast_to(jnp.asarray(feature), (300, 1, F))
        final = read_sequence(built, features, jnp.zeros((1, 2 * K)), jnp.zeros((300, 1), bool)).final[0]
    x = (1.0 - Lambda**300) / (1.0 - Lambda) * (B @ feature)
    np.testing.assert_allclose(final, np.concatenate([x.real, x.imag]), rtol=1e-11)


def test_modes_start_in_the_ring_that_was_asked_for():
    built = SSMConfig(modes=500, fastest=0.6, slowest=0.9, largest_phase=0.2).build(jax.random.key(1), F, H)
    Lambda = np.exp(-np.exp(np.asarray(built.log_decay, float))) * np.exp(1j * np.asarray(built.phase, float))
    assert (np.abs(Lambda) >= 0.6 - 1e-6).all()
    assert (np.abs(Lambda) <= 0.9 + 1e-6).all()
    assert (np.angle(Lambda) >= 0.0).all()
    assert (np.angle(Lambda) <= 0.2).all()
    # |Λ|² is uniform: its mean is (0.36 + 0.81)/2, with a deviation of 0.13/√500.
    assert np.mean(np.abs(Lambda) ** 2) == pytest.approx(0.585, abs=0.024)


@pytest.mark.quick("5.0")
@pytest.mark.parametrize("log_decay", [-30.0, 5.0])
def test_no_rate_of_decay_makes_the_memory_grow_or_its_gradient_infinite(log_decay):
    """With ν = −30 a mode keeps all of itself in float32, with ν = 5 nothing."""

    def shown(nu):
        built = dataclasses.replace(core(), log_decay=nu)
        return read_sequence(
            built, jnp.ones((50, 1, F)), jnp.ones((1, 2 * K)), jnp.zeros((50, 1), bool)
        ).final

    nu = jnp.full(K, log_decay)
    # |x| ≤ |x_0| + 50 Γ |W ỹ|, and Γ < 1e-6 for the first.
    assert np.abs(shown(nu)).max() < 5.0
    assert np.isfinite(jax.grad(lambda nu: shown(nu).sum())(nu)).all()


def test_half_as_many_modes_as_units_are_the_default():
    assert SSMConfig().build(jax.random.key(0), F, 8).state_size == 8
    assert SSMConfig().build(jax.random.key(0), F, 7).state_size == 8
    assert SSMConfig(modes=10).build(jax.random.key(0), F, 7).state_size == 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"modes": 0},
            "modes is 0, but a state needs at least one. Use None for half as many as hidden units.",
        ),
        (
            {"slowest": 1.0},
            "fastest is 0.5 and slowest is 1.0, but they are shares of memory kept in a step: 0 < fastest "
            "≤ slowest < 1.",
        ),
        ({"fastest": 0.0}, "fastest is 0.0 and slowest is 0.95, but they are shares of memory"),
        ({"largest_phase": 4.0}, "largest_phase is 4.0, but it must lie between 0 and π"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        SSMConfig(**settings)
    assert message in str(error.value)
