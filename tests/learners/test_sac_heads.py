"""Soft actor-critic with any number of heads, and with a third party's heads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.learners.replay import ReplayConfig, ReplayRows, append, empty_replay
from costate.learners.sac.config import SACConfig
from costate.learners.sac.update import SACState, initial_sac_state, sac_update
from costate.policies.heads import AbstractHead, HeadConfig
from costate.policies.heads.scalar import ScalarHeadConfig
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import RunningStats

OBSERVED, CONTROLS, HIDDEN, STEPS, STREAMS = 3, 2, 4, 40, 2
CONFIG = SACConfig(
    head_width=5,
    critic="recurrent",
    replay=ReplayConfig(capacity=STEPS * STREAMS, window=6, burn_in=2, batch=4),
)


def state_with(head: HeadConfig) -> SACState:
    stats = RunningStats(jnp.zeros(OBSERVED), jnp.ones(OBSERVED), jnp.array(100.0))
    config = dataclasses.replace(CONFIG, critic_head=head)
    return initial_sac_state(config, PolicyConfig(HIDDEN), jax.random.key(0), stats, CONTROLS)


def updated(state: SACState, head: HeadConfig) -> tuple[SACState, dict[str, jax.Array]]:
    random = np.random.default_rng(0)
    flags = np.zeros((STEPS, STREAMS), bool)
    rows = ReplayRows(
        observation=jnp.asarray(random.normal(size=(STEPS, STREAMS, OBSERVED)), jnp.float32),
        action=jnp.asarray(random.uniform(-1.0, 1.0, (STEPS, STREAMS, CONTROLS)), jnp.float32),
        reward=jnp.asarray(random.normal(size=(STEPS, STREAMS)), jnp.float32),
        discount=jnp.ones((STEPS, STREAMS)),
        is_first=jnp.asarray(flags),
        is_last=jnp.asarray(flags),
        seen=jnp.asarray(~flags),
    )
    config = dataclasses.replace(CONFIG, critic_head=head)
    replay = append(empty_replay(STEPS, STREAMS, OBSERVED, CONTROLS), rows)
    return jax.jit(lambda s, r: sac_update(config, 10.0, s, r, jax.random.key(1)))(state, replay)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_lowest_of_any_number_of_heads_counts_and_all_of_them_learn(count):
    head = ScalarHeadConfig(count=count)
    state = state_with(head)
    critic = state.networks.critic
    hidden, action = jnp.ones((7, HIDDEN)), jnp.linspace(-1.0, 1.0, 14).reshape(7, CONTROLS)
    values = np.stack(critic.values(hidden, action))
    assert values.shape == (count, 7)
    assert len(np.unique(values)) == values.size, "each head has weights of its own"
    np.testing.assert_array_equal(critic.lowest(hidden, action), values.min(axis=0))

    after, metrics = updated(state, head)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), critic.heads, after.networks.critic.heads)
    assert min(jax.tree.leaves(moved)) > 0.0
    assert all(np.isfinite(value) for value in metrics.values())


class Constant(AbstractHead):
    """Q = c everywhere, learnt by absolute error: the loss of one head is |c − backup|."""

    constant: jax.Array

    def predict(self, hidden, action):
        return jnp.broadcast_to(self.constant, hidden.shape[:-1])

    def value(self, prediction):
        return prediction

    def target(self, backup):
        return backup

    def loss(self, prediction, target):
        return jnp.abs(prediction - target)


@dataclasses.dataclass(frozen=True)
class ConstantConfig(HeadConfig):
    start: float = 500.0

    @property
    def outputs(self) -> int:
        return 1

    def build(self, key, inputs, width):
        assert inputs == HIDDEN + CONTROLS
        return Constant(jnp.asarray(self.start))


def test_a_head_of_somebody_else_is_learnt_by_its_own_loss():
    head = ConstantConfig(count=3)
    after, metrics = updated(state_with(head), head)
    # γ = 0.99, rewards of about 0 and an entropy bonus of about 0.1 make backups of about 495: each head is
    # too high by 5, so its loss is 5, and Adam's first step is down by the learning rate.
    assert float(metrics["losses/value"]) == pytest.approx(3 * 5.0, abs=3.0)
    for each in after.networks.critic.heads:
        np.testing.assert_allclose(each.constant, 500.0 - 1e-3, rtol=1e-7)
