"""Test Gymnasium's environments of every autoreset mode against the contract, and the rejected ones."""

import dataclasses
import functools
import shutil
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import costate.envs.engines
from costate._base.errors import ConfigError, SimulationError
from costate.config.presets import preset
from costate.config.run_config import RunConfig, from_json, to_json
from costate.envs import TASKS, register_gymnasium, register_gymnasium_vector
from costate.envs.engines import host
from costate.envs.engines.gymnasium import action_bounds, host_env, observation_layout
from costate.envs.engines.host import HostEnv, episode_seed
from costate.envs.sensors import SensorConfig
from costate.experiments.report import write_report
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.controllers import AbstractController
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders
from costate.trained.evaluation import evaluate, play
from costate.trained.exporting import export
from costate.trained.robustness import measure
from costate.training.loop import resume, train

ACTIONS = Box(-2.0, 2.0, (1,), np.float32)


class Counter(gymnasium.Env):
    """Observes its step count, a number drawn at its start, and the sum of its actions.

    Each sub-environment has its own episode length: an even one terminates, an odd one is truncated.
    The reward is the step's action.
    """

    action_space = ACTIONS
    observation_space = Dict(
        {
            "count": Box(-np.inf, np.inf, (1,)),
            "inner": Dict({"luck": Box(0, 1, ()), "total": Box(-np.inf, np.inf, (1,))}),
        }
    )

    def __init__(self, length: int = 3):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.total, self.luck = 0, 0.0, self.np_random.random()
        return self.shown(), {}

    def step(self, action):
        self.count += 1
        self.total += float(action[0])
        over = self.count == self.length
        return (
            self.shown(),
            float(action[0]),
            over and self.length % 2 == 0,
            over and self.length % 2 == 1,
            {},
        )

    def shown(self):
        inner = {"luck": np.float32(self.luck), "total": np.array([self.total], np.float32)}
        return {"count": np.array([self.count], np.float32), "inner": inner}


def makers(*lengths):
    return [functools.partial(Counter, length) for length in lengths]


def counters(mode=AutoresetMode.NEXT_STEP, kind=SyncVectorEnv, lengths=(3, 2)) -> HostEnv:
    return host_env("Counter", kind(makers(*lengths), autoreset_mode=mode), len(lengths), [7], max(lengths))


def rolled(env, actions, state=None):
    """Take all steps with these actions in one compiled program, then raise any error."""
    state, first = env.reset(jax.random.key(0)) if state is None else state
    program = jax.jit(
        lambda state, actions: jax.lax.scan(lambda s, a: env.step(s, a, jax.random.key(0)), state, actions)
    )
    _, steps = jax.block_until_ready(program(state, jnp.asarray(actions, jnp.float32)))
    env.check()
    return first, steps


ROWS = np.arange(1.0, 9.0)[:, None, None] * np.ones((1, 2, 1)) / 8.0


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(
    "kind",
    [SyncVectorEnv, pytest.param(functools.partial(AsyncVectorEnv, context="spawn"), marks=pytest.mark.slow)],
)
def test_every_mode_gives_last_rows_then_first_rows_and_ignores_the_action_between(mode, kind):
    env = counters(mode, kind)
    first, steps = rolled(env, ROWS)
    env.close()
    # Counted by hand: environment 0 has episodes of 3 steps, environment 1 of 2. Each has one more row, on
    # which the next episode starts.
    np.testing.assert_array_equal(steps.observation[:, 0, 0], [1, 2, 3, 0, 1, 2, 3, 0])
    np.testing.assert_array_equal(steps.observation[:, 1, 0], [1, 2, 0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(steps.is_last[:, 0], [0, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(steps.is_last[:, 1], [0, 1, 0, 0, 1, 0, 0, 1])
    np.testing.assert_array_equal(steps.is_first[:, 0], [0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(steps.is_first[:, 1], [0, 0, 1, 0, 0, 1, 0, 0])
    # A truncated episode keeps its discount, a terminated one does not.
    np.testing.assert_array_equal(steps.discount[:, 0], np.ones(8))
    np.testing.assert_array_equal(steps.discount[:, 1], [1, 0, 1, 1, 0, 1, 1, 0])
    # Ignored actions earn no reward and leave no trace in the new episode: the totals are those of its own
    # actions.
    np.testing.assert_allclose(steps.reward[:, 0] * 8, [1, 2, 3, 0, 5, 6, 7, 0])
    np.testing.assert_allclose(steps.reward[:, 1] * 8, [1, 2, 0, 4, 5, 0, 7, 8])
    np.testing.assert_allclose(steps.observation[:, 0, 2] * 8, [1, 3, 6, 0, 5, 11, 18, 0])
    np.testing.assert_allclose(steps.observation[:, 1, 2] * 8, [1, 3, 0, 4, 9, 0, 7, 15])
    # The number drawn at the start of an episode stays until its last row.
    luck = np.asarray(steps.observation[:, 0, 1])
    assert first.observation[0, 1] == luck[0] == luck[2] != luck[3] == luck[6] != luck[7]


def test_names_of_dictionaries_are_kept_in_order_and_boxes_are_observations():
    assert observation_layout("Counter", Counter.observation_space) == (
        ("count", 1),
        ("inner/luck", 1),
        ("inner/total", 1),
    )
    assert TASKS["gym:Pendulum-v1"].observation == (("observation", 3),)
    assert (TASKS["gym:Pendulum-v1"].action_size, TASKS["gym:Pendulum-v1"].episode_steps) == (1, 200)
    # Gymnasium's own definition: 30 frames a second, where the simulator has a dt of 0.05 s.
    assert TASKS["gym:Pendulum-v1"].control_timestep == 0.05


def test_steps_are_those_of_the_same_environment_in_plain_python():
    env = TASKS["gym:Pendulum-v1"].build(2, [3])
    actions = np.random.default_rng(0).uniform(-2, 2, (205, 2, 1)).astype(np.float32)
    first, steps = rolled(env, actions)
    plain = [gymnasium.make("Pendulum-v1") for _ in range(2)]
    for i, one in enumerate(plain):
        np.testing.assert_array_equal(first.observation[i], one.reset(seed=episode_seed(3, i, 0))[0])
        for t in range(200):
            seen, reward, terminated, truncated, _ = one.step(actions[t, i])
            np.testing.assert_array_equal(steps.observation[t, i], seen)
            np.testing.assert_allclose(steps.reward[t, i], reward, rtol=1e-6)
        assert truncated
        assert not terminated
        assert bool(steps.is_last[199, i])
        assert float(steps.discount[199, i]) == 1.0
        # The next episode continues the environment's own generator.
        np.testing.assert_array_equal(steps.observation[200, i], one.reset()[0])
    env.close()


def test_a_new_environment_is_brought_to_where_another_stands_without_replaying():
    env = counters()
    rolled(env, ROWS)
    # Two episodes of environment 0 have started after that of the reset, and two of environment 1.
    again, steps = rolled(env, ROWS)
    other = counters()
    other.skip_resets(np.array([3, 3]))
    resumed, resumed_steps = rolled(other, ROWS)
    jax.tree.map(np.testing.assert_array_equal, (again, steps), (resumed, resumed_steps))
    other.skip_resets(np.array([4, 3]))
    moved, _ = rolled(other, ROWS)
    assert moved.observation[0, 1] != again.observation[0, 1]
    assert moved.observation[1, 1] == again.observation[1, 1]


def test_seeds_together_see_what_each_sees_alone():
    def build(seeds):
        return host_env("Counter", SyncVectorEnv(makers(*[3, 2] * len(seeds))), 2, seeds, 3)

    together = build([7, 8])
    state, first = together.reset_seeds(jax.random.split(jax.random.key(0), 2))
    actions = jnp.stack([ROWS, -ROWS]).astype(jnp.float32)

    def one(state, actions):
        return jax.lax.scan(lambda s, a: together.step(s, a, jax.random.key(0)), state, actions)[1]

    steps = jax.jit(jax.vmap(one, in_axes=(None, 0)))(state, actions)
    together.check()
    for n, seed in enumerate((7, 8)):
        alone_first, alone = rolled(build([seed]), actions[n])
        np.testing.assert_array_equal(first.observation[n], alone_first.observation)
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf, n=n: leaf[n], steps), alone)


def test_counting_steps_goes_round_and_a_state_cannot_be_stepped_from_twice(monkeypatch):
    expected = rolled(counters(), ROWS)
    # The eight steps pass the end of the count twice.
    monkeypatch.setattr(host, "STEP_MODULUS", 3)
    env = counters()
    jax.tree.map(np.testing.assert_array_equal, rolled(env, ROWS), expected)
    state, _ = env.reset(jax.random.key(0))
    action = jnp.zeros((2, env.action_size))
    env.step(state, action, jax.random.key(0))
    env.check()
    env.step(state, action, jax.random.key(0))
    with pytest.raises(
        SimulationError, match="asked for step 0 but is at step 1: a state was stepped from twice"
    ):
        env.check()


def test_where_the_rollout_is_not_on_a_cpu_an_ordered_callback_does_the_same(monkeypatch):
    expected = rolled(counters(), ROWS)

    class Elsewhere:
        platform = "gpu"

    devices, ordered, used = jax.devices, host.io_callback, []

    def counted(*arguments, **settings):
        used.append(settings)
        return ordered(*arguments, **settings)

    monkeypatch.setattr("costate.envs.engines.host.jax.devices", lambda *arguments: [Elsewhere(), *devices()])
    monkeypatch.setattr(host, "io_callback", counted)
    found = rolled(counters(), ROWS)
    assert used
    assert all(settings["ordered"] for settings in used)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


# Rejected environments.


@pytest.mark.parametrize(
    "space", [Discrete(3), MultiDiscrete([2, 2]), Dict({"a": ACTIONS}), Box(0, 5, (2,), np.int64)]
)
def test_actions_that_are_not_continuous_are_refused(space):
    with pytest.raises(ConfigError, match=r"only continuous controls are supported"):
        action_bounds("Env", space)


def test_actions_without_bounds_are_refused_with_advice():
    with pytest.raises(ConfigError, match=r"actions without bounds.*RescaleAction"):
        action_bounds("Env", Box(-np.inf, 1.0, (2,)))


@pytest.mark.parametrize(
    "space", [Box(0, 255, (8, 8, 3), np.uint8), Box(0, 255, (128,), np.uint8), Box(0.0, 1.0, (4, 4))]
)
def test_images_are_refused(space):
    with pytest.raises(ConfigError, match=r"observes eye as.*looks like an image"):
        observation_layout("Env", Dict({"eye": space}))


def test_other_observations_are_refused_with_advice():
    with pytest.raises(ConfigError, match=r"Box or a Dict of Boxes is supported.*FlattenObservation"):
        observation_layout("Env", MultiBinary(3))


def test_an_unknown_id_is_answered_with_the_nearest_and_a_discrete_one_with_its_reason():
    with pytest.raises(ConfigError, match=r"no environment 'Pendulum-v9'.*Did you mean Pendulum-v1"):
        RunConfig("gym:Pendulum-v9")
    with pytest.raises(ConfigError, match=r"gym:CartPole-v1 has actions Discrete"):
        RunConfig("gym:CartPole-v1")
    with pytest.raises(
        ConfigError, match=r"Unknown family of tasks 'gymn' in 'gymn:Pendulum-v1'. Did you mean gym"
    ):
        RunConfig("gymn:Pendulum-v1")
    with pytest.raises(ConfigError, match=r"asks Gymnasium to import a module"):
        RunConfig("gym:os:Pendulum-v1")


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.delattr(costate.envs.engines, "gymnasium")
    monkeypatch.setitem(sys.modules, "costate.envs.engines.gymnasium", None)
    with pytest.raises(ConfigError, match=r"costate\[gymnasium\]"):
        TASKS["gym:MountainCarContinuous-v0"]


class Broken(Counter):
    """Fails in its second step, in a way that depends on its length.

    Length 3 observes a NaN, 4 has an infinite reward, 5 raises, and 6 grows.
    """

    def step(self, action):
        seen, reward, terminated, truncated, info = super().step(action)
        if self.count == 2:
            match self.length:
                case 3:
                    seen["inner"]["total"][:] = np.nan
                case 4:
                    reward = np.inf
                case 5:
                    raise RuntimeError("the cable came off")
                case 6:
                    seen["count"] = np.zeros(4, np.float32)
        return seen, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (
            3,
            r"returned NaN or Inf: inner/total nan "
            r"\(in environment 1 of seed 7, at step 2 of its episode 1\)",
        ),
        (4, r"reward inf \(in environment 1 of seed 7, at step 2 of its episode 1\)"),
        (5, "raised RuntimeError 1 step after the last reset, in test_gymnasium.py.*the cable came off"),
        (6, "raised ValueError"),
    ],
)
def test_what_nothing_can_be_learnt_from_stops_with_its_environment_and_step(length, message):
    env = host_env(
        "Broken", SyncVectorEnv([functools.partial(Broken, 8), functools.partial(Broken, length)]), 2, [7], 9
    )
    with pytest.raises(SimulationError, match=message):
        rolled(env, ROWS)
    # A reset clears the error.
    env.reset(jax.random.key(0))
    env.check()


def test_a_start_that_is_not_finite_and_an_episode_that_is_too_long_are_named():
    class Unborn(Counter):
        def shown(self):
            return super().shown() | {"count": np.array([np.nan], np.float32)}

    with pytest.raises(
        SimulationError, match=r"returned NaN or Inf: count nan \(in environment 0 of seed 7, at step 0"
    ):
        host_env("Unborn", SyncVectorEnv([Unborn]), 1, [7], 3).reset(jax.random.key(0))
    with pytest.raises(SimulationError, match=r"continues after 2 steps"):
        rolled(host_env("Counter", SyncVectorEnv(makers(3, 2)), 2, [7], 2), ROWS)


class Vector(VectorEnv):
    """Two counters in one array, with one generator. A reset ignores the mask and restarts both."""

    def __init__(self, mode, count=2):
        self.num_envs, self.metadata = count, {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = Box(-np.inf, np.inf, (2,)), ACTIONS
        self.over = np.zeros(count, bool)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(int(seed))
        self.state = self.random.random((self.num_envs, 2))
        self.over[:] = False
        return self.state.copy(), {}

    def step(self, actions):
        self.state = np.where(self.over[:, None], self.random.random((self.num_envs, 2)), self.state + 1.0)
        self.over = ~self.over & (self.state[:, 0] > 3.0)
        return self.state.copy(), np.ones(self.num_envs), self.over.copy(), np.zeros(self.num_envs, bool), {}


def test_a_vector_environment_that_cannot_start_single_ones_anew_is_refused_unless_it_needs_not():
    with pytest.raises(ConfigError, match=r"autoreset_mode SAME_STEP.*restarted others too.*NEXT_STEP"):
        host_env("Vector", Vector(AutoresetMode.SAME_STEP), 2, [7], 9)
    with pytest.raises(
        ConfigError, match=r"does not declare how its environments restart.*autoreset_mode None"
    ):
        host_env("Vector", Vector(None), 2, [7], 9)
    # One that takes a single seed for all environments can still be resumed.
    env, other = (host_env("Vector", Vector(AutoresetMode.NEXT_STEP), 2, [7], 9) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, rolled(env, ROWS), rolled(other, ROWS))
    with pytest.raises(ConfigError, match=r"made 2 environments, but 4 were requested"):
        host_env("Vector", Vector(AutoresetMode.NEXT_STEP), 2, [7, 8], 9)


# Training.


@pytest.fixture(scope="module")
def counter_task():
    """Register a user's own environment as a task while the tests of this file run."""
    register_gymnasium("TestCounter", lambda: Counter(20), episode_steps=10)
    register_gymnasium_vector(
        "TestVector",
        lambda count: SyncVectorEnv(makers(*[10] * count), autoreset_mode=AutoresetMode.SAME_STEP),
        episode_steps=10,
    )
    yield "TestCounter"
    for name in ("TestCounter", "TestVector"):
        TASKS._items.pop(name)


def small(task):
    return RunConfig(
        task,
        steps=3 * 80,
        checkpoint_every=1,
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=4, rollout_length=20),
        learner=PPOConfig(epochs=1, minibatches=2),
    )


def numbers(run):
    return [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "training/sps"}
        for row in run.read_metrics()
    ]


def test_a_registered_environment_is_trained_resumed_and_evaluated(counter_task, tmp_path):
    config = small(counter_task)
    assert from_json(to_json(config)) == config
    whole = train(config, tmp_path / "whole").run
    assert [row["env_steps"] for row in numbers(whole)] == [80, 160, 240]
    cut = tmp_path / "cut"
    shutil.copytree(whole.path, cut)
    for folder in folders(cut / "checkpoints")[-1:]:
        shutil.rmtree(folder)
    resumed = resume(cut).run
    assert numbers(resumed) == numbers(whole)
    result, _ = evaluate(whole, dropout=0.0, episodes=3)
    assert len(result.returns) == 3
    # Ten steps, each with a reward of at most the largest action.
    assert all(abs(value) <= 20.0 for value in result.returns)


@pytest.mark.thorough
def test_soft_actor_critic_trains_on_it_and_the_run_is_measured_exported_and_reported(counter_task, tmp_path):
    config = preset("nc-sac-gru", counter_task)
    replay = dataclasses.replace(config.learner.replay, capacity=800, window=12, batch=4)
    config = dataclasses.replace(
        config,
        steps=400,
        policy=dataclasses.replace(config.policy, hidden_size=6),
        rollout=RolloutConfig(environments=4, rollout_length=50),
        learner=dataclasses.replace(
            config.learner, warmup_steps=200, steps_per_update=50, head_width=8, replay=replay
        ),
    )
    run = train(config, tmp_path / "runs" / "sac").run
    assert [row["env_steps"] for row in numbers(run)] == [200, 400]
    assert np.isfinite(numbers(run)[-1]["losses/q"])
    found = measure(run, (0.0, 0.5), 2, 0, pytest.fail)
    # Ten steps, each with a reward of at most the largest action.
    assert np.abs(found.means).max() <= 20.0
    done = export(run, "numpy", tmp_path / "numpy")
    assert done.parity.holds
    # The environment does not give its time step.
    assert "one for each observation." in (tmp_path / "numpy" / "README.md").read_text()
    page, collection = write_report(tmp_path / "runs")
    assert [entry.config.task for entry in collection.entries] == [counter_task]
    assert counter_task in page.read_text()


class Steady(AbstractController):
    """Return the same action in every step."""

    stats: Any = None

    def feature(self, now, memory):
        raise NotImplementedError

    hidden = core_state = with_core_state = feature

    def empty_memory(self, env):
        return ()

    def decide(self, env, seen, memory):
        return jnp.full((env.batch_size, env.action_size), 1.5), memory


def test_an_evaluation_counts_whole_episodes_and_stops_at_what_is_broken(counter_task):
    # Ten steps with a reward of 1.5 each.
    np.testing.assert_allclose(play(counter_task, Steady(), SensorConfig(0.0), 3, 0), [15.0] * 3)
    np.testing.assert_allclose(play("TestVector", Steady(), SensorConfig(0.0), 3, 0), [15.0] * 3)
