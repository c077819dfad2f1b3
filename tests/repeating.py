"""Short runs that are repeated, and the results that must be the same."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import pytest
from cut_off import numbers

from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.cores import CORES
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders
from costate.runs.run_directory import Run
from costate.training import course
from costate.training.iteration import AbstractIteration, compile_iteration
from costate.training.loop import train_together

PPO = PPOConfig(epochs=2, minibatches=2)
# One iteration of random controls, and one that learns four times.
SAC = SACConfig(
    critic="sighted",
    steps_per_update=20,
    warmup_steps=80,
    head_width=8,
    replay=ReplayConfig(capacity=160, window=8, burn_in=4, batch=4),
)


BLACKOUTS = SensorConfig()


def short(
    task: str = "LQR", core: str = "gru", sensors: SensorConfig = BLACKOUTS, algorithm: str = "ppo"
) -> RunConfig:
    """Return the config of two iterations of twenty steps in four environments."""
    learner = {"ppo": PPO, "sac": SAC}[algorithm]
    policy = PolicyConfig(hidden_size=8, core=CORES[core]())
    return RunConfig(
        task,
        seed=3,
        steps=160,
        policy=policy,
        sensors=sensors,
        rollout=RolloutConfig(environments=4, rollout_length=20),
        learner=learner,
    )


Result = tuple[list[dict[str, float]], bytes]


def result_of(run: Run) -> Result:
    """Return every logged number except clocks, and the bytes of the last checkpoint."""
    return numbers(run), (folders(run.checkpoints)[-1] / "state.safetensors").read_bytes()


def trained(
    config: RunConfig, folder: pathlib.Path, seeds: Sequence[int] = (3,), devices: int = 1
) -> list[Result]:
    """Train these seeds together, and return their results."""
    configs = [dataclasses.replace(config, seed=seed) for seed in seeds]
    outcomes = train_together(configs, [folder / f"seed-{seed}" for seed in seeds], devices=devices)
    return [result_of(outcome.run) for outcome in outcomes]


def assert_different(one: Result, other: Result) -> None:
    """Assert that log and checkpoint differ."""
    assert one[0] != other[0]
    assert one[1] != other[1]


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """While the context is open, all seeds of a config share one program, which only worlds in JAX allow.

    So short a run spends nearly all its time compiling. Tests of the other engines, and between processes,
    show that compiling again gives the same results.
    """
    kept: dict[object, AbstractIteration] = {}

    def compile_once(config, env, states, rollout_state, grid):
        which = dataclasses.replace(config, seed=0), grid
        if which not in kept:
            kept[which] = compile_iteration(config, env, states, rollout_state, grid)
        return kept[which]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "compile_iteration", compile_once)
        yield


def assert_same_again(config: RunConfig, folder: pathlib.Path, devices: int = 1) -> None:
    """Train a config in a JAX world, with one seed twice and with another seed."""
    with compiled_once():
        (once,), (again,), (other,) = (
            trained(config, folder / name, [seed], devices)
            for name, seed in (("once", 3), ("again", 3), ("other", 4))
        )
    assert len(once[0]) == 2
    assert once == again
    assert_different(once, other)
