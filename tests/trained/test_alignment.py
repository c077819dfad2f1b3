"""Alignment of memory and co-state, on synthetic episodes and on a run with exact states."""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.cli import main
from costate.config.presets import preset
from costate.control.linearisation import Linearisation
from costate.envs.base import AbstractActuators, TimeStep
from costate.learners import learner_for
from costate.learners.rollout import RolloutConfig
from costate.policies.cores import read_sequence
from costate.policies.costate_loss import costate_targets
from costate.policies.running_stats import normalise
from costate.trained.alignment.align import align, write_alignment
from costate.trained.alignment.comparison import (
    CRITIC,
    MEMORY,
    OBSERVATION,
    SHUFFLED,
    STATE,
    UNTRAINED,
    compare,
)
from costate.trained.alignment.knockout import forgetful
from costate.trained.alignment.moments import Moments, follow, hamiltonian_slopes, moments_of, untrained_like
from costate.trained.alignment.result import AlignmentSettings, read_alignment, table
from costate.trained.recording import record_episode
from costate.trained.trained import load_state
from costate.trained.true_costates import true_costates
from costate.training.loop import train


def made_up(
    rng: np.random.Generator, turn: np.ndarray, control: np.ndarray | None = None, rows: int = 120
) -> Moments:
    """Return an episode whose memory is the rotated true gradient, and whose other sources are noise."""
    gradient, slopes = rng.normal(size=(rows, 3)), rng.normal(size=(rows, 2))
    noise = lambda width: rng.normal(size=(rows, width))  # noqa: E731
    untrained = noise(8)
    return Moments(
        names=("a", "b", "c"),
        states=noise(3),
        observations=noise(3),
        seen=rng.random(rows) > 0.5,
        hiddens=gradient @ turn,
        untrained=untrained,
        compared=gradient @ turn,
        compared_untrained=untrained,
        critic=2.0 * gradient @ turn,
        gradients={"closed loop": gradient},
        implied=3.0 * gradient,
        implied_untrained=noise(3),
        controls=-np.sign(slopes) if control is None else np.broadcast_to(control, slopes.shape),
        slopes={"closed loop": slopes},
        low=-np.ones(2),
        high=np.ones(2),
        times=np.arange(rows),
        untrusted=0,
    )


def test_a_memory_that_is_the_costate_is_found_and_its_controls_are_not():
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(3, 8))
    found = compare([made_up(rng, turn) for _ in range(6)])
    assert (found.episodes, found.held_out, found.moments) == (6, 2, 720)
    by = found.likeness["closed loop"]
    assert by[MEMORY].probe_r2 > 0.999
    assert by[MEMORY].cca > 0.99
    for control in (UNTRAINED, SHUFFLED, OBSERVATION, STATE):
        assert by[control].probe_r2 < 0.05
        assert by[control].cca < 0.35
        assert by[control].cka < by[MEMORY].cka
    # Twice the memory points where the memory does; the implied gradient, where the true one does.
    assert found.critic_cosine[MEMORY] == pytest.approx(1.0)
    assert abs(found.critic_cosine[SHUFFLED]) < 0.1
    assert found.implied_cosine["closed loop"][MEMORY] == pytest.approx(1.0)
    assert abs(found.implied_cosine["closed loop"][UNTRAINED]) < 0.1
    assert found.likeness[CRITIC][MEMORY].probe_r2 > 0.999


@pytest.mark.parametrize(("control", "gap"), [(None, 0.0), (0.0, 0.5)])
def test_the_gap_is_zero_for_the_minimiser_and_a_half_for_doing_nothing(control, gap):
    rng = np.random.default_rng(1)
    turn = rng.normal(size=(3, 8))
    found = compare([made_up(rng, turn, control) for _ in range(3)]).gaps["closed loop"]
    assert found.policy == pytest.approx(gap, abs=1e-12)
    assert found.shuffled == pytest.approx(0.5, abs=0.05)


def test_slopes_of_the_hamiltonian_are_those_of_cost_and_costate():
    rng = np.random.default_rng(2)
    steps = Linearisation(
        state_jacobians=rng.normal(size=(4, 3, 3)),
        control_jacobians=rng.normal(size=(4, 3, 2)),
        cost_gradients=rng.normal(size=(4, 3)),
        control_cost_gradients=rng.normal(size=(4, 2)),
        observation_jacobians=rng.normal(size=(4, 1, 3)),
        next_observation_by_state=rng.normal(size=(4, 1, 3)),
        next_observation_by_control=rng.normal(size=(4, 1, 2)),
    )
    costate = rng.normal(size=(4, 3))
    found = hamiltonian_slopes(steps, costate, 0.9)
    assert found.shape == (3, 2)
    for t in range(3):
        np.testing.assert_allclose(
            found[t], steps.control_cost_gradients[t] + 0.9 * steps.control_jacobians[t].T @ costate[t + 1]
        )


@pytest.fixture(scope="module", params=["nc-gru", "nc-sac-gru"])
def trained(request, tmp_path_factory):
    """One short run of each learner on a task with exact states."""
    config = preset(request.param, "LQR")
    small = {"policy": dataclasses.replace(config.policy, hidden_size=6), "rollout": RolloutConfig(4, 50)}
    if config.learner_name == "sac":
        replay = dataclasses.replace(config.learner.replay, capacity=800, window=12, batch=4)
        small["learner"] = dataclasses.replace(
            config.learner, warmup_steps=200, steps_per_update=50, head_width=8, replay=replay
        )
    config = dataclasses.replace(config, steps=600, checkpoint_every=1, **small)
    return train(config, tmp_path_factory.mktemp(request.param) / "run").run


SETTINGS = AlignmentSettings(episodes=3, steps=25, horizon=10, knockout_episodes=2)


@pytest.mark.quick("nc-gru")
def test_a_run_is_compared_and_written(trained):
    said: list[str] = []
    told: list[float] = []
    found = align(trained, SETTINGS, pytest.fail, said.append, lambda share, what: told.append(share))
    assert len(said) == 4
    assert told == sorted(told)
    assert told[0] == 0.0
    assert found.knockout is not None
    assert set(found.knockout.means) == set(found.knockout.errors) == {1, 2, 4, 8, 16, 32, 64}
    files = write_alignment(trained, found)
    assert {file.name for file in files} == {
        "alignment.json",
        "over_time.png",
        "phase.png",
        "likeness.png",
        "knockout.png",
    }
    assert all(file.stat().st_size > 1000 for file in files)
    document = read_alignment(trained.path)
    assert document is not None
    assert document["components"] == ["position", "velocity"]
    assert document["moments"] == 75
    for measure in ("cos(h", "cos((∂ỹ/∂x)ᵀh", "probe R²", "CCA", "CKA", "Hamiltonian gap", "mean return"):
        assert any(verdict.startswith(measure) for verdict in document["verdicts"])
    json.dumps(document, allow_nan=True)
    text = table(found)
    assert "predicted from" in text
    assert "never" in text


def test_the_command_ends_with_what_its_numbers_say(trained, capsys):
    settings = ("--episodes", "2", "--steps", "20", "--horizon", "5", "--knockout-episodes", "0")
    assert main(["align", str(trained.path), *settings]) == 0
    verdicts = (
        capsys.readouterr().out.split("what this says about the hidden state of this run")[1].splitlines()
    )
    assert verdicts[1].startswith("  cos(h, ∂V/∂ỹ): ")
    document = read_alignment(trained.path)
    assert [line.strip() for line in verdicts[1:-1]] == document["verdicts"]


@pytest.mark.quick("nc-gru")
def test_the_critics_costates_are_those_of_the_loss(trained):
    """Compare PPO's with the loss's own function; all are finite and of the memory's width."""
    algorithm = learner_for(trained.config)
    _, state = load_state(trained, None, pytest.fail)
    episode = record_episode("LQR", algorithm.controller(state), seed=5, dropout=0.5, steps=20)
    from costate.trained.alignment.moments import critic_costates

    found = critic_costates(algorithm, state, episode)
    assert found.shape == (20, 6)
    assert np.isfinite(found).all()
    if trained.config.learner_name == "ppo":
        shown = jnp.asarray(episode.observations * episode.seen[:, None], jnp.float32)[:, None]
        features = state.policy.encoder.encode(normalise(state.observation_stats, shown, 10.0))
        memory = read_sequence(state.policy.core, features, jnp.zeros((1, 6)), (jnp.arange(20) == 0)[:, None])
        np.testing.assert_allclose(memory.hiddens[:, 0], episode.hiddens, atol=1e-5)
        np.testing.assert_allclose(
            found, costate_targets(state.policy.core, state.policy.critic, memory)[:, 0], atol=1e-6
        )


@pytest.mark.quick("nc-gru")
def test_an_untrained_policy_reads_the_same_episode(trained):
    algorithm = learner_for(trained.config)
    _, state = load_state(trained, None, pytest.fail)
    episode = record_episode("LQR", algorithm.controller(state), seed=5, dropout=0.5, steps=12)
    # The policy itself, made to follow its own episode, remembers what it remembered then.
    np.testing.assert_allclose(
        follow(episode.controller, episode.stage.robot, episode), episode.hiddens, atol=1e-9
    )
    other = untrained_like(algorithm, episode.controller)
    assert np.abs(follow(other, episode.stage.robot, episode) - episode.hiddens).max() > 0.01
    np.testing.assert_array_equal(other.stats.mean, episode.controller.stats.mean)


def test_features_of_another_width_are_compared_through_the_learned_map():
    """cos(h M, ∂V/∂ỹ) and the gradient implied by h M, by hand, as the loss compares them.

    An untrained policy has a map M of its own.
    """
    config = preset("nc-gru", "LQR")
    algorithm = learner_for(
        dataclasses.replace(config, policy=dataclasses.replace(config.policy, hidden_size=6, feature_size=4))
    )
    state, other = (jax.jit(algorithm.fresh)(jnp.uint32(seed)) for seed in (config.seed, config.seed + 1))
    episodes = [
        record_episode("LQR", algorithm.controller(state), seed=seed, dropout=0.5, steps=14)
        for seed in (0, 1)
    ]
    costates = [true_costates(episode, 0.99, horizon=2) for episode in episodes]
    moments = [
        moments_of(algorithm, state, episode, of, 0.99, 12)
        for episode, of in zip(episodes, costates, strict=True)
    ]
    found = compare(moments)
    for name, hiddens, its_map in (
        (MEMORY, [each.hiddens for each in moments], state.policy.costate_map),
        (UNTRAINED, [each.untrained for each in moments], other.policy.costate_map),
    ):
        rows, critic = (
            np.concatenate(hiddens) @ np.asarray(its_map, float),
            np.concatenate([each.critic for each in moments]),
        )
        expected = [
            row @ target / np.linalg.norm(row) / np.linalg.norm(target)
            for row, target in zip(rows, critic, strict=True)
        ]
        assert rows.shape == critic.shape == (24, 4)
        assert found.critic_cosine[name] == pytest.approx(np.mean(expected), abs=1e-9)
    # Of one moment: ỹ = tanh(W y + b) with nothing to normalise by yet, so ∂ỹ/∂y = (1 − ỹ²) W.
    encoder, t = state.policy.encoder, 3
    weights, y = np.asarray(encoder.weights, float), episodes[0].observations[t]
    slope = 1.0 - np.tanh(y @ weights + np.asarray(encoder.bias, float)) ** 2
    by_observation = weights @ (
        slope * (episodes[0].hiddens[t] @ np.asarray(state.policy.costate_map, float))
    )
    np.testing.assert_allclose(
        moments[0].implied[t],
        costates[0].linearisation.observation_jacobians[t].T @ by_observation,
        rtol=1e-6,
    )


class Robot(AbstractActuators):
    batch_size = 2
    action_size = 1
    action_low = np.full(1, -10.0, np.float32)
    action_high = np.full(1, 10.0, np.float32)


@pytest.mark.quick("nc-gru")
def test_memory_is_erased_every_so_many_steps_and_with_every_episode(trained):
    _, state = load_state(trained, None, pytest.fail)
    controller = learner_for(trained.config).controller(state)
    erased, robot = forgetful(controller, (3, 2)), Robot()
    rng = np.random.default_rng(0)
    first = np.zeros((8, 2), bool)
    first[0], first[4, 1] = True, True
    memory, plain, count = erased.empty_memory(robot), controller.empty_memory(robot), np.zeros(2, int)
    for t in range(8):
        now = TimeStep(
            jnp.asarray(rng.normal(size=(2, 3)), jnp.float32),
            jnp.zeros(2),
            jnp.ones(2),
            jnp.asarray(first[t]),
            jnp.zeros(2, bool),
        )
        count = np.where(first[t], 0, count)
        hidden = np.where((count % np.array([3, 2]) == 0)[:, None], 0.0, controller.hidden(plain))
        expected, plain = controller.decide(
            robot, now, controller.with_core_state(plain, jnp.asarray(hidden))
        )
        control, memory = erased.decide(robot, now, memory)
        np.testing.assert_allclose(control, expected, atol=1e-6)
        np.testing.assert_allclose(erased.hidden(memory), controller.hidden(plain), atol=1e-6)
        count += 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 1}, "episodes is 1"),
        ({"steps": 1}, "steps is 1"),
        ({"horizon": 0}, "horizon is 0"),
        ({"knockout_episodes": -1}, "knockout_episodes is -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        AlignmentSettings(**settings)


@pytest.mark.quick("nc-gru")
def test_periods_that_cannot_work_are_refused(trained):
    _, state = load_state(trained, None, pytest.fail)
    with pytest.raises(ConfigError, match="every 0 steps"):
        forgetful(learner_for(trained.config).controller(state), (4, 0))


@pytest.mark.quick("nc-gru")
def test_episodes_that_all_end_early_are_said_to(trained, monkeypatch):
    short = types.SimpleNamespace(rewards=np.zeros(3))
    monkeypatch.setattr(
        "costate.trained.alignment.align.record_episode", lambda *arguments, **settings: short
    )
    said: list[str] = []
    with pytest.raises(ConfigError, match="Only 0 of 2 episodes are longer than the 8 compared steps"):
        align(
            trained,
            AlignmentSettings(episodes=2, steps=8, horizon=2, knockout_episodes=0),
            print,
            said.append,
        )
    assert said[0] == "episode 1: ended by itself after 3 steps, left out"


def doubted(costates, steps):
    """Return the same co-states with a disagreement of one half at some steps."""
    disagreement = costates.closed_loop_disagreement.copy()
    disagreement[steps] = 0.5
    return dataclasses.replace(costates, closed_loop_disagreement=disagreement)


@pytest.mark.quick("nc-gru")
def test_moments_whose_costates_cannot_be_trusted_are_left_out(trained):
    algorithm = learner_for(trained.config)
    _, state = load_state(trained, None, pytest.fail)
    episode = record_episode("LQR", algorithm.controller(state), seed=5, dropout=0.5, steps=12)
    costates = true_costates(episode, 0.99, horizon=2)
    assert costates.trusted.all()
    assert costates.doubt is None
    whole, some = (
        moments_of(algorithm, state, episode, each, 0.99, 8) for each in (costates, doubted(costates, [0, 4]))
    )
    # Nor the step before one, whose Hamiltonian has it in it.
    kept = [1, 2, 5, 6, 7]
    assert (whole.untrusted, some.untrusted) == (0, 3)
    np.testing.assert_array_equal(some.times, kept)
    for name in ("states", "hiddens", "seen", "compared", "critic", "implied", "controls"):
        np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[kept])
    np.testing.assert_array_equal(some.gradients["open loop"], whole.gradients["open loop"][kept])
    np.testing.assert_array_equal(some.slopes["closed loop"], whole.slopes["closed loop"][kept])


@pytest.mark.quick("nc-gru")
def test_moments_that_are_left_out_are_said_and_counted(trained, monkeypatch):
    monkeypatch.setattr(
        "costate.trained.alignment.align.true_costates",
        lambda *arguments, **settings: doubted(true_costates(*arguments, **settings), [3]),
    )
    warned: list[str] = []
    settings = AlignmentSettings(episodes=2, steps=8, horizon=2, knockout_episodes=0)
    found = align(trained, settings, warned.append, lambda text: None)
    assert len(warned) == 2
    assert warned[0].startswith(
        "episode 1: The co-states of 1 of 10 steps are not to be trusted: they change by more than 1% of "
        "themselves (at most by 50%)"
    )
    assert warned[0].endswith("2 of 8 moments are left out.")
    write_alignment(trained, found)
    document = read_alignment(trained.path)
    assert (document["moments"], document["untrusted_moments"]) == (12, 4)
    assert "left out: 4 of 16 moments, whose co-states cannot be trusted" in table(found)
    # Where hardly any is left, nothing is compared.
    monkeypatch.setattr(
        "costate.trained.alignment.align.true_costates",
        lambda *a, **k: doubted(true_costates(*a, **k), slice(0, 8)),
    )
    with pytest.raises(
        ConfigError,
        match="Only 0 of 2 episodes are longer than the 8 compared steps and have trusted co-states",
    ):
        align(trained, settings, warned.append, lambda text: None)


def test_a_damaged_result_is_none(tmp_path):
    assert read_alignment(tmp_path) is None
    (tmp_path / "alignment").mkdir()
    (tmp_path / "alignment" / "alignment.json").write_text("{")
    assert read_alignment(tmp_path) is None
