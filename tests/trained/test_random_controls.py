"""Returns of uniform random controls, against values that are known in closed form."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import CostateError
from costate.envs.suites.control import REGULATOR_LIMIT, WorldTask, lqr
from costate.envs.tasks import TASKS
from costate.envs.worlds import probes
from costate.envs.worlds.analytic import AbstractWorld
from costate.experiments.report import _task_tables, random_control_returns
from costate.experiments.tables import Cell
from costate.trained.random_controls import RandomReturn, play_random, random_return


def expected_return_of_uniform_controls() -> float:
    """Return E Σ x'Qx on LQR from the covariance, which grows by that of u ~ U(−6, 6), a variance of 6²/3."""
    problem = lqr()
    variance = REGULATOR_LIMIT**2 / 3.0
    covariance, cost = problem.initial_covariance, 0.0
    for _ in range(problem.steps):
        cost += np.trace(problem.state_cost @ covariance) + float(problem.control_cost[0, 0]) * variance
        driven = variance * problem.influence @ problem.influence.T
        covariance = problem.dynamics @ covariance @ problem.dynamics.T + driven + problem.process_noise
    return -cost


def test_random_controls_return_on_lqr_what_their_covariance_says():
    found = play_random("LQR", episodes=32, seed=0)
    others = [play_random("LQR", episodes=32, seed=seed).mean for seed in range(1, 5)]
    mean = np.mean([found.mean, *others])
    assert found.episodes == 32
    # Five times as many episodes; four standard errors are missed once in 16,000.
    assert mean == pytest.approx(
        expected_return_of_uniform_controls(), abs=4.0 * found.standard_error / np.sqrt(5.0)
    )
    # Far from an optimum of −14.1, or the line would tell nothing.
    assert mean < -100.0


class PaidBySquares(AbstractWorld):
    """Rewards u² in each of 200 steps, for controls within ±3."""

    observation_size = 1
    action_size = 1
    episode_steps = 200
    action_limit = 3.0

    def initial(self, key):
        return jnp.zeros(())

    def observe(self, state, key):
        return state[None]

    def advance(self, state, action, key):
        return state, action[0] ** 2, jnp.zeros((), bool)


def test_controls_are_uniform_within_their_bounds(monkeypatch):
    record = WorldTask(name="Paid", observation=(("y", 1),), control_timestep=0.1, make_world=PaidBySquares)
    monkeypatch.setitem(TASKS._items, "Paid", record)
    found = play_random("Paid")
    # E u² = 3²/3 and Var u² = 3⁴ (1/5 − 1/9), over 200 steps in each of 32 episodes.
    deviation = np.sqrt(200 * 81.0 * (1 / 5 - 1 / 9))
    assert found.mean == pytest.approx(600.0, abs=4.0 * deviation / np.sqrt(32))
    # The deviation of 32 of them is known to an eighth.
    assert found.standard_error == pytest.approx(deviation / np.sqrt(32), rel=0.5)


@pytest.mark.parametrize(
    ("world", "value"),
    [(probes.ConstantReward, 1.0), (probes.DelayedReward, 1.0), (probes.EndlessReward, 5.0)],
)
def test_where_controls_change_nothing_the_return_is_that_of_the_world(world, value, monkeypatch):
    made = world()
    record = WorldTask(
        name="Probe",
        observation=(("y", 1),),
        control_timestep=0.1,
        episode_steps=made.episode_steps,
        make_world=world,
    )
    monkeypatch.setitem(TASKS._items, "Probe", record)
    found = play_random("Probe", episodes=8)
    assert (found.mean, found.standard_error) == (pytest.approx(value), 0.0)


def test_a_task_of_the_library_is_played_once_and_one_of_a_users_own_each_time(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    played = []
    monkeypatch.setattr(
        "costate.trained.random_controls.play_random",
        lambda task, tell: played.append(task) or RandomReturn(2.5, 0.5, 32),
    )
    monkeypatch.setitem(TASKS._items, "Own", TASKS["LQR"])
    for task in ("LQR", "LQR", "Own", "Own"):
        assert random_return(task) == RandomReturn(2.5, 0.5, 32)
    assert played == ["LQR", "Own", "Own"]
    (kept,) = (tmp_path / "costate" / "random_returns").iterdir()
    # One that is damaged, or of another version, is played again.
    kept.write_text("{")
    random_return("LQR")
    monkeypatch.setattr("costate.trained.random_controls.versions", lambda: {"envpool": "0"})
    random_return("LQR")
    assert played[3:] == ["LQR", "LQR"]
    assert json.loads(kept.read_text()) == {"mean": 2.5, "standard_error": 0.5, "episodes": 32}


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(
        "costate.trained.random_controls.play_random", lambda task, tell: RandomReturn(1.0, 0.0, 32)
    )
    assert random_return("LQR").mean == 1.0


def test_controls_without_bounds_have_no_uniform_distribution():
    with pytest.raises(CostateError, match="no bounds"):
        play_random("LqrLqr21", episodes=2)


def test_a_report_has_a_row_of_random_controls_below_each_task(monkeypatch):
    known = {"LQR": RandomReturn(-2633.1, 516.4, 32), "Slow": RandomReturn(0.5, 0.1, 32)}

    def played(task):
        if task not in known:
            raise CostateError("no engine here")
        return known[task]

    monkeypatch.setattr("costate.experiments.report.random_return", played)
    random_returns = random_control_returns(["LQR", "Unbounded", "Slow"])
    assert random_returns == known
    tasks = [("LQR", "a"), ("LQR", "b"), ("Unbounded", "a"), ("Slow", "a")]
    page = _task_tables(
        [Cell(task, variant, np.array([1.0, 2.0]), 0, 0, float("nan")) for task, variant in tasks],
        random_returns,
    )
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row)[:3] for row in page.split("<tr>") if "<td" in row]
    assert [(task, variant) for task, variant, _ in rows] == [
        ("LQR", "a"), ("LQR", "b"), ("LQR", "random controls"),
        ("Unbounded", "a"), ("Slow", "a"), ("Slow", "random controls"),
    ]  # fmt: skip
    assert [value for _, variant, value in rows if variant == "random controls"] == ["-2633.1", "0.500"]
    assert "uniform within their bounds, over 32 episodes" in page
