"""Soft actor-critic through the same host loop, checkpoints and evaluation as PPO."""

import dataclasses
import gc
import os
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_training import Breaker, numbers, two_iterations

from costate._base.errors import ConfigError, CostateError
from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.envs.worlds.analytic import AnalyticEnv
from costate.envs.worlds.probes import TargetAction
from costate.learners import learner_for
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.controllers import SquashedController
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import TanhReadoutConfig
from costate.policies.running_stats import empty_stats
from costate.policies.sac_networks import build_actor
from costate.runs.checkpoint import folders, load, steps_of
from costate.runs.run_directory import open_run
from costate.trained.evaluation import evaluate
from costate.training.loop import resume, train
from costate.training.programs import state_template

# 7 × 143 = 1001 rows, a whole episode with its last observation.
CYCLE, ROWS, ENVIRONMENTS = 7, 143, 2


@pytest.fixture(scope="module")
def config() -> RunConfig:
    """Four episodes of two environments, the first without learning; the replay forgets the first half.

    One environment always explores.
    """
    return RunConfig(
        "CartpoleSwingup",
        steps=4 * CYCLE * ROWS * ENVIRONMENTS,
        checkpoint_every=CYCLE,
        policy=PolicyConfig(hidden_size=8),
        rollout=RolloutConfig(environments=ENVIRONMENTS, rollout_length=ROWS),
        learner=SACConfig(
            steps_per_update=26,
            warmup_steps=1500,
            explorers=1,
            observation_statistics="running",
            head_width=8,
            replay=ReplayConfig(capacity=2 * 1001 * ENVIRONMENTS, window=12, burn_in=4, batch=4),
        ),
    )


class Weigher(Breaker):
    """Counts the arrays that are alive in the middle and at the end of every cycle, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def progress(self, progression) -> None:
        if progression.row["iteration"] % CYCLE not in (0, 3):
            return
        gc.collect()
        self.bytes.append(sum(array.nbytes for array in jax.live_arrays()))


@pytest.fixture(scope="module")
def weighed(tmp_path_factory, config):
    """An undisturbed run, and how many bytes were alive twice in each of its cycles."""
    weigher = Weigher()
    outcome = train(config, tmp_path_factory.mktemp("sac") / "whole", reporter=weigher)
    assert outcome.finished
    return outcome.run, weigher.bytes


@pytest.fixture(scope="module")
def whole(weighed):
    return weighed[0]


def remembered(run):
    """Return the state and the replay of a run's newest checkpoint."""
    template, replay = learner_for(run.config).detach_replay(state_template(run.config))
    _, state, rows = load(folders(run.checkpoints)[-1], run.config, template, replay)
    return state, rows


@pytest.mark.thorough
def test_a_run_that_was_cut_off_and_resumed_equals_one_that_was_not(tmp_path, config, whole):
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", reporter=Breaker(after=2 * CYCLE + 3))
    assert resume(tmp_path / "run").finished
    resumed = open_run(tmp_path / "run")
    assert numbers(resumed) == numbers(whole)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.tree.map(_raw, remembered(resumed)),
        jax.tree.map(_raw, remembered(whole)),
    )


def test_a_short_run_in_jax_that_was_cut_off_and_resumed_equals_one_that_was_not(tmp_path):
    """One iteration of warm-up and five that learn, with stored memories and a full ring after three.

    The cut falls into an episode.
    """
    replay = ReplayConfig(capacity=120, window=6, burn_in=2, batch=2, start="stored")
    sac = SACConfig(
        steps_per_update=20,
        warmup_steps=40,
        observation_statistics="running",
        explorers=1,
        head_width=4,
        replay=replay,
    )
    config = RunConfig(
        "LQR",
        steps=240,
        checkpoint_every=2,
        policy=PolicyConfig(4),
        rollout=RolloutConfig(2, 20),
        learner=sac,
    )
    whole = train(config, tmp_path / "whole").run
    assert [row["training/updates"] for row in whole.read_metrics()] == [0.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Breaker(after=5))
    outcome = resume(tmp_path / "cut")
    assert outcome.finished
    assert numbers(outcome.run) == numbers(whole)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.tree.map(_raw, remembered(outcome.run)),
        jax.tree.map(_raw, remembered(whole)),
    )


class Interrupter(Breaker):
    """Presses Ctrl-C after an iteration."""

    def progress(self, progression) -> None:
        if progression.row["iteration"] == self.after:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.quick("rows-kept")
@pytest.mark.parametrize("capacity", [120, 1000], ids=["rows-overwritten", "rows-kept"])
def test_ctrl_c_in_the_middle_of_an_episode_ends_with_the_iteration_and_resumes_to_the_same_numbers(
    tmp_path, capacity
):
    """A checkpoint is saved where the running episodes began, which is not where it was due.

    Both rings are full. Those of 60 rows have lost what came after the last checkpoint; those of 500 rows
    still hold it.
    """
    replay = ReplayConfig(capacity=capacity, window=6, burn_in=2, batch=2, start="stored")
    sac = SACConfig(
        steps_per_update=25,
        warmup_steps=100,
        observation_statistics="running",
        explorers=1,
        head_width=4,
        replay=replay,
    )
    config = RunConfig(
        "LQR",
        steps=1600,
        checkpoint_every=16,
        policy=PolicyConfig(4),
        rollout=RolloutConfig(2, 25),
        learner=sac,
    )
    assert (config.cycle, config.iterations) == (8, 32)
    whole = train(config, tmp_path / "whole").run
    stopped = Interrupter(after=27)
    outcome = train(config, tmp_path / "stopped", reporter=stopped)
    assert not outcome.finished
    assert len(outcome.run.read_metrics()) == 27
    assert [steps_of(folder) for folder in folders(outcome.run.checkpoints)] == [0, 800, 1200]
    assert "stopped at step 1,350; saved is step 1,200" in stopped.said[-1]
    assert "the 150 steps in between will be done again" in stopped.said[-1]
    resumed = resume(tmp_path / "stopped")
    assert resumed.finished
    assert numbers(resumed.run) == numbers(whole)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.tree.map(_raw, remembered(resumed.run)),
        jax.tree.map(_raw, remembered(whole)),
    )


def _raw(leaf):
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def test_what_is_logged(whole):
    rows = whole.read_metrics()
    assert len(rows) == 4 * CYCLE
    # 1500 steps of warm-up end within the sixth iteration of 286; nothing is learnt up to then.
    assert ["losses/costate" in row for row in rows] == [i >= 6 for i in range(4 * CYCLE)]
    assert {row["training/updates"] for row in rows} == {0.0, 11.0}
    # Episodes of all environments end together, with the last row of a cycle; their ends are counted with the
    # step that leads there.
    assert [i for i, row in enumerate(rows) if "training/episode_reward" in row] == [
        CYCLE * (i + 1) - 1 for i in range(4)
    ]
    # But not the explorer's.
    assert [row["training/episodes"] for row in rows if "training/episode_reward" in row] == [1.0] * 4
    assert all(row["costate/cosine"] == pytest.approx(1.0 - row["losses/costate"]) for row in rows[6:])


def test_the_replay_on_disk_is_what_the_last_checkpoints_need(whole):
    _, replay = remembered(whole)
    assert int(replay.written) == 4 * 1001
    assert replay.capacity == 2 * 1001
    files = sorted(path.name for path in (whole.checkpoints / "replay").iterdir())
    # Three checkpoints are kept, after two, three and four episodes, and each remembers two of them: one file
    # for every episode.
    assert files == [f"rows_{1001 * i:012d}_{1001 * (i + 1):012d}.safetensors" for i in range(4)]
    # Every episode of the ring starts with a first row and ends with a last one.
    is_first, is_last = np.asarray(replay.rows.is_first), np.asarray(replay.rows.is_last)
    assert is_first.sum(0).tolist() == [2, 2]
    assert is_last.sum(0).tolist() == [2, 2]
    assert is_first[[0, 1001]].all()
    assert is_last[[1000, 2001]].all()


@pytest.mark.thorough
def test_a_checkpoint_whose_replay_is_damaged_is_not_used(whole, tmp_path):
    run = open_run(shutil.copytree(whole.path, tmp_path / "copy"))
    (run.checkpoints / "replay" / "rows_000000003003_000000004004.safetensors").write_bytes(b"nothing")
    reporter = Breaker()
    assert resume(run.path, reporter=reporter).finished
    assert any(
        "rows_000000003003_000000004004.safetensors is truncated or was altered" in line
        for line in reporter.said
    )
    assert numbers(run) == numbers(whole)


def test_it_is_evaluated_without_its_replay(whole, tmp_path):
    run = open_run(shutil.copytree(whole.path, tmp_path / "copy"))
    shutil.rmtree(run.checkpoints / "replay")
    half, _ = evaluate(run, episodes=3)
    dark, _ = evaluate(run, dropout=1.0, episodes=3)
    assert half.returns != dark.returns
    assert evaluate(run, episodes=3)[0] == half


def test_a_controller_does_what_its_actor_would_and_remembers_it():
    env = AnalyticEnv(TargetAction(), 3)
    actor = build_actor(PolicyConfig(hidden_size=4), jax.random.key(0), 1, 1)
    controller = SquashedController(actor, empty_stats((1,)), 10.0)
    _, now = env.reset(jax.random.key(1))
    control, (hidden, before) = controller.decide(env, now, controller.empty_memory(env))
    # By hand: observations are clipped, all are seen without failing sensors, nothing was done before; the
    # readout's mean is squashed and scaled to the bounds.
    seen = np.ones((3, 1))
    inputs = np.concatenate([np.clip(now.observation, -10.0, 10.0), seen, np.zeros((3, 1))], axis=-1).astype(
        np.float32
    )
    features = np.tanh(inputs @ actor.encoder.weights + np.asarray(actor.encoder.bias)[None])
    expected = np.stack([actor.core.step(jnp.asarray(feature), jnp.zeros(4)) for feature in features])
    np.testing.assert_allclose(hidden, expected, rtol=1e-5, atol=1e-6)
    squashed = np.tanh(expected @ actor.readout.weights + np.asarray(actor.readout.bias)[None])
    np.testing.assert_allclose(before, squashed, rtol=1e-5, atol=1e-6)
    low, high = env.action_low, env.action_high
    np.testing.assert_allclose(control, low + (squashed + 1.0) / 2.0 * (high - low), rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_two_seeds_together_are_what_each_is_alone(tmp_path, config, whole):
    from costate.training.loop import train_together

    short = dataclasses.replace(config, steps=2 * CYCLE * ROWS * ENVIRONMENTS)
    configs = [dataclasses.replace(short, seed=seed) for seed in (0, 5)]
    together = train_together(configs, [tmp_path / "0", tmp_path / "5"])
    alone = train(configs[1], tmp_path / "alone", devices=1)
    for row, expected in zip(numbers(together[1].run), numbers(alone.run), strict=True):
        assert row == pytest.approx(expected, rel=2e-2, abs=1e-3)
    assert numbers(together[0].run)[:6] == numbers(whole)[:6]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": SACConfig(steps_per_update=17)}, "which does not divide an iteration of"),
        ({"learner": SACConfig(replay=ReplayConfig(capacity=700))}, "A replay of 700 steps keeps 43 rows"),
        (
            {"learner": SACConfig(replay=ReplayConfig(capacity=1000))},
            "keeps 62 rows of each environment, fewer than the 91",
        ),
        ({"learner": PPOConfig(minibatches=5)}, "cannot be split evenly"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(changes, message):
    base = dataclasses.replace(preset("nc-sac-gru", "WalkerStand"), learner=SACConfig(costate_coef=0.1))
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(base, **changes)


def test_a_critic_without_memory_is_not_given_to_a_task_that_needs_one():
    assert preset("nc-sac-gru", "LQR").learner.critic == "sighted"
    assert preset("nc-sac-gru", "LQG").learner.critic == "recurrent"
    with pytest.raises(
        ConfigError, match="what LQG shows without blackouts does not determine its state either"
    ):
        dataclasses.replace(preset("nc-sac-gru", "LQG"), learner=SACConfig(critic="sighted"))


def test_a_run_that_would_never_learn_is_refused():
    with pytest.raises(
        ConfigError, match="learning would start after 5,824 environment steps of random controls"
    ):
        dataclasses.replace(preset("nc-sac-gru", "WalkerStand"), steps=5000)


def test_a_readout_that_squashes_is_refused():
    with pytest.raises(ConfigError, match="readout tanh squashes its control"):
        dataclasses.replace(
            preset("nc-sac-gru", "WalkerStand"), policy=PolicyConfig(readout=TanhReadoutConfig())
        )


def test_memory_does_not_grow_over_a_run(weighed):
    _, bytes_alive = weighed
    # Once the first checkpoint is written, every episode is like the one before.
    assert len(bytes_alive) == 8
    assert max(bytes_alive[6:]) <= 1.01 * max(bytes_alive[2:4])


def test_a_batch_that_the_devices_cannot_share_is_refused(tmp_path):
    config = dataclasses.replace(
        preset("nc-sac-gru", "CartpoleSwingup"), learner=SACConfig(replay=ReplayConfig(batch=5))
    )
    with pytest.raises(ConfigError, match="5 streams of a minibatch cannot be split evenly over 2"):
        train(config, tmp_path / "run", devices=2)
    assert not (tmp_path / "run").exists()


def test_a_replay_that_does_not_fit_into_memory_is_refused_with_its_size(tmp_path):
    config = dataclasses.replace(
        preset("nc-sac-gru", "WalkerStand"), learner=SACConfig(replay=ReplayConfig(capacity=10**12))
    )
    with pytest.raises(CostateError, match=r"A replay of 1,000,000,000,000 steps takes .* GB"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.quick("nc-sac-ctrnn-stored-sighted")
@pytest.mark.parametrize(
    ("name", "start", "critic"),
    [
        ("sac-gru", "empty", "recurrent"),
        ("nc-sac-ctrnn", "stored", "sighted"),
        pytest.param("nc-sac-gru", "stored", "recurrent", marks=pytest.mark.slow),
        pytest.param("sac-ctrnn", "empty", "sighted", marks=pytest.mark.slow),
    ],
)
def test_every_preset_trains(tmp_path, name, start, critic):
    replay = ReplayConfig(capacity=400, window=12, batch=4, start=start)
    sac = dataclasses.replace(
        preset(name, "FingerTurnHard").learner,
        warmup_steps=0,
        steps_per_update=50,
        head_width=8,
        critic=critic,
        replay=replay,
    )
    config = two_iterations(name, learner=sac)
    rows = train(config, tmp_path / "run").run.read_metrics()
    assert [row["training/updates"] for row in rows] == [0.0, 4.0]
    assert 0.0 <= rows[-1]["losses/costate"] <= 2.0
