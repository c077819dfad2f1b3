"""Training that will not fit into memory is refused before any of it is taken."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from costate._base.errors import ConfigError
from costate.config.presets import preset
from costate.config.run_config import RunConfig
from costate.learners.sharding import DeviceGrid
from costate.training import memory_needed
from costate.training.loop import train
from costate.training.memory_needed import check_iteration, check_memory, state_bytes
from costate.training.programs import fresh_state, working_bytes


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(memory_needed, "available_memory", lambda: free)


def wide(name: str) -> RunConfig:
    config = preset(name, "LQR")
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, hidden_size=30_000))


@pytest.mark.parametrize("name", ["nc-gru", "sac-gru"])
def test_the_size_of_a_state_is_known_before_there_is_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset(name, "LQR")
    if name == "sac-gru":
        # Small enough to be made here.
        replay = dataclasses.replace(config.learner.replay, capacity=5_000)
        config = dataclasses.replace(config, learner=dataclasses.replace(config.learner, replay=replay))
    state = fresh_state(config)
    taken = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert state_bytes(config) == taken


@pytest.mark.parametrize("name", ["nc-gru", "sac-gru"])
def test_networks_that_do_not_fit_are_refused_for_every_learner(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 20 * 10**9)
    check_memory(preset(name, "LQR"), DeviceGrid(1, 1), 1)
    # Three gates of 30,000 × 30,000 weights in four bytes, each with two averages of the optimiser, are 32
    # GB.
    with pytest.raises(
        ConfigError, match=r"take at least (6[4-9]|[7-9]\d|1\d\d)\.\d GB \(hidden size 30,000; 2 copies"
    ) as raised:
        check_memory(wide(name), DeviceGrid(1, 1), 1)
    assert "but 20.0 GB are free. Use a smaller --hidden-size" in str(raised.value)


def test_nothing_is_made_of_a_run_whose_networks_do_not_fit(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 20 * 10**9)
    with pytest.raises(ConfigError, match="The networks with their optimiser take"):
        train(wide("nc-gru"), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_iteration_that_does_not_fit_is_refused_before_it_runs(
    tmp_path, quick_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 2**20)
    # Its networks are small, and its experience is not.
    with pytest.raises(
        ConfigError, match=r"An iteration takes \d+\.\d GB on \d of \d devices, but 0\.0 GB are free\."
    ):
        train(quick_config, tmp_path / "run")


def test_what_a_program_takes_is_what_its_arrays_take() -> None:
    """A matrix of 1,000 × 1,000 in four bytes, which is returned; the argument is there already."""
    device = jax.devices()[0]
    program = (
        jax.jit(lambda x: x[:, None] * x[None, :]).lower(jax.ShapeDtypeStruct((1000,), jnp.float32)).compile()
    )
    assert working_bytes(program, jax.sharding.SingleDeviceSharding(device)) == 4_000_000


def test_what_is_free_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 100)
    check_iteration(100, DeviceGrid(1, 1))
    with pytest.raises(ConfigError):
        check_iteration(101, DeviceGrid(1, 1))
