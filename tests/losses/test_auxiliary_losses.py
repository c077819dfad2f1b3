"""Auxiliary losses on the memory: their inputs, their place in the loss, and the fate of their weights."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cut_off import Breaker, numbers
from safetensors.numpy import load_file

from costate._base.errors import ConfigError
from costate.config.naming import variant_name
from costate.config.run_config import RunConfig, config_hash, from_json, to_json
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import RememberedCue
from costate.learners.ppo.batch import make_batch
from costate.learners.ppo.config import PPOConfig
from costate.learners.ppo.losses import evidence_of, total_loss
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig, begin, explore, roll
from costate.learners.sac.config import SACConfig
from costate.losses import AbstractAuxiliaryLoss, Evidence, WeightedLoss, auxiliary_terms, build_losses
from costate.losses.belief import Belief, BeliefConfig
from costate.policies.costate_loss import costate_targets
from costate.policies.policy import PolicyConfig, build_policy, unroll_policy
from costate.policies.running_stats import RunningStats, empty_stats, normalise
from costate.runs.checkpoint import folders
from costate.runs.run_directory import Run
from costate.trained.exporting import export
from costate.training.loop import resume, train

STEPS, STREAMS, HIDDEN, SENSORS = 5, 4, 6, 3
ROLLOUT = RolloutConfig(environments=8, rollout_length=20)
BELIEF = (BeliefConfig(coef=0.5),)
# Forty steps in each of four environments, two iterations that learn and, off-policy, one before them.
PPO_RUN = RunConfig(
    "LQR",
    steps=320,
    checkpoint_every=1,
    policy=PolicyConfig(hidden_size=8),
    rollout=RolloutConfig(environments=4, rollout_length=20),
    learner=PPOConfig(epochs=2, minibatches=2),
    losses=BELIEF,
)
SAC = SACConfig(
    steps_per_update=20,
    warmup_steps=80,
    head_width=8,
    replay=ReplayConfig(capacity=160, window=8, burn_in=4, batch=4),
)
SAC_RUN = dataclasses.replace(PPO_RUN, learner=SAC)
RUNS = pytest.mark.parametrize("config", [PPO_RUN, SAC_RUN], ids=["ppo", "sac"])


def random_evidence(seed: int = 0) -> Evidence:
    draws = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(draws.normal(size=(STEPS, STREAMS, *shape)), jnp.float32)

    seen = jnp.asarray(draws.random((STEPS, STREAMS)) < 0.5)
    return Evidence(
        normal(HIDDEN), normal(HIDDEN), normal(SENSORS), normal(SENSORS), normal(HIDDEN), seen, ~seen
    )


def test_belief_is_half_the_mean_square_error_of_a_linear_prediction_and_so_are_its_gradients():
    """Compare with NumPy, and with ∂/∂W = Σ_t w_t h_t eᵀ / O and ∂/∂h_t = w_t W e / O for the error e."""
    evidence, draws = random_evidence(), np.random.default_rng(1)
    weight = draws.random((STEPS, STREAMS)).astype(np.float32)
    belief = Belief(*(jnp.asarray(draws.normal(size=s), jnp.float32) for s in ((HIDDEN, SENSORS), SENSORS)))

    def total(belief: Belief, hidden: jax.Array) -> jax.Array:
        losses = (WeightedLoss(belief, "belief", 0.25),)
        return auxiliary_terms(losses, dataclasses.replace(evidence, hidden=hidden), jnp.asarray(weight))[0]

    loss, (of_belief, of_hidden) = jax.value_and_grad(total, argnums=(0, 1))(belief, evidence.hidden)
    h, y = np.asarray(evidence.hidden, float), np.asarray(evidence.complete, float)
    error = h @ np.asarray(belief.weights, float) + np.asarray(belief.bias, float) - y
    assert float(loss) == pytest.approx(0.25 * 0.5 * (weight * (error**2).mean(-1)).sum(), rel=1e-5)
    pull = 0.25 * weight[..., None] * error / SENSORS
    np.testing.assert_allclose(of_belief.weights, np.einsum("tsh,tso->ho", h, pull), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_belief.bias, pull.sum((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_hidden, pull @ np.asarray(belief.weights, float).T, rtol=1e-4, atol=1e-5)


def test_the_minimiser_is_the_conditional_mean():
    """With a memory of one bit that tells two means apart, least squares finds both means."""
    draws = np.random.default_rng(2)
    bit = draws.random((400, STREAMS)) < 0.5
    truth = np.where(bit[..., None], [2.0, -1.0, 0.5], [-1.0, 3.0, 0.0]) + draws.normal(
        size=(400, STREAMS, SENSORS)
    )
    hidden = np.stack([bit, ~bit], -1).astype(float)
    # The normal equations of the loss, solved by NumPy; at the solution its gradient vanishes.
    flat, wanted = hidden.reshape(-1, 2), truth.reshape(-1, SENSORS)
    weights = np.linalg.lstsq(flat, wanted, rcond=None)[0]
    np.testing.assert_allclose(weights, [truth[bit].mean(0), truth[~bit].mean(0)], rtol=1e-10)
    with jax.enable_x64(True):
        zeros = jnp.zeros((400, STREAMS, SENSORS))
        evidence = Evidence(
            jnp.asarray(hidden), zeros, zeros, jnp.asarray(truth), zeros, *map(jnp.asarray, (bit, ~bit))
        )
        belief = Belief(jnp.asarray(weights), jnp.zeros(SENSORS))
        gradient = jax.grad(lambda belief: belief.distance(evidence).mean())(belief)
    np.testing.assert_allclose(gradient.weights, 0.0, atol=1e-12)


@functools.cache
def minibatch():
    """Rows of a real rollout half in the dark, normalised by statistics that are not trivial."""
    env = SensorEnv(AnalyticEnv(RememberedCue(), 8), SensorConfig(0.5))
    policy = build_policy(PolicyConfig(hidden_size=HIDDEN), jax.random.key(0), 1, 1)
    stats = RunningStats(jnp.full(1, 0.3), jnp.full(1, 2.0), jnp.ones(()))
    start = begin(env, policy, jax.random.key(1))
    exploration = explore(env, ROLLOUT, jax.random.key(2))
    program = jax.jit(functools.partial(roll, env, ROLLOUT, 0.99, None, with_truth=True))
    _, trajectory, final_value = program(policy, stats, start, exploration)
    batch = make_batch(PPOConfig(), 10.0, stats, empty_stats(), trajectory, final_value)
    return policy, stats, trajectory, batch


def test_a_loss_is_given_what_working_sensors_would_have_shown_and_the_critics_gradient():
    policy, stats, trajectory, batch = minibatch()
    unrolled = unroll_policy(policy, batch.rows.observation, batch.core_state, batch.rows.is_first)
    evidence = evidence_of(PPOConfig(), policy, unrolled, batch.rows)
    dark = ~np.asarray(evidence.seen)
    assert 0.3 < dark.mean() < 0.7
    # The cue is shown in the first step of an episode and is ±1 there; later the world itself shows zeros,
    # which are seen.
    assert (np.asarray(trajectory.observation)[~dark] == 0.0).any(), "zeros that are true readings"
    np.testing.assert_array_equal(np.where(dark[..., None], 0.0, trajectory.complete), trajectory.observation)
    np.testing.assert_allclose(evidence.complete, normalise(stats, trajectory.complete, 10.0), rtol=1e-6)
    expected = costate_targets(policy.core, policy.critic, unrolled.memory)
    np.testing.assert_allclose(evidence.costate, expected, rtol=1e-6)
    np.testing.assert_allclose(evidence.hidden, unrolled.memory.hiddens)


class Spy(AbstractAuxiliaryLoss):
    """Depends on everything that could leak a gradient where none belongs."""

    scale: jax.Array

    def distance(self, evidence: Evidence) -> jax.Array:
        constant = evidence.costate.sum(-1) + evidence.complete.sum(-1)
        return self.scale * (evidence.hidden.sum(-1) + evidence.features.sum(-1)) * constant


def test_an_auxiliary_loss_adds_exactly_its_weighted_mean_and_moves_neither_readout_nor_critic():
    policy, _, _, batch = minibatch()
    losses = (WeightedLoss(Spy(jnp.asarray(0.7)), "spy", 0.1),)
    (plain, _), base = jax.value_and_grad(total_loss, has_aux=True)(policy, batch, PPOConfig())
    both = functools.partial(total_loss, losses=losses)
    (loss, metrics), gradient = jax.value_and_grad(both, has_aux=True)(policy, batch, PPOConfig())
    assert float(loss - plain) == pytest.approx(0.1 * float(metrics["losses/spy"]), abs=1e-6)
    # The total's gradient in readout and critic is that without the loss: λ̂ is a constant in it.
    for part in ("readout", "critic"):
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7),
            getattr(gradient, part),
            getattr(base, part),
        )
    assert not np.allclose(gradient.encoder.weights, base.encoder.weights)


def test_weights_of_losses_are_drawn_beside_those_of_the_networks():
    """A run with a loss starts from the networks of a run without it."""
    built = build_losses(BELIEF, jax.random.key(0), HIDDEN, HIDDEN, SENSORS)
    assert [(each.name, each.coef) for each in built] == [("belief", 0.5)]
    assert built[0].loss.weights.shape == (HIDDEN, SENSORS)


@RUNS
def test_a_run_with_a_loss_starts_from_the_weights_of_one_without(tmp_path, config):
    from costate.learners import learner_for

    plain = dataclasses.replace(config, losses=())
    seed = jnp.uint32(0)
    one, other = (jax.jit(learner_for(each).fresh)(seed) for each in (config, plain))
    insights = [learner_for(each).insight(state) for each, state in ((config, one), (plain, other))]
    for left, right in zip(*map(jax.tree.leaves, insights), strict=True):
        np.testing.assert_array_equal(left, right)


@RUNS
def test_a_run_trains_saves_and_resumes_its_losses_and_leaves_them_out_of_what_acts(tmp_path, config):
    whole = train(config, tmp_path / "whole").run
    assert all(np.isfinite(row["losses/belief"]) for row in whole.read_metrics()[-1:])
    saved = load_file(folders(whole.checkpoints)[-1] / "state.safetensors")
    mine = [name for name in saved if "losses" in name]
    assert any(name.endswith("losses[0].loss.weights") and "opt" not in name for name in mine), mine
    first = load_file(folders(whole.checkpoints)[0] / "state.safetensors")
    weights = next(name for name in mine if name.endswith("losses[0].loss.weights") and "opt" not in name)
    assert not np.array_equal(first[weights], saved[weights]), "they are trained"

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Breaker(after=config.iterations - 1))
    again = resume(tmp_path / "cut").run
    assert numbers(again) == numbers(whole)
    for name, tensor in load_file(folders(again.checkpoints)[-1] / "state.safetensors").items():
        np.testing.assert_array_equal(tensor, saved[name], err_msg=name)

    for folder in folders(whole.milestones):
        assert not [name for name in load_file(folder / "state.safetensors") if "losses" in name]
    bundle = export(whole, "bundle", tmp_path / "out").files[0]
    assert "losses" not in _names_in(bundle)


def _names_in(bundle: pathlib.Path) -> str:
    from costate.deploy.bundle import read

    return " ".join(read(bundle).tensors)


@RUNS
def test_configs_with_losses_are_stored_named_and_hashed(config):
    assert from_json(to_json(config)) == config
    plain = dataclasses.replace(config, losses=())
    assert config_hash(config) != config_hash(plain)
    assert "losses" not in variant_name(config)
    assert "belief-coef=0.5" in variant_name(RunConfig("LQR", losses=BELIEF))
    assert to_json(config)["losses"] == [{"name": "belief", "coef": 0.5}]


@pytest.mark.parametrize("coef", [-0.1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(coef):
    with pytest.raises(ConfigError, match="coef of an auxiliary loss is"):
        BeliefConfig(coef)


def run_metrics(run: Run) -> list[float]:
    return [
        row["losses/belief"] for row in run.read_metrics() if np.isfinite(row.get("losses/belief", np.nan))
    ]


@pytest.mark.thorough
@RUNS
def test_predicting_the_observation_is_learnt(tmp_path, config):
    """On a pendulum, over 60 iterations; the first and the last twenty are two cycles of episodes each."""
    own = {
        "ppo": {"learning_rate_decay": "none"},
        "sac": {"replay": ReplayConfig(capacity=4000, window=8, burn_in=4, batch=16)},
    }[config.learner_name]
    longer = dataclasses.replace(
        config,
        task="TorquePendulum",
        steps=80 * 60,
        checkpoint_every=60,
        evaluate_every=0,
        losses=(BeliefConfig(coef=1.0),),
        learner=dataclasses.replace(config.learner, learning_rate=3e-3, **own),
    )
    found = run_metrics(train(longer, tmp_path / "run").run)
    # The error of the best constant prediction stays where it is; random weights begin above it.
    assert np.mean(found[-20:]) < 0.5 * np.mean(found[:20])
