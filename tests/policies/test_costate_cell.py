"""The co-state cell: its step against dense matrices, its equation against SciPy, its bound, F's inputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from costate._base.errors import ConfigError
from costate.policies.cores.costate_cell import CostateCell, CostateCellConfig, rotate

F, H, C, SLOWEST = 4, 7, 3, 0.05


def build(scale: float = 1.0, hidden: int = H) -> CostateCell:
    """A cell whose every array is random."""
    core = CostateCellConfig(controls=C, slowest_decay=SLOWEST).build(jax.random.key(0), F, hidden)
    leaves, structure = jax.tree.flatten(core)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return jax.tree.unflatten(
        structure,
        [scale * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)],
    )


def chain(hidden: int) -> np.ndarray:
    """Return where each unit of the chain is stored: even ones first."""
    half = -(-hidden // 2)
    return np.array([i // 2 + (half if i % 2 else 0) for i in range(hidden)])


def couplings(frequency: np.ndarray, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """S_even and S_odd as dense skew-symmetric matrices in the order of storage."""
    place, pairs = chain(hidden), hidden // 2
    matrices = np.zeros((2, hidden, hidden))
    for link in range(hidden - 1):
        value = frequency[link // 2] if link % 2 == 0 else frequency[pairs + link // 2]
        matrices[link % 2, place[link], place[link + 1]] = value
        matrices[link % 2, place[link + 1], place[link]] = -value
    return matrices[0], matrices[1]


@pytest.mark.parametrize("hidden", [7, 8])
def test_a_step_is_the_implicit_rules_with_dense_matrices(hidden):
    rng = np.random.default_rng(0)
    core, feature, before = build(0.8, hidden), rng.normal(size=F), rng.normal(size=hidden)
    array = {
        field.name: np.asarray(getattr(core, field.name), np.float64) for field in dataclasses.fields(core)
    }
    control = before @ array["influence"]
    decay = SLOWEST + np.log1p(
        np.exp(feature @ array["decay_weights"] + control @ array["decay_by_control"] + array["decay_bias"])
    )
    frequency = (
        feature @ array["frequency_weights"]
        + control @ array["frequency_by_control"]
        + array["frequency_bias"]
    )
    h, one = before, np.eye(hidden)
    for skew in couplings(frequency, hidden):
        np.testing.assert_array_equal(skew, -skew.T)
        h = np.linalg.solve(one + 0.5 * skew, (one - 0.5 * skew) @ h)
    expected = np.linalg.solve(
        one + np.diag(decay), h - np.tanh(feature @ array["source_weights"] + array["bias"])
    )
    found = jax.jit(lambda y, h: core.step(y, h))(
        jnp.asarray(feature, jnp.float32), jnp.asarray(before, jnp.float32)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def slow_motion(
    core: CostateCell, source: np.ndarray, decay: np.ndarray, frequency: np.ndarray, steps: int
) -> CostateCell:
    """A blind cell whose every step is 1/steps of the time of ḣ = −B − F h with constant B and F."""
    blank = jax.tree.map(jnp.zeros_like, core)
    return dataclasses.replace(
        blank,
        bias=jnp.arctanh(jnp.asarray(source / steps)),
        decay_bias=jnp.log(jnp.expm1(jnp.asarray((decay - SLOWEST) / steps))),
        frequency_bias=jnp.asarray(frequency / steps),
        slowest_decay=SLOWEST / steps,
    )


@pytest.mark.thorough
def test_many_short_steps_solve_the_co_states_equation():
    """Compare with SciPy's solution of ḣ = −B − (D + S) h.

    The rules are of first order: half the step, half the error.
    """
    rng = np.random.default_rng(1)
    source, decay, frequency, start = (
        rng.uniform(-1, 1, H),
        rng.uniform(0.2, 1.5, H),
        rng.normal(size=H - 1),
        rng.normal(size=H),
    )
    matrix = np.diag(decay) + sum(couplings(frequency, H))
    truth = scipy.integrate.solve_ivp(
        lambda t, h: -source - matrix @ h, (0.0, 1.0), start, rtol=1e-10, atol=1e-12
    ).y[:, -1]
    errors = []
    with jax.enable_x64(True):
        core = jax.tree.map(lambda a: a.astype(jnp.float64), build())
        for steps in (200, 400):
            slow = slow_motion(core, source, decay, frequency, steps)
            end = jax.lax.fori_loop(
                0, steps, lambda _, h, slow=slow: slow.step(jnp.zeros(F), h), jnp.asarray(start)
            )
            errors.append(np.abs(end - truth).max())
    assert errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("hidden", [2, 7, 8])
def test_rotations_keep_the_length_whatever_the_frequencies(hidden):
    key_h, key_f = jax.random.split(jax.random.key(0))
    h = jax.random.normal(key_h, (50, hidden))
    frequency = jnp.logspace(-3, 4, 50)[:, None] * jax.random.normal(key_f, (50, hidden - 1))
    np.testing.assert_allclose(
        np.linalg.norm(jax.jit(rotate)(frequency, h), axis=-1), np.linalg.norm(h, axis=-1), rtol=1e-5
    )


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_the_memory_never_leaves_its_ball(scale):
    core = build(scale)
    step = jax.jit(lambda y, h: core.step(y, h))
    h, limit = jnp.zeros(H), np.sqrt(H) / SLOWEST
    for t in range(300):
        h = step(jax.random.normal(jax.random.key(t), (F,)), h)
        assert np.linalg.norm(h) <= limit


def test_the_bound_is_reached_by_the_worst_memory():
    """Full source, least decay, no rotation: h → −1/d in every unit, so no smaller ball would do."""
    core = dataclasses.replace(
        jax.tree.map(jnp.zeros_like, build()), bias=jnp.full(H, 20.0), decay_bias=jnp.full(H, -40.0)
    )
    h = jax.lax.fori_loop(0, 400, lambda _, h: core.step(jnp.zeros(F), h), jnp.zeros(H))
    np.testing.assert_allclose(h, np.full(H, -1.0 / SLOWEST), rtol=1e-4)


def test_the_equation_is_linear_in_the_co_state_but_for_the_control_that_f_sees():
    core = build(0.5)

    @jax.jit
    def curvature(core):
        """Return how far the step is from affine in h."""
        feature, (left, right) = jnp.ones(F), jax.random.normal(jax.random.key(3), (2, H))
        both, one, other, none = (core.step(feature, h) for h in (left + right, left, right, 0.0 * left))
        return jnp.abs(both - one - other + none).max()

    blind = dataclasses.replace(
        core, decay_by_control=jnp.zeros((C, H)), frequency_by_control=jnp.zeros((C, H - 1))
    )
    # float32 rounding of numbers of size 1.
    assert curvature(blind) < 1e-5
    assert curvature(core) > 1e-2


@pytest.mark.parametrize(
    ("settings", "hidden", "message"),
    [
        ({"controls": 0}, 4, "controls is 0"),
        ({"slowest_decay": 0.0}, 4, "slowest_decay is 0.0"),
        ({"slowest_decay": float("nan")}, 4, "slowest_decay is nan"),
        ({}, 1, "hidden_size is 1, but a co-state cell"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, hidden, message):
    with pytest.raises(ConfigError, match=message):
        CostateCellConfig(**settings).build(jax.random.key(0), 3, hidden)
