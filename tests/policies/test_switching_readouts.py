"""Bang-bang and bang-off-bang: minimisers, distributions, and switching times of the double integrator."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from costate._base.errors import ConfigError
from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue
from costate.learners.averages import row_weights
from costate.learners.ppo.batch import make_batch, take_minibatch
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.losses import mean_entropy, total_loss
from costate.learners.rollout import RolloutConfig, begin, collect
from costate.learners.sharding import ALONE, Shards
from costate.policies.policy import PolicyConfig, build_policy, unroll_policy
from costate.policies.readouts import READOUTS, Gibbs
from costate.policies.readouts.bang_bang import BangBangReadout
from costate.policies.readouts.bang_off_bang import BangOffBangReadout, BangOffBangReadoutConfig
from costate.policies.running_stats import empty_stats
from costate.policies.squashed import SquashedGaussian

LEVELS = {0.0: (-1.0, 1.0), 0.7: (-1.0, 0.0, 1.0)}


def readout_with(weights, fuel: float) -> BangBangReadout | BangOffBangReadout:
    """σ = Wᵀh."""
    matrix, zeros = jnp.asarray(weights, jnp.float32), jnp.zeros(weights.shape[1])
    return (
        BangOffBangReadout(matrix, zeros, zeros, None, fuel)
        if fuel > 0.0
        else BangBangReadout(matrix, zeros, zeros)
    )


@pytest.mark.parametrize("fuel", LEVELS)
def test_the_law_minimises_its_hamiltonian_on_a_grid(fuel):
    """w Σ|u_i| + uᵀGh over all pairs of controls on a grid of the actuators' range, for many G and h."""
    rng = np.random.default_rng(0)
    grid = np.array(list(itertools.product(np.linspace(-1.0, 1.0, 41), repeat=2)))
    control = jax.jit(lambda weights, h: readout_with(weights, fuel).control(jnp.zeros(4), h))
    for _ in range(200):
        G, h = rng.normal(size=(2, 4)), rng.normal(size=4)
        law = np.asarray(control(jnp.asarray(-G.T, jnp.float32), jnp.asarray(h, jnp.float32)))
        controls = np.vstack([law, grid])
        cost = fuel * np.abs(controls).sum(axis=1) + controls @ (G @ h)
        # The grid holds the corners and the middle, so the minimum is on it up to float32 rounding of the
        # slope.
        assert cost[0] <= cost.min() + 1e-6
        assert set(law) <= set(LEVELS[fuel])


def hamiltonian_weights(
    switching: np.ndarray, temperature: np.ndarray, fuel: float
) -> dict[tuple[float, ...], float]:
    """Normalise exp(−(c(u) + uᵀs)/τ) over all joint controls by brute force; each actuator has its own τ."""
    joint = list(itertools.product(LEVELS[fuel], repeat=switching.size))
    weights = np.array(
        [np.exp(-((fuel * np.abs(u) - np.array(u) * switching) / temperature).sum()) for u in joint]
    )
    return dict(zip(joint, weights / weights.sum(), strict=True))


@pytest.mark.parametrize("fuel", LEVELS)
def test_probabilities_and_entropy_are_those_of_the_gibbs_distribution(fuel):
    rng = np.random.default_rng(1)
    switching, temperature = rng.normal(size=(5, 2)), np.array([0.5, 1.7])
    gibbs = Gibbs(
        jnp.asarray(switching, jnp.float32),
        jnp.log(jnp.asarray(temperature, jnp.float32)),
        LEVELS[fuel],
        fuel,
    )
    expected = [hamiltonian_weights(row, temperature, fuel) for row in switching]
    for u in expected[0]:
        found = jnp.exp(gibbs.log_prob(jnp.broadcast_to(jnp.asarray(u), (5, 2))))
        np.testing.assert_allclose(found, [weights[u] for weights in expected], rtol=1e-5)
    np.testing.assert_allclose(
        gibbs.entropy(), [scipy.stats.entropy(list(weights.values())) for weights in expected], rtol=1e-5
    )


@pytest.mark.parametrize("fuel", LEVELS)
def test_samples_have_the_probabilities_that_the_likelihood_says(fuel):
    """With noise at the middles of N equally likely intervals, frequencies are probabilities up to 1/N."""
    count, switching, temperature = 4000, np.array([[0.4], [-1.1], [3.0]]), np.array([0.8])
    noise = scipy.stats.norm.ppf((np.arange(count) + 0.5) / count)
    for row in switching:
        gibbs = Gibbs(
            jnp.full((count, 1), row[0], jnp.float32),
            jnp.log(jnp.asarray(temperature, jnp.float32)),
            LEVELS[fuel],
            fuel,
        )
        sampled = np.asarray(gibbs.sample(jnp.asarray(noise[:, None], jnp.float32)))[:, 0]
        for (level,), probability in hamiltonian_weights(row, temperature, fuel).items():
            assert abs((sampled == level).mean() - probability) <= 1.5 / count


def test_extreme_noise_and_certainty_stay_among_the_levels():
    gibbs = Gibbs(jnp.array([[1e4], [-1e4], [0.0]]), jnp.zeros(1), (-1.0, 0.0, 1.0), 1.0)
    for noise in (-40.0, 40.0):
        action = gibbs.sample(jnp.full((3, 1), noise))
        assert set(np.asarray(action).ravel()) <= {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(gibbs.sample(jnp.zeros((3, 1))), [[1.0], [-1.0], [0.0]])
    assert np.isfinite(gibbs.log_prob(-gibbs.mode())).all()
    assert np.isfinite(gibbs.entropy()).all()


def simulate(
    readout, costate, horizon: float, start: np.ndarray, steps: int = 4000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate the double integrator under the law of the true λ(t); stepwise constant control is exact."""
    step = horizon / steps
    times = (np.arange(steps) + 0.5) * step
    controls = np.asarray(
        jax.vmap(readout.control)(jnp.zeros((steps, 2)), jnp.asarray(costate(times), jnp.float32))
    )[:, 0]
    state = start.astype(float)
    for u in controls:
        state = state + step * np.array([state[1] + 0.5 * step * u, u])
    return times, controls, state


def switching_times(times: np.ndarray, controls: np.ndarray) -> list[float]:
    return [0.5 * (times[i] + times[i + 1]) for i in np.flatnonzero(np.diff(controls))]


# σ = −gᵀλ with g = (0, 1)ᵀ.
TOWARDS = np.array([[0.0], [-1.0]])


@pytest.mark.parametrize("position", [0.5, 4.0])
def test_minimum_time_of_the_double_integrator_switches_once_half_way(position):
    """From rest at x₀ > 0: t_f = 2√x₀, λ₁ = 1/√x₀ and λ₂ = 1 − λ₁ t from H = 1 + λ₁x₂ + λ₂u = 0.

    So the switch is at √x₀.
    """
    half = np.sqrt(position)
    readout = readout_with(TOWARDS, 0.0)
    times, controls, state = simulate(
        readout,
        lambda t: np.stack([np.full_like(t, 1.0 / half), 1.0 - t / half], axis=-1),
        2.0 * half,
        np.array([position, 0.0]),
    )
    assert controls[0] == -1.0
    # Half a step of the simulation either way.
    np.testing.assert_allclose(switching_times(times, controls), [half], atol=half / 4000)
    np.testing.assert_allclose(state, [0.0, 0.0], atol=4.0 * half / 4000 * (1.0 + half))


def test_minimum_fuel_of_the_double_integrator_coasts_between_two_bursts():
    """From rest at x₀ to rest at 0 in T: bursts of t₁ with t₁(T − t₁) = x₀ and a coast between.

    λ₂ falls linearly and is ±1 at the switches.
    """
    position, horizon = 3.0, 4.0
    burst = 0.5 * (horizon - np.sqrt(horizon**2 - 4.0 * position))
    assert burst == 1.0
    slope = 1.0 / (0.5 * horizon - burst)
    readout = readout_with(TOWARDS, 1.0)
    times, controls, state = simulate(
        readout,
        lambda t: np.stack([np.full_like(t, slope), slope * (0.5 * horizon - t)], axis=-1),
        horizon,
        np.array([position, 0.0]),
    )
    np.testing.assert_allclose(
        switching_times(times, controls), [burst, horizon - burst], atol=horizon / 4000
    )
    assert list(dict.fromkeys(controls.tolist())) == [-1.0, 0.0, 1.0]
    np.testing.assert_allclose(state, [0.0, 0.0], atol=10.0 * horizon / 4000)
    np.testing.assert_allclose(np.abs(controls).mean() * horizon, 2.0 * burst, atol=2.0 * horizon / 4000)


def test_full_effort_is_the_bound_of_the_actuator_and_none_is_none():
    gibbs = Gibbs(jnp.zeros((3, 2)), jnp.zeros(2), (-1.0, 0.0, 1.0), 1.0)
    action = jnp.array([[1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]])
    bounds = np.array([-1.0, -0.8], np.float32), np.array([1.1, 0.5], np.float32)
    np.testing.assert_array_equal(
        gibbs.actuate(action, *bounds), np.array([[1.1, -0.8], [0.0, 0.0], [-1.0, 0.5]], np.float32)
    )
    ones = np.ones(2, np.float32)
    np.testing.assert_array_equal(gibbs.actuate(action, -ones, ones), action)


@pytest.mark.parametrize(("low", "high"), [(-1e10, 1e10), (-np.inf, 1.0), (0.0, 1.0)])
def test_actuators_without_limits_have_no_such_law(low, high):
    gibbs = Gibbs(jnp.zeros((1, 1)), jnp.zeros(1), (-1.0, 1.0), 0.0)
    with pytest.raises(
        ConfigError, match=r"switches between the limits of the actuators.*Use --readout quadratic"
    ):
        gibbs.actuate(jnp.ones((1, 1)), np.array([low], np.float32), np.array([high], np.float32))


@pytest.mark.parametrize("name", ["bang-bang", "bang-off-bang"])
def test_soft_actor_critic_refuses_a_law_that_switches(name):
    message = (
        rf"The readout {name} chooses among a few controls, .* Use --readout quadratic, or --algorithm ppo"
    )
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(
            preset("nc-sac-gru", "WalkerStand"), policy=PolicyConfig(readout=READOUTS[name]())
        )
    RunConfig("WalkerStand", policy=PolicyConfig(readout=READOUTS[name]()))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_dead_zone_needs_a_positive_width(weight):
    with pytest.raises(ConfigError, match=r"fuel_weight is .* but it must be a positive number.*bang-bang"):
        BangOffBangReadoutConfig(fuel_weight=weight)


@pytest.mark.parametrize("name", ["quadratic", "bang-off-bang"])
def test_the_shares_of_two_devices_in_the_mean_entropy_add_up(name):
    """With an entropy that is one number, and with one that depends on the state."""
    readout = READOUTS[name]().build(jax.random.key(0), 3, 2)
    hidden, weight = (
        100.0 * jax.random.normal(jax.random.key(1), (5, 4, 3)),
        row_weights(jnp.ones((5, 4)).at[2, 1].set(0.0)),
    )
    whole, *parts = (
        float(
            mean_entropy(readout.distribution(hidden[:, own], hidden[:, own]), weight[:, own], Shards(count))
        )
        for own, count in ((slice(0, 4), 1), (slice(0, 2), 2), (slice(2, 4), 2))
    )
    assert sum(parts) == pytest.approx(whole, rel=1e-5)


def test_a_distribution_without_an_entropy_is_refused_by_the_loss_that_needs_it():
    squashed = SquashedGaussian(jnp.zeros((5, 4, 2)), jnp.zeros((5, 4, 2)))
    with pytest.raises(ConfigError, match=r"explores by a SquashedGaussian, whose entropy\(\) is None"):
        mean_entropy(squashed, jnp.ones((5, 4)), ALONE)


def double(tree):
    return jax.tree.map(lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree)


@pytest.mark.thorough
def test_first_importance_ratio_is_one_and_the_gradient_of_the_loss_is_that_of_finite_differences():
    """A rollout of the switching law on the co-state cell, everything of Definition 3.2 at once."""
    env, rollout = AnalyticEnv(RememberedCue(), 4), RolloutConfig(environments=4, rollout_length=12)
    settings = PolicyConfig(
        hidden_size=6,
        core=preset("ncp", "WalkerStand").policy.core,
        readout=BangOffBangReadoutConfig(influence="observed"),
    )
    policy = build_policy(settings, jax.random.key(0), 1, 1)
    policy = jax.tree.map(lambda a: a + 0.3 * jax.random.normal(jax.random.key(a.size), a.shape), policy)
    start = begin(env, policy, jax.random.key(1))
    _, trajectory, final_value = jax.jit(functools.partial(collect, env, rollout, 0.99))(
        policy, empty_stats((1,)), start, jax.random.key(2)
    )
    assert set(np.unique(trajectory.action)) == {-1.0, 0.0, 1.0}
    config = PPOConfig(minibatches=1)
    batch = take_minibatch(
        make_batch(config, 10.0, empty_stats((1,)), empty_stats(), trajectory, final_value), jnp.arange(4)
    )
    unrolled = jax.jit(unroll_policy)(policy, batch.rows.observation, batch.core_state, batch.rows.is_first)
    # float32 sums in another order.
    np.testing.assert_allclose(
        jnp.exp(unrolled.control.log_prob(batch.rows.action) - batch.rows.log_prob),
        np.ones((12, 4)),
        atol=1e-5,
    )
    # The co-state loss has a target behind stop_gradient, which differences do not see.
    without = dataclasses.replace(config, costate_coef=0.0, terminal_coef=0.3)
    with jax.enable_x64(True):
        policy, batch = double((policy, batch))
        loss = jax.jit(lambda policy: total_loss(policy, batch, without)[0])
        gradient = jax.grad(loss)(policy)
        leaves, structure = jax.tree.flatten(policy)
        keys = jax.random.split(jax.random.key(3), len(leaves))
        direction = jax.tree.unflatten(
            structure, [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
        )
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
        ahead, behind = (
            loss(jax.tree.map(lambda a, d, s=s: a + s * d, policy, direction)) for s in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6)
