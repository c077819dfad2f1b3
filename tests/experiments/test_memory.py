"""The five policies of `costate memory` differ as intended, and the shares equal a calculation by hand."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.cli import main
from costate.envs.sensors import SensorConfig
from costate.experiments.memory import VariantResult, memory_spec, notes, table, to_json
from costate.experiments.statistics import FEWEST, Interval, share_of_distance
from costate.experiments.tables import Cell
from costate.policies.cores.frame_stack import FrameStackConfig
from costate.policies.cores.gru import GRUConfig
from costate.policies.cores.memoryless import MemorylessConfig
from costate.policies.policy import PolicyConfig
from costate.policies.running_stats import empty_stats
from costate.policies.sac_networks import act_once, build_actor, sac_inputs
from costate.trained.evaluation import sensors_at


def test_the_policies_differ_in_memory_and_sight_alone():
    spec = memory_spec(
        ["WalkerStand"],
        "ppo",
        2,
        3_200_000,
        {"dropout": 0.75, "burst_length": 5, "hide": ("velocity",)},
        4,
        50,
    )
    configs = {run.variant: run.config for run in spec.runs if run.config.seed == 1}
    assert list(configs) == ["memoryless", "frame stack", "recurrent", "recurrent, co-state", "oracle"]
    assert [type(c.policy.core) for c in configs.values()] == [
        MemorylessConfig,
        FrameStackConfig,
        GRUConfig,
        GRUConfig,
        GRUConfig,
    ]
    assert configs["frame stack"].policy.core.frames == 4
    faulty = SensorConfig(0.75, burst_length=5.0, hide=("velocity",))
    assert [c.sensors for c in configs.values()] == [*(faulty,) * 4, SensorConfig(0.0)]
    assert [c.costate_coef for c in configs.values()] == [0.0, 0.0, 0.0, 0.05, 0.0]
    assert {(c.steps, c.rollout, c.policy.hidden_size, c.learner_name) for c in configs.values()} == {
        (3_200_000, configs["oracle"].rollout, 128, "ppo")
    }
    assert (spec.evaluation.dropouts, spec.evaluation.episodes) == ((0.0, 0.75), 50)
    off_policy = memory_spec(["WalkerStand"], "sac", 1, None, {}, 8, 10)
    assert {run.config.learner_name for run in off_policy.runs} == {"sac"}


@pytest.mark.parametrize("sensors", [{"burst_length": 10}, {"dark": "hold"}])
def test_policies_of_any_sensors_are_also_judged_with_full_sight(sensors):
    """Sensor settings that have no effect with full sight do not prevent an evaluation there."""
    spec = memory_spec(["WalkerStand"], "ppo", 1, 3_200_000, sensors, 4, 50)
    assert spec.evaluation.dropouts == (0.0, 0.5)
    assert {sensors_at(run.config, 0.0) for run in spec.runs} == {SensorConfig(0.0)}


@pytest.mark.parametrize("sensors", [{"dropout": 0.0}, {"dropout": 0.0, "mask_input": "bit"}])
def test_sensors_that_never_fail_leave_memory_nothing_to_do(sensors):
    """A mask bit that never reports a blackout is not a fault."""
    with pytest.raises(ConfigError, match="memory cannot help on WalkerStand"):
        memory_spec(["WalkerStand"], "ppo", 1, None, sensors, 8, 10)


def test_where_working_sensors_do_not_show_the_state_not_even_the_oracle_sees_it_and_that_is_said():
    """LQG shows a position only, so its velocity has to be remembered even if sensors never fail."""
    assert memory_spec(["LQG"], "ppo", 1, None, {"dropout": 0.5}, 8, 10).runs
    with pytest.raises(
        ConfigError, match="the policy with full sight would see no more than the others on LQG"
    ):
        memory_spec(["LQG"], "ppo", 1, None, {"dropout": 0.0}, 8, 10)
    assert notes("ppo", ["LQG", "WalkerStand"]) == [
        "oracle: its sensors never fail, but on LQG they do not show the whole state, so even this policy "
        "does not see everything."
    ]
    assert notes("ppo", ["WalkerStand"]) == []


def test_shares_of_the_distance_by_hand():
    low, high = np.array([10.0, 20.0]), np.array([110.0, 120.0])
    # 65 is half way from 15 to 115.
    assert share_of_distance(np.array([60.0, 70.0]), low, high).estimate == 0.5
    assert np.isnan(share_of_distance(np.array([60.0, 70.0]), low, high).low)
    assert np.isnan(share_of_distance(high, low, low).estimate)
    # If full sight is no better than no memory, there is nothing to regain. A memory that is worse than none
    # must not count as a share above 100 %.
    assert np.isnan(share_of_distance(np.array([-600.0]), np.array([-500.0]), np.array([-550.0])).estimate)
    rng = np.random.default_rng(0)
    many = [rng.normal(centre, 1.0, 200) for centre in (50.0, 0.0, 100.0)]
    found = share_of_distance(*many)
    # The standard deviation of the share is about that of the mean of 200 runs divided by the distance,
    # 0.0007, and a little more for the two ends.
    assert found.low < found.estimate < found.high
    assert found.high - found.low == pytest.approx(
        2 * 1.96 * np.sqrt(1 + 0.25 + 0.25) / np.sqrt(200) / 100, rel=0.15
    )
    assert len(many[0]) >= FEWEST


def test_a_share_of_a_distance_that_may_not_be_there_has_no_interval():
    """If the two ends overlap, many resamples have them in the wrong order, and their share means nothing."""
    low, high = np.array([0.0, 10.0, 0.0, 10.0]), np.array([1.0, 11.0, 1.0, 11.0])
    found = share_of_distance(np.full(4, 5.5), low, high)
    assert found.estimate == 0.5
    assert np.isnan([found.low, found.high]).all()


def test_the_table_says_what_was_regained():
    def cell(variant: str, *scores: float) -> Cell:
        return Cell("WalkerStand", variant, np.array(scores), 0, 0, 1.0)

    worths = [
        VariantResult(cell("memoryless", 100.0), None),
        VariantResult(cell("recurrent", 300.0, 320.0), Interval(0.7, np.nan, np.nan)),
        VariantResult(cell("oracle"), None),
    ]
    lines = table(worths).splitlines()
    assert lines[1].split() == ["WalkerStand", "memoryless", "1", "100.0"]
    assert lines[2].split() == ["WalkerStand", "recurrent", "2", "310.0", "14.1", "70%", "regained"]
    assert lines[3].endswith("unfinished")
    assert json.loads(json.dumps(to_json(worths)))[1]["share_interval"] == [None, None]


def test_what_an_off_policy_actor_without_memory_knows_is_its_last_control_and_that_is_said(
    tmp_path, capsys, monkeypatch
):
    actor = build_actor(PolicyConfig(4, MemorylessConfig()), jax.random.key(0), 2, 1)
    observation, later = jnp.ones((1, 2)), jnp.zeros(1, bool)

    def control(done: float, remembered: float) -> float:
        inputs = sac_inputs(empty_stats((2,)), None, observation, ~later, jnp.full((1, 1), done), later)
        return float(act_once(actor, inputs, jnp.full((1, 4), remembered), later)[0].mode()[0, 0])

    assert control(0.5, 0.0) == control(0.5, 1.0)
    assert control(0.5, 0.0) != control(-0.5, 0.0)
    monkeypatch.setattr("costate.cli.commands.memory.conduct", lambda *arguments: 0)
    monkeypatch.setattr("costate.experiments.collection.read_collection", lambda folder: None)
    monkeypatch.setattr("costate.experiments.memory.results_of", lambda collection: [])
    for algorithm, said in (("sac", 1), ("ppo", 0)):
        assert main(["memory", "LQR", "--algorithm", algorithm, "--out", str(tmp_path)]) == 0
        assert capsys.readouterr().out.count("memoryless: still reads its own last control") == said
        assert len(json.loads((tmp_path / "memory.json").read_text())["notes"]) == said


@pytest.mark.thorough
def test_one_command_trains_and_compares_all_of_them(tmp_path, capsys):
    """Train real runs on a task in JAX, each for one iteration."""
    arguments = [
        "memory",
        "LQR",
        "--steps",
        "32_000",
        "--seeds",
        "1",
        "--episodes",
        "4",
        "--frames",
        "2",
        "--sensors",
        "dropout=0.6",
    ]
    assert main([*arguments, "--out", str(tmp_path), "--dry-run"]) == 0
    assert "LQR frame stack seed 0" in capsys.readouterr().out
    assert main([*arguments, "--out", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    results = json.loads((tmp_path / "memory.json").read_text())["results"]
    assert json.loads(captured.out)["results"] == results
    assert [result["variant"] for result in results] == [
        "memoryless",
        "frame stack",
        "recurrent",
        "recurrent, co-state",
        "oracle",
    ]
    assert all(len(result["scores"]) == 1 for result in results)
    by = {result["variant"]: result["mean"] for result in results}
    # After one iteration the oracle may have learned nothing, and then there is nothing to regain.
    known = by["oracle"] > by["memoryless"]
    expected = (by["recurrent"] - by["memoryless"]) / (by["oracle"] - by["memoryless"]) if known else None
    assert results[2]["share"] == (pytest.approx(expected) if known else None)
    assert "written: " in captured.err
    assert main(["memory", "LQRR"]) == 1
    assert "Did you mean" in capsys.readouterr().err
