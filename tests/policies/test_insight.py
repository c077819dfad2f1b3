"""Insight into a policy: values and co-states by their definitions for every learner; milestones of a run."""

import dataclasses
import functools
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from costate._base.errors import CheckpointError
from costate.config.run_config import RunConfig
from costate.envs.base import AbstractActuators, TimeStep
from costate.learners import learner_for
from costate.learners.base import Sequence, State
from costate.learners.sac.config import SACConfig
from costate.policies.controllers import AbstractController
from costate.policies.cores.cornn import CoRNNConfig
from costate.policies.insight import AbstractInsight, Look
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import open_run
from costate.trained.evaluation import evaluate
from costate.trained.trained import load_controller, load_insight, shown_steps
from costate.training.group import is_milestone
from costate.training.loop import resume, train

STEPS, STREAMS = 6, 3


class Robot(AbstractActuators):
    """Two controls."""

    batch_size = STREAMS
    action_size = 1
    action_low = np.array([-1.0])
    action_high = np.array([1.0])


def config_of(**changes: object) -> RunConfig:
    base = RunConfig(task="CartpoleSwingup", policy=PolicyConfig(hidden_size=8))
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


CONFIGS = {
    "gru": config_of(),
    "two-part": config_of(policy=PolicyConfig(hidden_size=8, core=CoRNNConfig())),
    "mapped": config_of(policy=PolicyConfig(hidden_size=8, feature_size=5)),
    "ensemble": config_of(policy=PolicyConfig(hidden_size=8, ensemble=3)),
    "sac-sighted": config_of(learner=SACConfig(warmup_steps=0)),
    "sac-recurrent": config_of(learner=SACConfig(warmup_steps=0, critic="recurrent")),
}


@functools.cache
def fresh(kind: str) -> State:
    """Training before its first iteration, compiled once."""
    return jax.jit(learner_for(CONFIGS[kind]).fresh)(jnp.uint32(0))


def played(insight: AbstractInsight, size: int) -> tuple[list[Look], list[TimeStep], list[object]]:
    """Steps with blackouts and an episode that ends in the middle."""
    draws = np.random.default_rng(0)
    looks, shown, memories, memory = [], [], [], insight.empty_memory(Robot())
    look = eqx.filter_jit(insight.look)
    for t in range(STEPS):
        complete = draws.normal(size=(STREAMS, size)).astype(np.float32)
        seen = draws.random((STREAMS, 1)) < 0.6
        first = np.array([t == 0, t in (0, 3), t == 0])
        shown_now = jnp.asarray(complete * seen)
        now = TimeStep(
            shown_now,
            jnp.zeros(STREAMS),
            jnp.ones(STREAMS),
            jnp.asarray(first),
            jnp.zeros(STREAMS, bool),
            jnp.asarray(complete),
            jnp.asarray(seen[:, 0]),
        )
        memories.append(memory)
        inside, memory = look(Robot(), now, memory)
        looks.append(inside)
        shown.append(now)
    return looks, shown, memories


def stack(rows: list[object]) -> object:
    """Steps as one tree with time as the first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def in_double(tree: object) -> object:
    return jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)) if eqx.is_inexact_array(leaf) else leaf, tree
    )


def scattered(insight: AbstractInsight) -> AbstractInsight:
    """Return the same with random weights, since many start at zero; variances stay positive."""
    draws = np.random.default_rng(1)

    def move(path: tuple[object, ...], leaf: object) -> object:
        if not eqx.is_inexact_array(leaf):
            return leaf
        moved = leaf + 0.3 * draws.normal(size=leaf.shape).astype(np.float32)
        return jnp.abs(moved) if "variance" in jax.tree_util.keystr(path) else moved

    return jax.tree_util.tree_map_with_path(move, insight)


@pytest.mark.quick("gru", "sac-recurrent")
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_control_is_the_controllers(kind: str) -> None:
    insight = scattered(learner_for(CONFIGS[kind]).insight(fresh(kind)))
    looks, shown, _ = played(insight, 5)
    controller: AbstractController = insight.controller
    memory = controller.empty_memory(Robot())
    for look, now in zip(looks, shown, strict=True):
        control, memory = controller.decide(Robot(), now, memory)
        np.testing.assert_allclose(look.control, control, atol=1e-6)


@pytest.mark.quick("gru", "sac-sighted")
@pytest.mark.parametrize("kind", CONFIGS)
def test_costates_are_those_that_the_loss_compares_with(kind: str) -> None:
    """By the whole sequence at once, as `costate align` computes them."""
    algorithm = learner_for(CONFIGS[kind])
    state = fresh(kind)
    insight = algorithm.insight(state)
    looks, shown, memories = played(insight, 5)
    stacked = stack(shown)
    own = stack(memories if CONFIGS[kind].learner_name == "ppo" else [memory[0] for memory in memories])
    sequence = Sequence(
        stacked.observation,
        stacked.complete,
        own,
        jnp.stack([look.hidden for look in looks]),
        stacked.is_first,
        stacked.seen,
    )
    expected = algorithm.critic_costates(state, sequence)
    costates = np.stack([look.costate for look in looks])
    assert np.abs(costates).max() > 1e-5
    np.testing.assert_allclose(costates, expected, atol=1e-6)


@pytest.mark.quick("gru", "sac-sighted")
@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "sac-recurrent"])
def test_sensors_get_the_derivative_of_the_value_by_what_they_show(kind: str) -> None:
    """By finite differences in the observation, moved by a share of each sensor's standard deviation.

    Of soft actor-critic where only the critic sees what moves: the control must not react, because the
    co-state is at a given control.
    """
    insight = scattered(learner_for(CONFIGS[kind]).insight(fresh(kind)))
    _, shown, memories = played(insight, 5)
    seen_by_critic = "complete" if kind == "sac-sighted" else "observation"
    with jax.enable_x64(True):
        exact, now, memory = in_double((insight, shown[2], memories[2]))
        look = jax.jit(lambda now: exact.look(Robot(), now, memory)[0])
        # What is dark is set to zero after normalising, so moving it is no small change.
        rows = np.asarray(getattr(now, seen_by_critic)).any(axis=-1)
        assert rows.any()
        scale = np.sqrt(np.asarray(exact.controller.stats.variance))
        expected = np.asarray(look(now).expected)
        for sensor in range(5):
            values = []
            for shift in (1e-5, -1e-5):
                moved = getattr(now, seen_by_critic).at[:, sensor].add(shift * scale[sensor])
                values.append(np.asarray(look(dataclasses.replace(now, **{seen_by_critic: moved})).value))
            np.testing.assert_allclose(
                expected[rows, sensor], (values[0] - values[1])[rows] / 2e-5, rtol=1e-3, atol=1e-6
            )


@pytest.mark.quick("gru", "sac-sighted")
@pytest.mark.parametrize("kind", CONFIGS)
def test_cosine_and_what_the_memory_says_of_each_sensor_by_hand(kind: str) -> None:
    """Compare cos from the vectors, and (∂ỹ/∂y)ᵀ h from tanh′ and the weights of h's encoder."""
    insight = scattered(learner_for(CONFIGS[kind]).insight(fresh(kind)))
    looks, shown, memories = played(insight, 5)
    look, now = jax.tree.map(np.asarray, looks[2]), shown[2]
    encoder = insight.critic.encoder if kind.startswith("sac") else insight.controller.policy.encoder
    stats = insight.controller.stats
    normalised = lambda y: (  # noqa: E731
        (np.asarray(y) - np.asarray(stats.mean)) / np.sqrt(np.asarray(stats.variance) + 1e-8)
    )
    for row in range(STREAMS):
        h, target = look.hidden[row], look.costate[row]
        assert look.cosine[row] == pytest.approx(
            h @ target / np.linalg.norm(h) / np.linalg.norm(target), abs=1e-3
        )
        if kind.startswith("sac"):
            seen = np.asarray(now.complete if kind == "sac-sighted" else now.observation)[row]
            dark = not seen.any()
            before = np.asarray(memories[2][0][1])[row] * (1.0 - float(now.is_first[row]))
            inputs = np.concatenate(
                [np.zeros(5) if dark else np.clip(normalised(seen), -10, 10), [float(not dark)], before]
            )
        else:
            inputs = np.clip(normalised(now.observation[row]), -10, 10)
        feature = np.tanh(inputs @ np.asarray(encoder.weights) + np.asarray(encoder.bias))
        by_hand = np.asarray(encoder.weights) @ ((1.0 - feature**2) * h)
        np.testing.assert_allclose(look.remembered[row], by_hand[:5], rtol=1e-3, atol=1e-4)


def test_a_run_is_divided_by_its_milestones() -> None:
    saved = range(0, 101, 5)
    kept = [now for before, now in zip([0, *saved], saved, strict=False) if is_milestone(before, now, 100)]
    assert kept == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    # Where checkpoints are rarer than that, all of them are kept.
    assert [is_milestone(before, now, 3) for before, now in ((0, 0), (0, 1), (1, 2), (2, 3))] == [True] * 4


@pytest.mark.thorough
def test_milestones_are_loaded_like_checkpoints(quick_config: RunConfig, tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(quick_config, steps=5 * 4 * 1000)
    run = train(config, tmp_path / "run").run
    # Checkpoints are the last three; milestones go back to the start.
    assert shown_steps(run) == (0, 4000, 8000, 12000, 16000, 20000)
    _, first = load_insight(run, 0, pytest.fail)
    fresh = learner_for(config).insight(jax.jit(learner_for(config).fresh)(jnp.uint32(config.seed)))
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_array_equal(left, right)
    # A milestone and the checkpoint of the same step are the same.
    stored = load_file(run.milestones / "step_000000020000" / "state.safetensors")
    _, last = load_insight(run, None, pytest.fail)
    leaves = {
        jax.tree_util.keystr(path).lstrip("."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(last)
    }
    assert stored.keys() == leaves.keys()
    for name, leaf in leaves.items():
        np.testing.assert_array_equal(stored[name], np.asarray(leaf), err_msg=name)
    result, _ = evaluate(run, step=4000, episodes=1)
    assert result.env_steps == 4000
    with pytest.raises(CheckpointError, match=r"no checkpoint at step 5\. Available: 0, 4000, 8000"):
        load_controller(run, 5, pytest.fail)


@pytest.mark.thorough
def test_a_run_that_goes_back_forgets_later_milestones(
    quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    run = train(quick_config, tmp_path / "run").run
    broken = run.checkpoints / "step_000000012000" / "state.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    later = run.milestones / "step_000000012000" / "state.safetensors"
    before = later.read_bytes()
    later.write_bytes(b"of a future that did not come")
    resume(run.path)
    assert shown_steps(open_run(run.path)) == (0, 4000, 8000, 12000)
    assert later.read_bytes() == before
