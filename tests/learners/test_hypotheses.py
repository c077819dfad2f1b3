"""Several hypotheses about the co-state (Appendix D) and other targets, against loops and brute force."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue
from costate.learners.ppo.batch import make_batch, take_minibatch
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.losses import total_loss
from costate.learners.ppo.update import TrainState, initial_state, precompute_targets, update
from costate.learners.rollout import RolloutConfig, begin, collect
from costate.learners.sac.config import SACConfig
from costate.policies.cores import CORES, empty_core_state, read_sequence, scan_unroll, step_batch
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.ensemble import build_ensemble, join_members, split_members
from costate.policies.costate_loss import (
    costate_distance,
    costate_scale,
    costate_targets,
    epistemic_spread,
    hidden_targets,
    member_targets,
)
from costate.policies.critics import LinearCritic, ensemble_critic
from costate.policies.policy import PolicyConfig, build_policy, unroll_policy
from costate.policies.readouts.bang_off_bang import BangOffBangReadoutConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig
from costate.policies.readouts.mean_hamiltonian import MeanHamiltonianReadout
from costate.policies.running_stats import empty_stats

T, B, F, H, M = 7, 4, 5, 5, 3
ROLLOUT = RolloutConfig(environments=B, rollout_length=T)


def streams():
    features = jax.random.normal(jax.random.key(0), (T, B, F))
    return features, jnp.zeros((T, B), bool).at[0].set(True).at[3, 1].set(True)


def member(tree, i: int):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.quick("gru")
@pytest.mark.parametrize("name", ["gru", "costate-cell", "frame-stack"])
def test_members_do_what_they_would_do_alone(name):
    """Compare states, gradients and their sum, for a fast core, a plain one and one with a hidden part."""
    core = build_ensemble(CORES[name](), jax.random.key(1), M, F, H)
    features, is_first = streams()
    memory = jax.jit(read_sequence)(core, features, empty_core_state(core, B), is_first)
    cotangents = jax.random.normal(jax.random.key(2), memory.hiddens.shape)
    gradients = jax.jit(lambda core, memory: core.member_gradients(memory, cotangents))(core, memory)
    assert memory.hiddens.shape == (T, B, M * H)
    for i in range(M):
        alone = member(core.members, i)
        hiddens = jax.jit(scan_unroll)(alone, features, empty_core_state(alone, B), is_first)
        np.testing.assert_allclose(memory.hiddens[..., i * H : (i + 1) * H], hiddens, atol=1e-5)
        own = jax.jit(lambda alone: read_sequence(alone, features, empty_core_state(alone, B), is_first))(
            alone
        )
        brute = jax.vjp(
            lambda x, alone=alone, own=own: alone.expose(jax.vmap(jax.vmap(alone.step))(x, own.previous)),
            features,
        )[1]
        np.testing.assert_allclose(
            gradients[:, :, i], brute(cotangents[..., i * H : (i + 1) * H])[0], atol=1e-5
        )
    np.testing.assert_allclose(core.fast_feature_gradients(memory, cotangents), gradients.sum(2), atol=1e-5)
    stepped = step_batch(core, features[0], empty_core_state(core, B), is_first[0])
    np.testing.assert_allclose(core.expose(stepped), memory.hiddens[0], atol=1e-5)
    # Drawn independently.
    assert not np.allclose(memory.hiddens[..., :H], memory.hiddens[..., H : 2 * H])


def test_joining_members_undoes_splitting_them():
    joined = jnp.arange(24.0).reshape(2, 12)
    np.testing.assert_array_equal(split_members(joined, 3)[1], joined[:, 4:8])
    np.testing.assert_array_equal(join_members(split_members(joined, 3)), joined)


@pytest.mark.parametrize(
    ("settings", "cost"),
    [(QuadraticReadoutConfig(), lambda u: 0.5 * u**2), (BangOffBangReadoutConfig(fuel_weight=1.0), np.abs)],
)
def test_the_control_minimises_the_mean_of_the_hamiltonians(settings, cost):
    """(1/m) Σ_i {c(u) + u G h_i} on a grid of controls, for a smooth cost and one with a kink.

    The readout absorbs sign and scale: G h = −W h − b.
    """
    smooth = isinstance(settings, QuadraticReadoutConfig)
    readout = settings.build(jax.random.key(3), H, 1)
    readout = eqx.tree_at(lambda r: r.weights, readout, jax.random.normal(jax.random.key(4), (H, 1)))
    mean = MeanHamiltonianReadout(readout, M)
    grid = np.linspace(-8.0, 8.0, 16001) if smooth else np.linspace(-1.0, 1.0, 2001)
    for key in jax.random.split(jax.random.key(5), 20):
        hidden = jax.random.normal(key, (M * H,))
        pulls = np.asarray(hidden.reshape(M, H) @ readout.weights[:, 0])
        hamiltonians = cost(grid)[None] - grid[None] * pulls[:, None]
        best = grid[hamiltonians.mean(0).argmin()]
        assert float(mean.control(jnp.zeros(H), hidden)[0]) == pytest.approx(
            best, abs=1e-3 if smooth else 1e-6
        )


def test_the_value_is_the_mean_and_slopes_are_gradients():
    critic = ensemble_critic(jax.random.key(0), M, H)
    hidden = jax.random.normal(jax.random.key(1), (2, M * H))
    parts = np.asarray(hidden).reshape(2, M, H)
    np.testing.assert_allclose(
        critic.values(hidden), np.einsum("bmh,mh->bm", parts, critic.weights), rtol=1e-5
    )
    np.testing.assert_allclose(
        critic.value(hidden), np.einsum("bmh,mh->b", parts, critic.weights) / M, rtol=1e-5
    )
    # The gradient of the sum of all values, because no critic sees another's part.
    np.testing.assert_allclose(
        critic.slopes(hidden), jax.grad(lambda h: critic.values(h).sum())(hidden), rtol=1e-6
    )


def test_the_spread_by_hand():
    """Two hypotheses at (3, 4) and (−3, −4) lie 5 from their mean."""
    assert float(epistemic_spread(jnp.array([[3.0, 4.0], [-3.0, -4.0]]))) == pytest.approx(5.0)
    assert float(epistemic_spread(jnp.ones((4, 2)))) == 0.0


def ensemble_run(config: PPOConfig, ensemble: int = M, **policy):
    """A policy, the state of its training, and a short rollout with blackouts on a task that needs memory."""
    env = SensorEnv(AnalyticEnv(RememberedCue(), B), SensorConfig(0.3))
    built = build_policy(PolicyConfig(hidden_size=H, ensemble=ensemble, **policy), jax.random.key(0), 1, 1)
    state = initial_state(config, built, jax.random.key(1), 1)
    start = begin(env, built, jax.random.key(2))
    _, trajectory, final_value = jax.jit(
        lambda p, s: collect(env, ROLLOUT, 0.99, p, empty_stats((1,)), s, jax.random.key(3))
    )(built, start)
    return state, trajectory, final_value


def losses_of(config: PPOConfig, state: TrainState, trajectory, final_value, policy=None):
    precomputed = precompute_targets(config, 10.0, state, trajectory, jax.random.key(5))
    batch = make_batch(
        config, 10.0, state.observation_stats, empty_stats(), trajectory, final_value, precomputed
    )
    whole = take_minibatch(batch, jnp.arange(B))
    return total_loss(state.policy if policy is None else policy, whole, config), whole, precomputed


@pytest.mark.thorough
def test_every_critic_learns_from_its_own_share_of_the_environments():
    """Compare with a loop over critics, each of which ignores environments that it does not learn from."""
    config = PPOConfig(bootstrap=0.5, costate_coef=0.0, entropy_coef=0.0, clip_epsilon=0.05)
    state, trajectory, final_value = ensemble_run(config)
    (_, metrics), batch, precomputed = losses_of(config, state, trajectory, final_value)
    learns = np.asarray(precomputed.members)
    assert 0 < learns.sum() < learns.size
    hiddens = unroll_policy(
        state.policy, batch.rows.observation, batch.core_state, batch.rows.is_first
    ).memory.hiddens
    values = np.asarray(state.policy.critic.values(hiddens))
    valid, target = np.asarray(trajectory.valid), np.asarray(batch.rows.value_target)
    expected = []
    for i in range(M):
        rows = valid & learns[None, :, i]
        # The policy has not moved, so that nothing is clipped.
        expected.append(0.5 * np.square(values[..., i] - target)[rows].mean() if rows.any() else 0.0)
    assert float(metrics["losses/value"]) == pytest.approx(np.mean(expected), rel=1e-5)

    def bias_gradient(batch):
        return jax.grad(lambda p: total_loss(p, batch, config)[0])(state.policy).critic.bias

    moved = dataclasses.replace(batch.rows, value_target=batch.rows.value_target.at[:, 0].add(10.0))
    changed = np.asarray(bias_gradient(batch) != bias_gradient(dataclasses.replace(batch, rows=moved)))
    np.testing.assert_array_equal(changed, learns[0])


@pytest.mark.thorough
def test_the_costate_loss_of_an_ensemble_is_the_mean_over_hypotheses():
    config = PPOConfig()
    state, trajectory, final_value = ensemble_run(config)
    (_, metrics), batch, _ = losses_of(config, state, trajectory, final_value)
    policy = state.policy
    memory = unroll_policy(policy, batch.rows.observation, batch.core_state, batch.rows.is_first).memory
    distances, targets = [], []
    for i in range(M):
        core, critic = (
            member(policy.core.members, i),
            LinearCritic(policy.critic.weights[i], policy.critic.bias[i]),
        )
        own = read_sequence(core, memory.features, empty_core_state(core, B), batch.rows.is_first)
        targets.append(costate_targets(core, critic, own))
        distances.append(costate_distance(own.hiddens, targets[-1]))
    assert float(metrics["losses/costate"]) == pytest.approx(
        float((jnp.stack(distances).mean(0) * batch.rows.weight).sum()), rel=1e-5
    )
    spread = np.sqrt(np.square(np.stack(targets) - np.mean(targets, 0)).sum(-1).mean(0))
    assert float(metrics["costate/spread"]) == pytest.approx(
        float((spread * batch.rows.weight).sum()), rel=1e-4
    )
    together = dataclasses.replace(config, costate_average="ensemble")
    (_, metrics), _, _ = losses_of(together, state, trajectory, final_value)
    mean = jnp.stack(targets).mean(0)
    hiddens = memory.hiddens.reshape(T, B, M, H)
    expected = costate_distance(hiddens, jnp.broadcast_to(mean[:, :, None], hiddens.shape)).mean(-1)
    assert float(metrics["losses/costate"]) == pytest.approx(
        float((expected * batch.rows.weight).sum()), rel=1e-5
    )


def test_the_costate_loss_does_not_move_its_targets():
    """With everything but the targets frozen there is no gradient left."""
    state, _, _ = ensemble_run(PPOConfig())
    features, is_first = streams()
    core, critic = state.policy.core, state.policy.critic

    def targets(core, critic):
        return member_targets(
            core, critic, read_sequence(core, features, empty_core_state(core, B), is_first)
        ).sum()

    assert all(not leaf.any() for leaf in jax.tree.leaves(jax.grad(targets, argnums=(0, 1))(core, critic)))


def test_disagreement_is_rewarded_where_it_leads():
    config = PPOConfig(spread_bonus=2.0)
    state, trajectory, final_value = ensemble_run(config)
    (_, _), batch, precomputed = losses_of(config, state, trajectory, final_value)
    memory = unroll_policy(state.policy, batch.rows.observation, batch.core_state, batch.rows.is_first).memory
    spread = 2.0 * epistemic_spread(member_targets(state.policy.core, state.policy.critic, memory))
    np.testing.assert_allclose(precomputed.bonus[:-1], spread[1:], rtol=1e-5)
    rich = dataclasses.replace(trajectory, reward=trajectory.reward + precomputed.bonus)
    plain = dataclasses.replace(config, reward_scaling="none")
    a = make_batch(plain, 10.0, state.observation_stats, empty_stats(), trajectory, final_value, precomputed)
    b = make_batch(plain, 10.0, state.observation_stats, empty_stats(), rich, final_value)
    np.testing.assert_allclose(a.rows.advantage, b.rows.advantage, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_targets_of_a_slow_critic_stay_while_the_policy_moves():
    config = PPOConfig(slow_critic=0.25)
    state, trajectory, final_value = ensemble_run(config, ensemble=1)
    assert state.slow is state.policy
    (_, at_start), _, _ = losses_of(config, state, trajectory, final_value)
    (_, plain), _, _ = losses_of(PPOConfig(), state, trajectory, final_value)
    # At the start the two are one.
    assert float(at_start["losses/costate"]) == pytest.approx(float(plain["losses/costate"]), rel=1e-5)
    after, _ = jax.jit(lambda s: update(config, ROLLOUT, 5, s, trajectory, final_value))(state)
    for slow, old, new in zip(
        *(jax.tree.leaves(tree) for tree in (after.slow, state.policy, after.policy)), strict=True
    ):
        np.testing.assert_allclose(slow, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-7)
    moved = dataclasses.replace(state, policy=after.policy)
    _, batch, _ = losses_of(config, moved, trajectory, final_value)
    memory = unroll_policy(state.policy, batch.rows.observation, batch.core_state, batch.rows.is_first).memory
    assert batch.rows.target.by_memory is None
    np.testing.assert_allclose(
        batch.rows.target.by_feature[:, :, 0],
        costate_targets(state.policy.core, state.policy.critic, memory),
        rtol=1e-4,
        atol=1e-6,
    )


def test_the_gradient_by_memory_is_that_of_one_step():
    """∂V/∂h_{t−1} by automatic differentiation of a single step of every stream."""
    policy = build_policy(PolicyConfig(hidden_size=H, core=CTRNNConfig()), jax.random.key(0), 2, 1)
    features, is_first = streams()
    memory = read_sequence(policy.core, features, empty_core_state(policy.core, B), is_first)
    found = hidden_targets(policy.core, policy.critic, memory)
    for t, b in ((0, 0), (3, 1), (6, 2)):
        slope = jax.grad(lambda h, t=t, b=b: policy.critic.value(policy.core.step(features[t, b], h)))(
            memory.previous[t, b]
        )
        np.testing.assert_allclose(found[t, b, 0], slope, atol=1e-6)
    config = PPOConfig(costate_gradient="both")
    state, trajectory, final_value = ensemble_run(config, ensemble=1)
    (_, both), batch, _ = losses_of(config, state, trajectory, final_value)
    memory = unroll_policy(state.policy, batch.rows.observation, batch.core_state, batch.rows.is_first).memory
    core, critic = state.policy.core, state.policy.critic
    parts = [costate_targets(core, critic, memory), hidden_targets(core, critic, memory)[:, :, 0]]
    expected = (
        sum(float((costate_distance(memory.hiddens, part) * batch.rows.weight).sum()) for part in parts) / 2
    )
    assert float(both["losses/costate"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("slow", "average"), [(0.25, "own"), (None, "ensemble")])
def test_both_gradients_come_from_the_critic_that_is_asked_and_are_averaged_alike(slow, average):
    """Compute ∂V_i/∂ỹ_t and ∂V_i/∂h_{t−1} step by step.

    The critic is the slow one or the policy's own; hypotheses are taken one by one or as their mean.
    """
    config = PPOConfig(costate_gradient="both", slow_critic=slow, costate_average=average)
    state, trajectory, final_value = ensemble_run(config)
    if slow is not None:
        # As after some iterations: the slow average is another policy than the one that is learnt.
        moved = [
            leaf + 0.3 * jax.random.normal(jax.random.key(i), leaf.shape)
            for i, leaf in enumerate(jax.tree.leaves(state.policy))
        ]
        state = dataclasses.replace(state, slow=jax.tree.unflatten(jax.tree.structure(state.policy), moved))
    (_, found), batch, _ = losses_of(config, state, trajectory, final_value)
    target_policy = state.policy if slow is None else state.slow

    @jax.jit
    def slopes(core, weights, feature, before):
        return jax.grad(lambda feature, before: core.step(feature, before) @ weights, argnums=(0, 1))(
            feature, before
        )

    by_feature, by_memory, compared = (np.zeros((T, B, M, H)) for _ in range(3))
    for i in range(M):
        core, own = (member(policy.core.members, i) for policy in (target_policy, state.policy))
        after, own_after = jnp.zeros((B, H)), jnp.zeros((B, H))
        for t in range(T):
            before, own_before = (
                jnp.where(batch.rows.is_first[t][:, None], 0.0, hidden) for hidden in (after, own_after)
            )
            features = target_policy.encoder.encode(batch.rows.observation[t])
            for b in range(B):
                by_feature[t, b, i], by_memory[t, b, i] = slopes(
                    core, target_policy.critic.weights[i], features[b], before[b]
                )
            after = jax.vmap(core.step)(features, before)
            own_after = jax.vmap(own.step)(state.policy.encoder.encode(batch.rows.observation[t]), own_before)
            compared[t, :, i] = own_after
    distance = np.zeros((T, B, M))
    for targets in (by_feature, by_memory):
        aims = (
            np.broadcast_to(targets.mean(2, keepdims=True), targets.shape)
            if average == "ensemble"
            else targets
        )
        # ε under both roots, as the loss is defined.
        lengths = np.sqrt(np.square(compared).sum(-1) + 1e-8) * np.sqrt(np.square(aims).sum(-1) + 1e-8)
        distance += 0.5 * (1.0 - (compared * aims).sum(-1) / lengths)
    expected = (distance.mean(-1) * np.asarray(batch.rows.weight)).sum()
    # float32, in another order.
    assert float(found["losses/costate"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.thorough
def test_features_of_another_width_are_compared_through_a_learned_map():
    config = PPOConfig()
    state, trajectory, final_value = ensemble_run(config, ensemble=1, feature_size=3)
    assert state.policy.costate_map.shape == (H, 3)
    (_, metrics), batch, _ = losses_of(config, state, trajectory, final_value)
    memory = unroll_policy(state.policy, batch.rows.observation, batch.core_state, batch.rows.is_first).memory
    target = costate_targets(state.policy.core, state.policy.critic, memory)
    expected = (costate_distance(memory.hiddens @ state.policy.costate_map, target) * batch.rows.weight).sum()
    assert float(metrics["losses/costate"]) == pytest.approx(float(expected), rel=1e-5)
    gradient = jax.grad(lambda p: total_loss(p, batch, config)[0])(state.policy)
    assert float(jnp.abs(gradient.costate_map).max()) > 0.0


def test_the_weight_of_the_costate_loss_warms_up():
    config = PPOConfig(costate_warmup=0.5)
    assert [float(costate_scale(config, 8, jnp.asarray(i))) for i in (0, 1, 2, 4, 7)] == [
        0.0,
        0.25,
        0.5,
        1.0,
        1.0,
    ]
    assert costate_scale(PPOConfig(), 8, jnp.asarray(0)) == 1.0
    state, trajectory, final_value = ensemble_run(config, ensemble=1)
    (_, _), batch, _ = losses_of(config, state, trajectory, final_value)
    cold, none = (
        jax.grad(lambda p, c=c, w=w: total_loss(p, batch, c, costate_scale=w)[0])(state.policy)
        for c, w in ((config, 0.0), (PPOConfig(0.0), 1.0))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), cold, none)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": {"ensemble": 0}}, "ensemble is 0, but a policy needs at least 1"),
        ({"policy": {"feature_size": 0}}, "feature_size is 0"),
        ({"ppo": {"bootstrap": 0.5}}, "bootstrap was given, but it needs several hypotheses"),
        ({"ppo": {"spread_bonus": 0.1}}, "spread_bonus was given"),
        ({"ppo": {"costate_average": "ensemble"}}, "costate_average ensemble was given"),
        ({"ppo": {"bootstrap": 0.0}, "policy": {"ensemble": 2}}, "bootstrap is 0.0, but it is a share"),
        (
            {"ppo": {"bootstrap": 1.5}, "policy": {"ensemble": 2}},
            "bootstrap is 1.5, but it is a share: above 0, and at most 1",
        ),
        # A minibatch has 8 of the 32 environments: 0.92⁸ = 0.51, and a share of 1 − 0.5^(1/8) = 0.083 makes
        # it a half.
        (
            {"ppo": {"bootstrap": 0.08}, "policy": {"ensemble": 2}},
            "bootstrap is 0.08, but a minibatch has 8 streams, so a critic would learn nothing from "
            "51% of the minibatches. Use at least 0.083",
        ),
        (
            {"ppo": {"spread_bonus": -1.0}, "policy": {"ensemble": 2}},
            "spread_bonus is -1.0, but a reward for exploring cannot be negative",
        ),
        ({"ppo": {"costate_warmup": 1.5}}, "costate_warmup is 1.5, but it is a share: between 0 and 1"),
        (
            {"ppo": {"costate_coef": 0.0, "slow_critic": 0.1}},
            "costate_coef is 0, but slow_critic is 0.1, which would have no effect",
        ),
        (
            {"ppo": {"costate_coef": 0.0, "costate_average": "ensemble"}, "policy": {"ensemble": 2}},
            "costate_coef is 0, but costate_average is ensemble, which would have no effect. Give "
            "--costate-coef 0.05, or leave it out",
        ),
    ],
)
def test_contradictions_are_refused_before_anything_is_compiled(changes, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(
            "CartpoleSwingup",
            policy=PolicyConfig(**changes.get("policy", {})),
            learner=PPOConfig(**changes.get("ppo", {})),
        )


def test_what_a_core_does_not_show_has_no_gradient_of_its_width():
    with pytest.raises(ConfigError, match="the core frame-stack carries more than its hidden state"):
        RunConfig(
            "CartpoleSwingup",
            policy=PolicyConfig(core=CORES["frame-stack"]()),
            learner=PPOConfig(costate_gradient="both"),
        )
    with pytest.raises(ConfigError, match="need PPO"):
        RunConfig("CartpoleSwingup", policy=PolicyConfig(ensemble=2), learner=SACConfig())


@pytest.mark.parametrize("minibatches", [4, 8, 16])
def test_the_share_that_a_refusal_names_is_accepted(minibatches):
    """With 32 environments a minibatch has 8, 4 or 2 streams."""

    def config(bootstrap: float) -> RunConfig:
        learner = PPOConfig(bootstrap=bootstrap, minibatches=minibatches)
        return RunConfig("CartpoleSwingup", policy=PolicyConfig(ensemble=3), learner=learner)

    with pytest.raises(ConfigError) as refused:
        config(0.01)
    named = re.search(r"Use at least ([\d.]+), fewer", str(refused.value))
    assert config(float(named[1])).learner.bootstrap == float(named[1])
