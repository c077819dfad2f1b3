"""Divergence: NaN or Inf from the environment or the learner stops a run with its cause, and can be retried.

A retry goes on with a smaller learning rate.
"""

import dataclasses
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from cut_off import Breaker, numbers

from costate._base.errors import DivergedError, SimulationError
from costate.config.run_config import RunConfig
from costate.envs.base import TimeStep
from costate.envs.tasks import TASKS
from costate.learners.base import Collected
from costate.learners.sac.config import SACConfig
from costate.runs.checkpoint import folders
from costate.runs.run_directory import open_run
from costate.trained.trained import load_state
from costate.training import bookkeeping
from costate.training.divergence import MOST_SLOWDOWNS
from costate.training.loop import resume, train
from costate.training.soundness import all_finite, first_non_finite, from_environments


def rows(**bad: tuple[tuple[int, int, int], float]) -> Collected:
    """Return rows of two seeds, four steps and three environments, with given values at given places."""
    arrays = {
        "observation": np.zeros((2, 4, 3, 2)),
        "action": np.zeros((2, 4, 3, 1)),
        "reward": np.zeros((2, 4, 3)),
    }
    for name, (place, value) in bad.items():
        arrays.setdefault(name, np.zeros((2, 4, 3, 2)))[place] = value
    return Collected(
        **{"complete": None} | {name: jnp.asarray(array, jnp.float32) for name, array in arrays.items()}
    )


def seen_last(value: float = 0.0) -> TimeStep:
    """Return what the environments showed after the last step, with ``value`` in one observation."""
    observation = np.zeros((2, 3, 2), np.float32)
    observation[1, 2, 0] = value
    zeros, no = jnp.zeros((2, 3)), jnp.zeros((2, 3), bool)
    return TimeStep(jnp.asarray(observation), zeros, zeros, no, no)


def test_the_first_non_finite_number_is_found_with_its_cause() -> None:
    assert first_non_finite(rows(), seen_last()) is None
    late = rows(reward=((1, 3, 2), np.inf))
    assert (
        str(first_non_finite(late, seen_last()))
        == "the environment gave a reward of inf (environment 2, step 3 of the rollout)"
    )
    assert first_non_finite(late, seen_last()).seed == 1
    # In the same step an observation comes before the control, and the control before its reward.
    both = rows(observation=((0, 2, 1), np.nan), action=((0, 2, 1), np.nan), reward=((0, 2, 1), np.nan))
    assert (
        str(first_non_finite(both, seen_last()))
        == "the environment gave an observation of nan (environment 1, step 2 of the rollout)"
    )
    policy = rows(observation=((0, 3, 1), np.nan), action=((1, 2, 0), -np.inf), reward=((0, 2, 1), np.nan))
    assert (
        str(first_non_finite(policy, seen_last()))
        == "the policy gave a control of -inf (environment 0, step 2 of the rollout)"
    )


def test_what_is_hidden_in_the_dark_and_what_comes_last_is_looked_at_too() -> None:
    """A critic that sees through blackouts reads one array, and the value after the last step another."""
    assert all_finite(from_environments(rows(complete=((0, 1, 2), 1.0)), seen_last()))
    dark = rows(complete=((0, 1, 2), np.nan))
    assert not all_finite(from_environments(dark, seen_last()))
    assert (
        str(first_non_finite(dark, seen_last()))
        == "the environment gave an observation of nan (environment 2, step 1 of the rollout)"
    )
    assert not all_finite(from_environments(rows(), seen_last(np.inf)))
    assert (
        str(first_non_finite(rows(), seen_last(np.inf)))
        == "the environment gave an observation of inf (environment 2, step 4 of the rollout)"
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_soundness_notices_every_kind_in_any_place(value: float) -> None:
    clean = rows()
    assert all_finite(from_environments(clean, seen_last()))
    for name, place in (("observation", (1, 3, 2, 1)), ("reward", (0, 0, 0))):
        broken = rows(**{name: (place, value)})
        assert not all_finite(from_environments(broken, seen_last()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Breaking(type(TASKS["LQR"])):  # type: ignore[misc]
    """A world whose reward is NaN at some step of its life."""

    def build(self, batch_size, seeds):
        env = super().build(batch_size, seeds)
        step = env.step

        def broken(state, action, key):
            state, timestep = step(state, action, key)
            lost = LOST["now"] & (jnp.arange(batch_size) == 2)
            return state, dataclasses.replace(timestep, reward=jnp.where(lost, jnp.nan, timestep.reward))

        env.step = broken
        return env


LOST = {"now": False}


def test_a_reward_that_is_no_number_stops_the_run_before_it_is_learnt(
    quick_config: RunConfig, tmp_path: pathlib.Path, monkeypatch
) -> None:
    task = TASKS["LQR"]
    broken = Breaking(**{field.name: getattr(task, field.name) for field in dataclasses.fields(task)})
    run = train(dataclasses.replace(quick_config, steps=8000), tmp_path / "run").run
    before = numbers(run)
    monkeypatch.setattr(type(TASKS), "__getitem__", lambda self, name: broken)
    monkeypatch.setitem(LOST, "now", True)
    other = dataclasses.replace(quick_config, steps=8000)
    drawn: list[str] = []
    monkeypatch.setattr(bookkeeping, "draw_learning_curve", lambda run, title: drawn.append(run.path.name))
    with pytest.raises(SimulationError) as caught:
        train(other, tmp_path / "broken")
    said = str(caught.value)
    assert "In iteration 1 of" in said
    assert (
        "(environment steps 0 to 4,000) the environment gave a reward of nan (environment 2, step 0 of the "
        "rollout)" in said
    )
    assert "last good checkpoint is" in said
    assert "step_000000000000" in said
    # The folder keeps what led there.
    assert drawn == ["broken"]
    # Repaired, it goes on as if nothing had happened.
    monkeypatch.setitem(LOST, "now", False)
    resume(tmp_path / "broken")
    assert numbers(open_run(tmp_path / "broken")) == before


def wild(config: RunConfig) -> RunConfig:
    return dataclasses.replace(
        config, diverged="slow-down", learner=dataclasses.replace(config.learner, learning_rate=1e30)
    )


@pytest.mark.thorough
def test_a_run_slows_down_by_itself_and_finishes(
    quick_config: RunConfig, tmp_path: pathlib.Path, monkeypatch
) -> None:
    """The second halving always suffices in this test."""
    slowed = RunConfig.slowed

    def tamed(config: RunConfig, times: int) -> RunConfig:
        return (
            slowed(config, times)
            if times < 2
            else dataclasses.replace(config, learner=dataclasses.replace(config.learner, learning_rate=1e-4))
        )

    monkeypatch.setattr(RunConfig, "slowed", tamed)
    listener = Breaker()
    run = train(wild(quick_config), tmp_path / "run", reporter=listener).run
    assert [text for text in listener.said if text.startswith("back to step")] == [
        "back to step 0, with the learning rate times 0.5",
        "back to step 0, with the learning rate times 0.25",
    ]  # fmt: skip
    assert sum("diverged in iteration" in text for text in listener.said) == 2
    checkpoint, _ = load_state(run, None, pytest.fail)
    assert (checkpoint.iteration, checkpoint.slowdowns) == (3, 2)
    assert [row["iteration"] for row in run.read_metrics()] == [1, 2, 3]
    assert all(np.isfinite(row["losses/total"]) for row in run.read_metrics())


@pytest.mark.thorough
def test_a_run_that_nothing_helps_stops(quick_config: RunConfig, tmp_path: pathlib.Path) -> None:
    listener = Breaker()
    with pytest.raises(DivergedError, match="not finite"):
        train(wild(quick_config), tmp_path / "run", reporter=listener)
    assert sum(text.startswith("back to step") for text in listener.said) == MOST_SLOWDOWNS
    assert "halved 4 times already" in listener.said[-1]
    assert [folder.name for folder in folders(open_run(tmp_path / "run").checkpoints)] == [
        "step_000000000000"
    ]


def test_halving() -> None:
    config = RunConfig(task="CartpoleSwingup")
    assert config.slowed(0) == config
    assert config.slowed(3).learner.learning_rate == pytest.approx(2.5e-4 / 8)
    assert RunConfig(task="CartpoleSwingup", learner=SACConfig()).slowed(
        1
    ).learner.learning_rate == pytest.approx(5e-4)
