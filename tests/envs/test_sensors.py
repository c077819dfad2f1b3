"""Test sensor faults against plain Python, closed forms, and the paper's blackout bit for bit."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.config.run_config import RunConfig, config_hash, from_json, to_json
from costate.envs.faults import AbstractFault, Reading
from costate.envs.faults.dark import Hold, Zeros
from costate.envs.faults.delay import Delay
from costate.envs.faults.noise import Drift, Noise
from costate.envs.faults.outage import Outage
from costate.envs.faults.stuck import Stuck
from costate.envs.sensors import (
    SensorConfig,
    SensorEnv,
    absent_sensors,
    check_sensors,
    faults_of,
    numbered_faults,
    only_blackouts,
    with_mask,
)
from costate.envs.tasks import TASKS
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue

LAYOUT = (("position", 2), ("velocity", 3))


def passed_through(
    fault: AbstractFault,
    values: np.ndarray,
    is_first: np.ndarray,
    seen: np.ndarray | None = None,
    seed: int = 0,
) -> Reading:
    """Pass readings [T, B, O] through one fault, in one compiled loop."""
    steps, batch, size = values.shape
    seen = np.ones(values.shape, bool) if seen is None else seen

    def advance(state, row):
        value, seen, first, key = row
        reading, state = fault.apply(Reading(value, seen), state, first, fault.draw(key, batch, size))
        return state, reading

    keys = jax.random.split(jax.random.key(seed), steps)
    rows = (jnp.asarray(values, jnp.float32), jnp.asarray(seen), jnp.asarray(is_first), keys)
    return jax.tree.map(
        np.asarray, jax.jit(lambda rows: jax.lax.scan(advance, fault.start(batch, size), rows)[1])(rows)
    )


def starts(steps: int, batch: int, *others: tuple[int, int]) -> np.ndarray:
    first = np.zeros((steps, batch), bool)
    first[0] = True
    for t, b in others:
        first[t, b] = True
    return first


def test_the_papers_blackout_is_one_draw_for_each_observation():
    """The only random number is m_t ~ Bernoulli(1 − p), drawn from the environment's own key."""
    config, key, step_key = SensorConfig(0.3), jax.random.key(3), jax.random.key(4)
    env = SensorEnv(AnalyticEnv(RememberedCue(), 64), config)
    state, first = env.reset(key)
    _, second = jax.jit(env.step)(state, jnp.zeros((64, 1)), step_key)
    for timestep, used in ((first, key), (second, step_key)):
        seen = jax.random.bernoulli(jax.random.split(used)[1], 0.7, (64,))
        np.testing.assert_array_equal(timestep.observation, jnp.where(seen[:, None], timestep.complete, 0.0))


def test_what_one_fault_does_does_not_depend_on_the_others():
    """Then the same observations black out along a whole grid of noise."""

    def seen(**settings) -> np.ndarray:
        env = SensorEnv(AnalyticEnv(RememberedCue(), 4), SensorConfig(0.5, mask_input="bit", **settings))
        state, timestep = env.reset(jax.random.key(1))
        told = [timestep.observation[:, -1]]
        for key in jax.random.split(jax.random.key(0), 20):
            state, timestep = env.step(state, jnp.zeros((4, env.action_size)), key)
            told.append(timestep.observation[:, -1])
        return np.stack(told)

    alone = seen()
    assert 0.3 < alone.mean() < 0.7
    for others in (
        {"noise": 0.1},
        {"drift": 0.01},
        {"stuck": 0.2},
        {"noise": 0.1, "drift": 0.01, "stuck": 0.2},
    ):
        np.testing.assert_array_equal(seen(**others), alone)


def test_every_kind_of_fault_draws_from_a_number_of_its_own():
    rates = {
        "dropout": 0.5,
        "group_dropout": 0.1,
        "sensor_dropout": 0.2,
        "stuck": 0.1,
        "noise": 0.1,
        "drift": 0.1,
    }
    everything = SensorConfig(**rates, delay_jitter=2, hide=("position",))
    numbers = [number for number, _ in numbered_faults(everything, LAYOUT)]
    assert sorted(numbers) == list(range(9))
    # Alone and among all others.
    for name, rate in rates.items():
        (number, kind), *_ = numbered_faults(SensorConfig(**{"dropout": 0.0, name: rate}), LAYOUT)
        assert (number, type(kind)) in [(n, type(fault)) for n, fault in numbered_faults(everything, LAYOUT)]
    assert numbered_faults(SensorConfig(0.5), LAYOUT)[0][0] == 0


def test_blackouts_hide_whole_observations_at_the_given_rate():
    values = 1.0 + np.arange(12.0).reshape(1, 4, 3).repeat(2000, 0)
    seen = passed_through(Outage(0.3, None, np.zeros(3, int)), values, starts(2000, 4)).seen
    np.testing.assert_array_equal(seen.all(-1), seen.any(-1))
    dark = ~seen[..., 0]
    # Four deviations of a mean of 8000 draws.
    assert abs(dark.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 8000)
    # Environments fail independently of each other.
    assert abs(np.corrcoef(dark[:, 0], dark[:, 1])[0, 1]) < 0.1


def test_bursts_have_their_share_their_length_and_their_memory():
    """A chain is left with probability a = 1/L and entered with b = p/((1−p)L).

    It is dark for b/(a+b) = p of the time and for L steps on average, with autocorrelation (1 − a − b)^k
    after k steps.
    """
    p, length, batch = 0.4, 5.0, 400
    dark = ~passed_through(
        Outage(p, length, np.zeros(1, int)), np.ones((1000, batch, 1)), starts(1000, batch)
    ).seen[..., 0]
    share = dark.mean(axis=0)
    assert abs(share.mean() - p) < 4 * share.std() / np.sqrt(batch)
    # From the first step on, not only in the long run.
    assert abs(dark[0].mean() - p) < 4 * np.sqrt(p * (1 - p) / batch)
    ends = (dark[:-1] & ~dark[1:]).sum()
    # A burst's end is a coin of probability 1/L in each of its steps.
    left = ends / dark[:-1].sum()
    assert abs(left - 1 / length) < 4 * np.sqrt(0.2 * 0.8 / dark[:-1].sum())
    stays = 1.0 - 1.0 / length - p / ((1 - p) * length)
    for k in (1, 3):
        # 400 independent streams of 1000 steps: a deviation of about 0.003.
        assert np.corrcoef(dark[:-k].ravel(), dark[k:].ravel())[0, 1] == pytest.approx(stays**k, abs=0.015)


def test_bursts_of_the_length_of_independent_draws_are_independent():
    """With L = 1/(1 − p) the chain forgets at once."""
    dark = ~passed_through(Outage(0.5, 2.0, np.zeros(1, int)), np.ones((2000, 50, 1)), starts(2000, 50)).seen[
        ..., 0
    ]
    assert abs(np.corrcoef(dark[:-1].ravel(), dark[1:].ravel())[0, 1]) < 4 / np.sqrt(1e5)


def test_groups_fail_together_and_sensors_by_themselves():
    config = SensorConfig(0.0, group_dropout=0.3, sensor_dropout=0.2)
    groups, sensors = (fault for fault in faults_of(config, LAYOUT) if isinstance(fault, Outage))
    ones = np.ones((3000, 1, 5))
    by_group, by_sensor = (
        passed_through(fault, ones, starts(3000, 1)).seen[:, 0] for fault in (groups, sensors)
    )
    assert (by_group[:, 0] == by_group[:, 1]).all()
    assert (by_group[:, 2:] == by_group[:, 2:3]).all()
    assert abs(np.corrcoef(by_group[:, 0], by_group[:, 2])[0, 1]) < 4 / np.sqrt(3000)
    off_diagonal = np.corrcoef(by_sensor.T)[~np.eye(5, dtype=bool)]
    assert np.abs(off_diagonal).max() < 4 / np.sqrt(3000)
    np.testing.assert_allclose(by_sensor.mean(0), 0.8, atol=4 * np.sqrt(0.16 / 3000))


def test_holding_repeats_the_last_value_that_arrived():
    rng = np.random.default_rng(0)
    values, seen, first = (
        rng.normal(size=(60, 3, 2)).astype(np.float32),
        rng.random((60, 3, 2)) < 0.5,
        starts(60, 3, (20, 1)),
    )
    held = passed_through(Hold(), values, first, seen)
    for b in range(3):
        for i in range(2):
            last = 0.0
            for t in range(60):
                last = values[t, b, i] if seen[t, b, i] else (0.0 if first[t, b] else last)
                assert held.value[t, b, i] == last
    np.testing.assert_array_equal(held.seen, seen)
    np.testing.assert_array_equal(
        passed_through(Zeros(), values, first, seen).value, np.where(seen, values, 0.0)
    )


def test_a_stuck_sensor_shows_what_it_showed_and_nobody_notices():
    """Each reading is new or the one before, for the given share of the time and in bursts.

    An episode starts with a true one.
    """
    values = np.arange(1000.0)[:, None, None] + np.zeros((1, 40, 3))
    first = starts(1000, 40, (500, 7))
    shown = passed_through(Stuck(0.25, 8.0), values, first)
    repeated = shown.value[1:] == shown.value[:-1]
    assert ((shown.value[1:] == values[1:]) | repeated).all()
    assert shown.seen.all()
    np.testing.assert_array_equal(shown.value[0], values[0])
    np.testing.assert_array_equal(shown.value[500, 7], values[500, 7])
    share = repeated.mean(axis=0)
    assert abs(share.mean() - 0.25) < 4 * share.std() / np.sqrt(share.size)
    left = (repeated[:-1] & ~repeated[1:]).sum() / repeated[:-1].sum()
    assert abs(left - 1 / 8) < 4 * np.sqrt(1 / 8 * 7 / 8 / repeated.sum())


def test_noise_is_white_and_a_drift_is_a_random_walk():
    zeros, first = np.zeros((50, 4000, 1)), starts(50, 4000, (30, 5))
    noise = passed_through(Noise(0.3), zeros, first).value[..., 0]
    # A deviation estimated from n draws has itself a relative deviation of 1/√(2n).
    assert noise.std() == pytest.approx(0.3, rel=4 / np.sqrt(2 * noise.size))
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 4 / np.sqrt(noise.size)
    bias = passed_through(Drift(0.1), zeros, first).value[..., 0]
    assert not bias[0].any()
    assert bias[30, 5] == 0.0
    for t in (1, 16, 49):
        assert np.delete(bias[t], 5).std() == pytest.approx(0.1 * np.sqrt(t), rel=4 / np.sqrt(2 * 4000))


def test_a_fixed_delay_shows_the_past_and_nothing_before_the_first_arrives():
    values = np.arange(1.0, 41.0)[:, None, None] + np.array([[[0.0], [100.0]]])
    seen = np.ones(values.shape, bool)
    seen[10] = False
    first = starts(40, 2, (20, 1))
    shown = passed_through(Delay(3, 0), values, first, seen)
    for b, episodes in ((0, [(0, 40)]), (1, [(0, 20), (20, 40)])):
        for begin, end in episodes:
            for t in range(begin, end):
                arrived = t - 3 >= begin
                assert shown.value[t, b, 0] == (values[t - 3, b, 0] if arrived else 0.0)
                assert shown.seen[t, b, 0] == (arrived and t - 3 != 10)


def test_a_jittered_delay_shows_the_newest_that_has_arrived():
    """An observation of age k has not arrived with probability P(d > k).

    The newest is therefore older than k with probability Π_{i≤k} P(d > i).
    """
    fixed, jitter, steps, batch = 1, 3, 400, 200
    values = np.arange(float(steps))[:, None, None] + np.zeros((1, batch, 1))
    shown = passed_through(Delay(fixed, jitter), values, starts(steps, batch)).value[..., 0]
    shown, now = shown[10:], np.arange(10.0, steps)[:, None]
    assert (np.diff(shown, axis=0) >= 0.0).all()
    age = now - shown
    for k in range(fixed + jitter + 1):
        late = [min(max(fixed + jitter - i, 0), jitter + 1) / (jitter + 1) for i in range(k + 1)]
        # Ages of one stream are correlated over a few steps: 80 000 draws count as at least 10 000.
        assert (age > k).mean() == pytest.approx(np.prod(late), abs=4 * 0.5 / np.sqrt(1e4))
    assert set(np.unique(age)) == {1.0, 2.0, 3.0, 4.0}


def test_absent_sensors_are_found_by_name():
    walker = TASKS["WalkerStand"].observation
    np.testing.assert_array_equal(
        np.flatnonzero(absent_sensors(SensorConfig(hide=("velocity",)), walker)), np.arange(15, 24)
    )
    np.testing.assert_array_equal(
        np.flatnonzero(absent_sensors(SensorConfig(hide=("height", "velocity")), walker)), np.arange(14, 24)
    )
    # dm_control spells some of these differently, but all are velocities.
    names = {"DogRun": 73 + 3, "SwimmerSwimmer6": 18, "StackerStack2": 8 + 6, "QuadrupedWalk": 3}
    for task, count in names.items():
        assert absent_sensors(SensorConfig(hide=("velocity",)), TASKS[task].observation).sum() == count


def test_a_mask_tells_what_was_seen():
    value, seen = jnp.array([[3.0, 0.0], [0.0, 0.0]]), jnp.array([[True, False], [False, False]])
    np.testing.assert_array_equal(with_mask(SensorConfig(mask_input="none"), value, seen), value)
    np.testing.assert_array_equal(
        with_mask(SensorConfig(mask_input="bit"), value, seen), [[3, 0, 1], [0, 0, 0]]
    )
    np.testing.assert_array_equal(
        with_mask(SensorConfig(mask_input="bits"), value, seen), [[3, 0, 1, 0], [0, 0, 0, 0]]
    )


@pytest.mark.thorough
def test_all_faults_at_once_are_the_same_for_a_seed_alone_and_among_others():
    config = SensorConfig(0.2, 0.1, 0.1, 4.0, "hold", 0.1, 5.0, 0.1, 0.01, 1, 2, ("velocity",), "bits")
    world = TASKS["LQR"].build
    keys = jax.random.split(jax.random.key(1), 2)
    step_keys = jax.random.split(jax.random.key(2), 8)

    def walk(env, state, timestep):
        def advance(state, key):
            state, timestep = env.step(state, jnp.zeros((3, 1)), key)
            return state, timestep.observation

        return jnp.concatenate([timestep.observation[None], jax.lax.scan(advance, state, step_keys)[1]])

    together = SensorEnv(world(3, (0, 1)), config, TASKS["LQR"].observation)
    every = jax.jit(jax.vmap(lambda s, t: walk(together, s, t), in_axes=(together.seed_axis, 0)))(
        *together.reset_seeds(keys)
    )
    assert every.shape == (2, 9, 3, 6)
    assert not every[..., 1].any()
    for i in range(2):
        alone = SensorEnv(world(3, (i,)), config, TASKS["LQR"].observation)
        readings = jax.jit(lambda s, t, alone=alone: walk(alone, s, t))(*alone.reset(keys[i]))
        # The two programs may round the world's arithmetic and scaled draws differently. A different draw
        # would be off by far more.
        np.testing.assert_allclose(readings, every[i], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(readings == 0.0, every[i] == 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sensor_dropout": 1.5}, "sensor_dropout is 1.5, but a probability"),
        ({"noise": -0.1}, "noise is -0.1, but it must be a number that is at least 0"),
        ({"drift": float("inf")}, "drift is inf"),
        ({"delay": -1}, "delay is -1"),
        ({"burst_length": 0.5}, "a burst lasts at least 1 step"),
        ({"dropout": 0.0, "burst_length": 5.0}, "dropout is 0, so there are no bursts"),
        ({"dropout": 0.9, "burst_length": 2.0}, "Use a burst_length of at least 9"),
        ({"stuck_length": 5.0}, "stuck is 0, so no sensor is ever stuck"),
        ({"dropout": 0.0, "dark": "hold"}, "nothing ever blacks out"),
        ({"delay": 900, "delay_jitter": 100}, "an episode of this task has 1000 steps"),
        ({"hide": ("velocities",)}, "no such group of sensors. Did you mean velocity"),
        ({"hide": ("position", "velocity")}, "no sensor is left"),
    ],
)
def test_faults_that_cannot_be_are_refused_before_anything_runs(settings, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig("CartpoleSwingup", sensors=SensorConfig(**settings))


def test_bursts_of_nothing_else_than_darkness_need_no_length():
    check_sensors(SensorConfig(1.0, burst_length=3.0), LAYOUT, 10)


def test_configs_with_and_without_faults_are_read_back():
    plain = RunConfig("WalkerStand")
    # The hash is that from before there were other faults, so that runs keep their folders.
    assert config_hash(plain) == config_hash(from_json({"task": "WalkerStand", "sensors": {"dropout": 0.5}}))
    faulty = dataclasses.replace(
        plain, sensors=SensorConfig(hide=("velocity", "height"), burst_length=5.0, mask_input="bit")
    )
    assert from_json(json.loads(json.dumps(to_json(faulty)))) == faulty
    assert config_hash(faulty) != config_hash(plain)
    assert faulty.observation_size == 25
    assert str(faulty.sensors) == "50% blackout, burst length 5.0, hide velocity+height"
    with pytest.raises(ConfigError, match=r"config.sensors.hide is 'velocity', but it should be a list"):
        from_json({"task": "WalkerStand", "sensors": {"hide": "velocity"}})


def test_exact_states_are_refused_to_what_was_trained_otherwise():
    assert only_blackouts(SensorConfig(0.25), None) == SensorConfig(0.25)
    assert only_blackouts(SensorConfig(0.25, noise=0.1), 0.75) == SensorConfig(0.75)
    with pytest.raises(ConfigError, match=r"trained with 25% blackout, noise 0\.1"):
        only_blackouts(SensorConfig(0.25, noise=0.1), None)
    with pytest.raises(ConfigError, match="reads a mask"):
        only_blackouts(SensorConfig(mask_input="bit"), 0.5)


@pytest.mark.parametrize("dropout", [0.51, 0.6, 0.7, 0.75, 0.8, 0.87, 0.9, 0.95, 0.99])
def test_the_burst_length_that_a_refusal_names_is_accepted(dropout):
    with pytest.raises(ConfigError) as refused:
        RunConfig("CartpoleSwingup", sensors=SensorConfig(dropout, burst_length=1.0))
    named = re.search(r"Use a burst_length of at least ([\d.]+)\.$", str(refused.value))
    accepted = SensorConfig(dropout, burst_length=float(named[1]))
    assert RunConfig("CartpoleSwingup", sensors=accepted).sensors == accepted
