"""Same seed, same machine, same result, bit for bit: for every core, engine and learner. MuJoCo Playground is in test_playground.py.

Trainings of two short iterations are compared, every number of the log and every weight at the end. Another seed must differ, or the comparison would
say nothing.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import pytest
from cut_off import numbers

from costate import training
from costate._task_files import VARIABLE, load_task_files
from costate.checkpoint import folders
from costate.config import RunConfig, to_json
from costate.cores import CORES
from costate.envs.sensors import SensorConfig
from costate.policy import PolicyConfig
from costate.ppo_config import PPOConfig
from costate.programs import Programs, compile_programs
from costate.replay import ReplayConfig
from costate.rollout import RolloutConfig
from costate.run_directory import Run, open_run
from costate.sac import SACConfig
from costate.training import train_together

ARM = pathlib.Path(__file__).parents[1] / "examples" / "own_robot" / "arm.py"
PPO = PPOConfig(epochs=2, minibatches=2)
# One iteration of random controls, and one that learns four times.
SAC = SACConfig(steps_per_update=20, warmup_steps=80, head_width=8, replay=ReplayConfig(capacity=160, window=8, burn_in=4, batch=4))


BLACKOUTS = SensorConfig()


def short(task: str = "LQR", core: str = "gru", sensors: SensorConfig = BLACKOUTS, algorithm: str = "ppo") -> RunConfig:
    """Two iterations of twenty steps in four environments."""
    learner = {"ppo": PPO} if algorithm == "ppo" else {"algorithm": "sac", "sac": SAC}
    policy = PolicyConfig(hidden_size=8, core=CORES[core]())
    return RunConfig(task, seed=3, steps=160, policy=policy, sensors=sensors, rollout=RolloutConfig(environments=4, rollout_length=20), **learner)


Result = tuple[list[dict[str, float]], bytes]


def result_of(run: Run) -> Result:
    """Every number of the log but clocks, and every number that training leaves, as the bytes of the last checkpoint."""
    return numbers(run), (folders(run.checkpoints)[-1] / "state.safetensors").read_bytes()


def trained(config: RunConfig, folder: pathlib.Path, seeds: Sequence[int] = (3,), devices: int = 1) -> list[Result]:
    """What each of these seeds comes to, trained together."""
    configs = [dataclasses.replace(config, seed=seed) for seed in seeds]
    outcomes = train_together(configs, [folder / f"seed-{seed}" for seed in seeds], devices=devices)
    return [result_of(outcome.run) for outcome in outcomes]


def assert_different(one: Result, other: Result) -> None:
    """In the log and in what was learnt."""
    assert one[0] != other[0]
    assert one[1] != other[1]


@pytest.fixture
def kept_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile once for all seeds of a config, which only worlds in JAX allow: tracing and compiling is nearly all that so short a run does.

    That a program that is compiled again does the same again is seen with the other engines, and between processes.
    """
    kept: dict[object, Programs] = {}

    def compile_once(config, env, states, rollout_state, layout):
        which = dataclasses.replace(config, seed=0), layout
        if which not in kept:
            kept[which] = compile_programs(config, env, states, rollout_state, layout)
        return kept[which]

    monkeypatch.setattr(training, "compile_programs", compile_once)


# Everything random that sensors can do, all at once.
FAULTY = SensorConfig(
    dropout=0.2, group_dropout=0.2, sensor_dropout=0.2, burst_length=3.0, dark="hold", stuck=0.2, stuck_length=4.0, noise=0.1, drift=0.05, delay=1,
    delay_jitter=2, mask_input="bits",
)  # fmt: skip
IN_JAX = {f"core {name}": (short(core=name), 1) for name in CORES.names()} | {"all sensor faults, two devices": (short(sensors=FAULTY), 2)}
ENGINES = {
    "EnvPool, off-policy": ("CartpoleSwingup", "sac"),
    "EnvPool, a robot of Gym's": ("envpool:InvertedPendulum-v4", "ppo"),
    "Gymnasium": ("gym:Pendulum-v1", "ppo"),
    "a robot of one's own": ("OwnArm", "ppo"),
}


@pytest.mark.parametrize("what", IN_JAX)
@pytest.mark.usefixtures("kept_programs")
def test_every_core_gives_the_same_again_and_another_seed_something_else(what: str, tmp_path: pathlib.Path) -> None:
    config, devices = IN_JAX[what]
    (once,), (again,), (other,) = (trained(config, tmp_path / name, [seed], devices) for name, seed in (("once", 3), ("again", 3), ("other", 4)))
    assert len(once[0]) == 2
    assert once == again
    assert_different(once, other)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_again_and_another_seed_something_else(
    engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds that train together, twice."""
    monkeypatch.setenv(VARIABLE, str(ARM))
    load_task_files()
    task, algorithm = ENGINES[engine]
    once, again = (trained(short(task, algorithm=algorithm), tmp_path / name, (3, 4)) for name in ("once", "again"))
    assert once == again
    assert_different(*once)


AFRESH = """
import json, sys
from costate.config import from_json
from costate.training import train
train(from_json(json.loads(sys.argv[1])), sys.argv[2], devices=1)
"""


def test_processes_that_share_nothing_give_the_same(tmp_path: pathlib.Path) -> None:
    """With EnvPool's threads; strings are hashed differently in either, and one of them takes no program from the cache of the other."""
    config = short("CartpoleSwingup")
    document = json.dumps(to_json(config))
    differences = ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "JAX_ENABLE_COMPILATION_CACHE": "false"})
    outs = [tmp_path / "first", tmp_path / "second"]
    processes = [
        subprocess.Popen([sys.executable, "-c", AFRESH, document, str(out)], env=os.environ | difference, stderr=subprocess.PIPE, text=True)
        for out, difference in zip(outs, differences, strict=True)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    first, second = (result_of(open_run(out)) for out in outs)
    assert first == second
    assert_different(first, trained(config, tmp_path / "other", [4])[0])
