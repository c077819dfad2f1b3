"""Test the records of MuJoCo Playground's tasks without Playground, and the folding of seeds."""

import pathlib
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import costate.envs
from costate._base.errors import ConfigError
from costate.cli import main
from costate.cli.commands import tasks as tasks_command
from costate.config.run_config import RunConfig, from_json, to_json
from costate.envs.base import TimeStep
from costate.envs.engines.together import fold_seeds
from costate.envs.suites.playground import NAMES
from costate.envs.tasks import PAPER_TASKS, TASKS


def test_the_papers_tasks_are_there_under_the_same_names_with_the_same_sizes():
    for name in PAPER_TASKS:
        task, twin = TASKS[f"playground:{name}"], TASKS[name]
        assert (task.observation_size, task.action_size, task.budget) == (
            twin.observation_size,
            twin.action_size,
            twin.budget,
        )
        assert (task.episode_steps, task.engine) == (1000, "playground")


def test_a_walkers_height_is_called_what_it_is_and_a_fish_is_observed_in_dm_controls_order():
    assert TASKS["playground:WalkerStand"].observation == (
        ("orientations", 14),
        ("upright", 1),
        ("velocity", 9),
    )
    fish = TASKS["playground:FishSwim"]
    assert fish.observation == TASKS["FishSwim"].observation
    assert fish.shown == (("upright", 1), ("joint_angles", 7), ("target", 3), ("velocity", 13))
    assert all(
        TASKS[f"playground:{name}"].observation == TASKS[name].observation
        for name in NAMES
        if not name.startswith("Walker")
    )


def test_a_config_is_read_without_the_extra():
    config = RunConfig("playground:WalkerStand")
    assert from_json(to_json(config)) == config
    assert config.task_record.folder == "playground-WalkerStand"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"has no task 'WalkerStnd'.*Did you mean WalkerStand"):
        RunConfig("playground:WalkerStnd")
    # A task of dm_control that Playground does not have.
    with pytest.raises(ConfigError, match=r"MuJoCo Playground has no task 'QuadrupedWalk'"):
        RunConfig("playground:QuadrupedWalk")


def test_without_playground_the_extra_is_named_and_the_twin(monkeypatch):
    monkeypatch.delattr(costate.envs, "engine_playground", raising=False)
    monkeypatch.setitem(sys.modules, "costate.envs.engines.playground", None)
    with pytest.raises(
        ConfigError,
        match=r"playground:WalkerStand needs MuJoCo Playground.*costate\[playground\].*"
        r"use WalkerStand, the same task in EnvPool",
    ):
        TASKS["playground:WalkerStand"].build(2, [0])


def test_without_playground_nothing_is_written_and_an_older_run_is_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.delattr(costate.envs, "engine_playground", raising=False)
    monkeypatch.setitem(sys.modules, "costate.envs.engines.playground", None)
    out = tmp_path / "run"
    for _ in range(2):
        # A second attempt gives the same message, unaffected by the first.
        assert main(["train", "playground:WalkerStand", "--out", str(out)]) == 1
        assert capsys.readouterr().err.startswith("error: playground:WalkerStand needs MuJoCo Playground")
        assert not out.exists()
    shutil.copytree(pathlib.Path(__file__).parents[1] / "fixtures" / "format_1" / "ppo", out)
    before = sorted(out.rglob("*"))
    assert main(["train", "playground:WalkerStand", "--out", str(out), "--overwrite"]) == 1
    assert sorted(out.rglob("*")) == before


def test_the_list_of_tasks_mentions_them(capsys):
    tasks_command.run([])
    assert "playground:WalkerStand" in capsys.readouterr().out


def counting(state, action, keys):
    """Environments that count to 3 and restart. The reward says whether any of them restarted."""
    over = state >= 3
    state = jax.lax.cond(over.any(), lambda: jnp.where(over, 0, state), lambda: state + 1)
    started = jnp.full(state.shape, over.any(), jnp.float32)
    return state, TimeStep(action, started, jax.random.uniform(keys[0]) + jnp.zeros(state.shape), over, over)


def test_seeds_are_folded_into_one_batch_whose_condition_stays_one():
    step = fold_seeds(counting)
    state, action, keys = (
        jnp.array([[0, 1], [2, 3]]),
        jnp.arange(4.0).reshape(2, 2, 1),
        jax.random.split(jax.random.key(0), (2, 2)),
    )
    together, timestep = jax.vmap(step)(state, action, keys)
    # One environment is over, so the step restarted all of them. For each seed alone, the first would have
    # counted.
    np.testing.assert_array_equal(together, [[0, 1], [2, 0]])
    np.testing.assert_array_equal(timestep.reward, np.ones((2, 2)))
    np.testing.assert_array_equal(timestep.observation, action)
    program = str(jax.make_jaxpr(jax.vmap(step))(state, action, keys))
    assert "cond[" in program
    assert "cond[" not in str(jax.make_jaxpr(jax.vmap(counting))(state, action, keys))


def test_what_all_seeds_share_is_given_to_each_when_they_are_folded():
    state, keys = jnp.array([0, 1]), jax.random.split(jax.random.key(0), (2,))
    together, timestep = jax.vmap(fold_seeds(counting), in_axes=(None, 0, None))(
        state, jnp.arange(4.0).reshape(2, 2, 1), keys
    )
    np.testing.assert_array_equal(together, [[1, 2], [1, 2]])
    np.testing.assert_array_equal(timestep.observation[:, :, 0], [[0, 1], [2, 3]])
