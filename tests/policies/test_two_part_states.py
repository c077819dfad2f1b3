"""Learners with a core that carries more than it shows: everything that is stored must be the whole state."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cut_off import Breaker, numbers

from costate.config.run_config import RunConfig
from costate.envs.base import AbstractActuators, TimeStep
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue
from costate.learners.ppo.batch import make_batch
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.losses import costate_term
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig, begin, collect
from costate.learners.sac.config import SACConfig
from costate.policies.controllers import PolicyController
from costate.policies.cores import step_batch
from costate.policies.cores.cornn import CoRNNConfig
from costate.policies.cores.lstm import LSTMConfig
from costate.policies.heads.scalar import ScalarHeadConfig
from costate.policies.policy import PolicyConfig, build_policy, unroll_policy
from costate.policies.running_stats import empty_stats
from costate.policies.sac_networks import build_critic, read_window
from costate.runs.checkpoint import folders
from costate.trained.alignment.knockout import forgetful
from costate.training.loop import resume, train

H, ROLLOUT = 5, RolloutConfig(environments=3, rollout_length=8)


@functools.cache
def experience():
    """A rollout that continues another by a policy with trained weights; every second state is kept."""
    env = AnalyticEnv(RememberedCue(), ROLLOUT.environments)
    policy = build_policy(PolicyConfig(H, LSTMConfig()), jax.random.key(0), 1, 1)
    policy = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), policy
    )
    run = jax.jit(functools.partial(collect, env, ROLLOUT, 0.99, cut=2))
    state, _, _ = run(policy, empty_stats((1,)), begin(env, policy, jax.random.key(1)), jax.random.key(2))
    _, trajectory, final_value = run(policy, empty_stats((1,)), state, jax.random.key(3))
    return policy, trajectory, final_value


@pytest.mark.thorough
def test_pieces_of_a_rollout_start_from_all_that_was_carried_there():
    """Values of pieces of two steps must equal those of the whole rollout, which needs the cell state too."""
    policy, trajectory, final_value = experience()
    assert trajectory.core_state.shape == (4, 3, 2 * H)
    stats = empty_stats((1,))
    batch = make_batch(
        PPOConfig(bptt_length=2), ROLLOUT.observation_clip, stats, empty_stats(), trajectory, final_value
    )
    values = unroll_policy(policy, batch.rows.observation, batch.core_state, batch.rows.is_first).value
    np.testing.assert_allclose(values, batch.rows.value, atol=1e-6)  # float32 sums in another order
    shown_alone = batch.core_state.at[:, H:].set(0.0)
    assert (
        np.abs(
            unroll_policy(policy, batch.rows.observation, shown_alone, batch.rows.is_first).value
            - batch.rows.value
        ).max()
        > 0.01
    )


def test_the_hidden_state_before_an_observation_is_what_was_shown_then():
    """`costate_hidden="before"` by hand: the cosine between h of the previous state and the target."""
    policy, trajectory, _ = experience()
    unrolled = unroll_policy(policy, trajectory.observation, trajectory.core_state[0], trajectory.is_first)
    memory, weight = unrolled.memory, jnp.full((8, 3), 1.0 / 24)
    found, _ = costate_term(PPOConfig(costate_hidden="before"), policy, unrolled, weight)

    def value(feature, state):
        return policy.critic.value(policy.core.expose(policy.core.step(feature, state)))

    targets = np.asarray(jax.vmap(jax.vmap(jax.grad(value)))(memory.features, memory.previous), float)
    before = np.asarray(memory.previous, float)[..., :H]
    lengths = np.sqrt((before**2).sum(-1) + 1e-8) * np.sqrt((targets**2).sum(-1) + 1e-8)
    assert float(found) == pytest.approx(np.mean(1.0 - (before * targets).sum(-1) / lengths), abs=1e-5)


def test_a_burn_in_hands_on_the_whole_state():
    critic = build_critic(PolicyConfig(H, CoRNNConfig()), ScalarHeadConfig(), 4, jax.random.key(0), 2, 1)
    inputs, is_first = (
        jax.random.normal(jax.random.key(1), (9, 3, 4)),
        jnp.zeros((9, 3), bool).at[4, 1].set(True),
    )
    start = jax.random.normal(jax.random.key(2), (3, 2 * H))
    hiddens = read_window(critic, inputs, is_first, 0, start).hiddens
    np.testing.assert_allclose(
        read_window(critic, inputs, is_first, 6, start).hiddens, hiddens[6:], atol=1e-6
    )


class Robot(AbstractActuators):
    batch_size = 2
    action_size = 1
    action_low = np.full(1, -10.0, np.float32)
    action_high = np.full(1, 10.0, np.float32)


def test_a_controller_shows_h_and_forgets_everything():
    policy, _, _ = experience()
    controller = PolicyController(policy=policy, stats=empty_stats((1,)), observation_clip=None)
    now = TimeStep(
        jnp.array([[0.3], [-0.8]]), jnp.zeros(2), jnp.ones(2), jnp.zeros(2, bool), jnp.zeros(2, bool)
    )
    memory = controller.with_core_state(
        controller.empty_memory(Robot()), jax.random.normal(jax.random.key(4), (2, 2 * H))
    )
    control, after = controller.decide(Robot(), now, memory)
    np.testing.assert_allclose(controller.hidden(after), controller.core_state(after)[:, :H])
    erased = forgetful(controller, (1, 1_000))
    # The first stream forgets before every step and is left with what a core does that carries nothing; the
    # second one does not forget yet.
    forgot, inner = erased.decide(Robot(), now, (memory, jnp.array([1, 1])))
    fresh = step_batch(
        policy.core, controller.feature(now, memory), jnp.zeros((2, 2 * H)), jnp.zeros(2, bool)
    )
    np.testing.assert_allclose(erased.core_state(inner)[0], fresh[0], atol=1e-6)
    np.testing.assert_allclose(forgot[1], control[1], atol=1e-6)
    assert np.abs(forgot[0] - control[0]).max() > 1e-3


LEARNERS = {
    "ppo": {"learner": PPOConfig(epochs=1, minibatches=1, bptt_length=50)},
    "sac": {
        "learner": SACConfig(
            critic="recurrent",
            steps_per_update=100,
            warmup_steps=300,
            head_width=4,
            replay=ReplayConfig(capacity=1200, window=6, burn_in=2, batch=2, start="stored"),
        ),
    },
}


@pytest.mark.thorough
@pytest.mark.parametrize(("learner", "core"), [("ppo", LSTMConfig()), ("sac", LSTMConfig())])
def test_a_run_that_was_cut_off_and_resumed_equals_one_that_was_not(tmp_path, learner, core):
    """Episodes span two iterations, so states are carried over: PPO cuts streams, SAC replays memories."""
    config = RunConfig(
        "LQG",
        steps=4 * 2 * 150,
        checkpoint_every=2,
        policy=PolicyConfig(4, core),
        rollout=RolloutConfig(environments=2, rollout_length=150),
        **LEARNERS[learner],
    )
    whole = train(config, tmp_path / "whole").run
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Breaker(after=3))
    resumed = resume(tmp_path / "cut").run
    assert numbers(resumed) == numbers(whole)
    left, right = (folders(run.checkpoints)[-1] / "state.safetensors" for run in (whole, resumed))
    assert left.read_bytes() == right.read_bytes()
    assert all(np.isfinite(row["losses/costate"]) for row in numbers(whole)[2:])
