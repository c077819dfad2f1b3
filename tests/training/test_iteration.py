"""An iteration as one program equals one as two programs, and is used if environments are written in JAX."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.envs.factory import make_env
from costate.learners import learner_for
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.learners.sharding import SEEDS, DeviceGrid
from costate.policies.policy import PolicyConfig
from costate.training.console import PlainReporter
from costate.training.iteration import OneProgram, TwoPrograms, compile_iteration
from costate.training.loop import train
from costate.training.programs import compile_programs, fresh_states, start_episodes

ONE = DeviceGrid(1, 1)
SEEDS_HERE = (3, 4)
SMALL = RunConfig(
    "LQR",
    steps=2 * 4 * 20,
    policy=PolicyConfig(hidden_size=8),
    rollout=RolloutConfig(environments=4, rollout_length=20),
    learner=PPOConfig(epochs=2, minibatches=2),
)
OFF_POLICY = dataclasses.replace(
    preset("nc-sac-gru", "LQR"),
    policy=dataclasses.replace(preset("nc-sac-gru", "LQR").policy, hidden_size=8),
    rollout=SMALL.rollout,
    learner=SACConfig(
        warmup_steps=0, head_width=8, replay=ReplayConfig(capacity=160, window=6, burn_in=2, batch=4)
    ),
)


def begin(config, seeds=SEEDS_HERE):
    env = make_env(config.task, config.rollout.environments, seeds, config.sensors)
    states = fresh_states(config, seeds)
    return env, states, start_episodes(config, env, states)


def _core(acting):
    """Return the core that acts, of either learner."""
    return (acting.policy if hasattr(acting, "policy") else acting.actor).core


def let_pass(rollout_state, experience):
    pass


def assert_close(ours, theirs):
    def compare(a, b):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=2e-3, atol=2e-5)

    jax.tree.map(compare, ours, theirs)


@pytest.mark.quick("ppo")
@pytest.mark.parametrize("config", [SMALL, OFF_POLICY], ids=["ppo", "sac"])
def test_one_program_computes_what_two_compute(config):
    """Two iterations of two seeds: what was collected, what was learnt and what is logged.

    Rounding differs, because other operations are merged.
    """
    env, states, start = begin(config)
    one = compile_iteration(config, env, states, start, ONE)
    two = TwoPrograms(compile_programs(config, env, states, start, ONE))
    assert isinstance(one, OneProgram)
    position, position_two = (one.place(states), start), (two.place(states), start)
    for _ in range(2):
        ours, theirs = one.run(*position, let_pass), two.run(*position_two, let_pass)
        assert_close(ours[:4], theirs[:4])
        assert set(theirs.seconds) == {"time/collect", "time/update"}
        position, position_two = (ours.states, ours.rollout_state), (theirs.states, theirs.rollout_state)
    # Both have learnt: a comparison of two programs that do nothing would succeed as well.
    before, after = (
        np.asarray(_core(learner_for(config).acting(each)).recurrent_weights)
        for each in (states, ours.states)
    )
    assert (before != after).mean() > 0.9


def test_nothing_is_learnt_from_what_does_not_pass_the_check():
    """The learner has seen it by then, but its arguments are as they were."""
    env, states, start = begin(SMALL)
    iteration = compile_iteration(SMALL, env, states, start, ONE)
    states = iteration.place(states)
    copies = [np.array(leaf) for leaf in jax.tree.leaves(states.policy)]

    def refuse(rollout_state, experience):
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        iteration.run(states, start, refuse)
    for copy, leaf in zip(copies, jax.tree.leaves(states.policy), strict=True):
        np.testing.assert_array_equal(copy, leaf)


@pytest.mark.thorough
def test_environments_that_several_devices_cannot_share_are_collected_apart():
    env, states, start = begin(SMALL)
    grid = DeviceGrid(1, 2)
    assert isinstance(compile_iteration(SMALL, env, states, start, grid), TwoPrograms)
    assert not env.share(NamedSharding(grid.mesh(), PartitionSpec(SEEDS)).mesh)


@pytest.mark.thorough
def test_simulators_outside_of_jax_are_collected_apart():
    config = dataclasses.replace(SMALL, task="PendulumSwingup")
    env, states, start = begin(config, (0,))
    try:
        assert isinstance(compile_iteration(config, env, states, start, ONE), TwoPrograms)
    finally:
        env.close()


def test_a_run_says_of_how_many_programs_it_is_and_logs_what_can_be_timed(tmp_path, capsys):
    run = train(SMALL, tmp_path / "run", devices=1, reporter=PlainReporter()).run
    assert "physics and learner are one program and run on 1 of 2 devices" in capsys.readouterr().out
    for row in run.read_metrics():
        assert row["time/iteration"] > 0.0
        assert "time/collect" not in row
