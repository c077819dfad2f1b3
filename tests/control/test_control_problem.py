"""Test the Hamiltonian's derivatives, the control laws and the systems.

The references are finite differences, grids and Lagrange's equations.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.control.costs import AbstractControlCost, ElasticCost, FreeControl, FuelCost, QuadraticCost
from costate.control.problem import ControlProblem, hamiltonian, hamiltonian_partials
from costate.control.systems import GRAVITY, CartPole, Pendulum, double_integrator


def swing(cost: AbstractControlCost, limit: float = jnp.inf, **changes) -> ControlProblem:
    system = CartPole()
    parts = {
        "name": "swing",
        "drift": system.drift,
        "influence": system.influence,
        "state_cost": lambda x: x @ x + jnp.cos(x[1]),
        "control_cost": cost,
        "terminal_cost": lambda x: x @ x,
        "initial_state": jnp.zeros(4),
        "limit": jnp.full(1, limit),
        "horizon": 1.0,
    }
    return ControlProblem(**(parts | changes))


def test_partials_equal_central_differences():
    with jax.enable_x64(True):
        problem, rng, step = swing(QuadraticCost(jnp.full((1, 1), 0.3))), np.random.default_rng(0), 1e-6
        point = [jnp.asarray(rng.normal(size=size)) for size in (4, 4, 1)]
        value = jax.jit(lambda *point: hamiltonian(problem, *point))
        for which, found in enumerate(hamiltonian_partials(problem, *point)):
            for index in range(len(found)):
                shift = np.zeros(len(found))
                shift[index] = step
                up, down = (
                    [p + sign * shift if i == which else p for i, p in enumerate(point)]
                    for sign in (1.0, -1.0)
                )
                np.testing.assert_allclose(
                    found[index], (value(*up) - value(*down)) / (2 * step), rtol=1e-7, atol=1e-8
                )


@pytest.mark.parametrize(
    "cost",
    [
        QuadraticCost(jnp.diag(jnp.array([0.5, 2.0]))),
        FreeControl(),
        FuelCost(0.7),
        ElasticCost(jnp.asarray(0.7), jnp.array([0.5, 1.0])),
    ],
    ids=lambda cost: type(cost).__name__,
)
def test_laws_minimise_on_a_grid(cost):
    """No control on a grid of 81 × 81 within the limits has a smaller c(u) + uᵀs.

    The grid contains the limits and 0.
    """
    limit = jnp.array([1.0, 2.0])
    grid = jnp.stack(jnp.meshgrid(*(jnp.linspace(-bound, bound, 81) for bound in limit)), axis=-1).reshape(
        -1, 2
    )
    slopes = 3.0 * jax.random.normal(jax.random.key(0), (100, 2))

    def shortfall(slope):
        chosen = cost.minimiser(slope, limit)
        values = jax.vmap(lambda u: cost.value(u) + u @ slope)(grid)
        return cost.value(chosen) + chosen @ slope - values.min(), jnp.abs(chosen / limit).max()

    worse, share = jax.jit(jax.vmap(shortfall))(slopes)
    assert worse.max() <= 1e-5  # rounding in float32
    assert share.max() <= 1.0 + 1e-6


@pytest.mark.parametrize("cost", [FreeControl(), FuelCost(0.7)], ids=lambda cost: type(cost).__name__)
def test_smoothed_laws_are_continuous_and_tend_to_the_law(cost):
    limit, slopes = jnp.array([2.0]), jnp.linspace(-2.0, 2.0, 401)[:, None]
    away = np.abs(np.abs(slopes[:, 0]) - (0.7 if isinstance(cost, FuelCost) else 0.0)) > 0.05
    exact = jax.vmap(lambda s: cost.minimiser(s, limit))(slopes)
    gaps = []
    for amount in (1.0, 0.01):
        smooth = jax.vmap(cost.smoothed(jnp.asarray(amount), limit).minimiser, in_axes=(0, None))(
            slopes, limit
        )
        gaps.append(float(jnp.abs(smooth - exact)[away].max()))
        assert jnp.abs(jnp.diff(smooth[:, 0])).max() <= 0.01 * 4.0 / (2.0 * amount) + 1e-5, (
            "slope of the law: limit² / 2 amount"
        )
    assert gaps[0] > 0.5
    assert gaps[1] < 1e-5


@pytest.mark.parametrize(
    "cost",
    [QuadraticCost(jnp.eye(1)), FreeControl(), FuelCost(0.7), ElasticCost(jnp.asarray(0.7), jnp.ones(1))],
)
def test_laws_are_linear_between_their_kinks(cost):
    limit = jnp.ones(1)
    edges = np.unique(np.concatenate([[-5.0], np.asarray(cost.kinks(limit))[:, 0], [5.0]]))
    for low, high in itertools.pairwise(edges):
        inside = jnp.linspace(low + 1e-3, high - 1e-3, 21)[:, None]
        assert np.abs(np.diff(jax.vmap(lambda s: cost.minimiser(s, limit))(inside)[:, 0], n=2)).max() < 1e-6


def test_cartpole_obeys_lagranges_equations():
    """d/dt ∂L/∂q̇ − ∂L/∂q = (u, 0) with the accelerations of the system, for L built from positions alone."""
    with jax.enable_x64(True):
        system = CartPole(cart_mass=1.3, pole_mass=0.4, length=0.7)

        def lagrangian(q, speed):

            def tip(q):
                return jnp.stack([q[0] + system.length * jnp.sin(q[1]), system.length * jnp.cos(q[1])])

            _, tip_speed = jax.jvp(tip, (q,), (speed,))
            kinetic = 0.5 * system.cart_mass * speed[0] ** 2 + 0.5 * system.pole_mass * tip_speed @ tip_speed
            return kinetic - system.pole_mass * GRAVITY * tip(q)[1]

        @jax.jit
        def imbalance(state, control):
            rate = system.drift(state) + system.influence(state) @ control
            _, change = jax.jvp(
                lambda q, v: jax.grad(lagrangian, argnums=1)(q, v),
                (state[:2], state[2:]),
                (rate[:2], rate[2:]),
            )
            return rate[:2] - state[2:], change - jax.grad(lagrangian)(state[:2], state[2:]) - jnp.append(
                control, 0.0
            )

        for seed in range(5):
            state, control = jnp.split(3.0 * jax.random.normal(jax.random.key(seed), (5,), jnp.float64), [4])
            for part in imbalance(state, control):
                np.testing.assert_allclose(part, 0.0, atol=1e-12)


def test_pendulum_loses_energy_to_damping_alone():
    """dE/dt = u θ̇ − damping θ̇² for E = ½ml²θ̇² + mgl cos θ."""
    system = Pendulum(mass=0.5, length=2.0, damping=0.3)
    state, control = jnp.array([0.7, -1.1]), jnp.array([0.4])
    energy = lambda x: 0.5 * 0.5 * 4.0 * x[1] ** 2 + 0.5 * GRAVITY * 2.0 * jnp.cos(x[0])  # noqa: E731
    rate = jax.grad(energy)(state) @ (system.drift(state) + system.influence(state) @ control)
    np.testing.assert_allclose(rate, 0.4 * -1.1 - 0.3 * 1.21, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: swing(QuadraticCost(jnp.diag(jnp.array([1.0, -2.0])))),
            r"R is not positive definite: its smallest eigenvalue is -2",
        ),
        (lambda: swing(QuadraticCost(jnp.eye(2))), r"swing: R has shape \(2, 2\)"),
        (lambda: swing(FreeControl()), r"swing: limit is \[inf\].*finite limit"),
        (lambda: swing(FuelCost(), 0.0), r"swing: limit is \[0\.0\]"),
        (lambda: swing(FreeControl(), 1.0, horizon=-1.0), r"swing: horizon is -1\.0"),
        (
            lambda: swing(FreeControl(), 1.0, influence=lambda x: jnp.ones((4, 2))),
            r"swing: influence returns an array of shape \(4, 2\).*\(4, 1\)",
        ),
        (
            lambda: swing(FreeControl(), 1.0, state_cost=lambda x: x),
            r"swing: state_cost returns an array of shape \(4,\)",
        ),
        (lambda: FuelCost(0.0), "fuel weight"),
    ],
)
def test_parts_that_do_not_fit_are_named(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_limits_with_coupled_actuators_are_refused():
    system = double_integrator()
    with pytest.raises(ConfigError, match="R couples actuators"):
        ControlProblem(
            "coupled",
            system.drift,
            lambda x: jnp.eye(2),
            lambda x: x @ x,
            QuadraticCost(jnp.array([[2.0, 1.0], [1.0, 2.0]])),
            lambda x: x @ x,
            jnp.zeros(2),
            jnp.ones(2),
            1.0,
        )
