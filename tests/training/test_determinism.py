"""Same seed, same machine, same result, bit for bit: for every core, engine and learner.

MuJoCo Playground is in test_playground.py.

Trainings of two short iterations are compared, every number of the log and every weight at the end. Another
seed must differ, or the comparison would say nothing.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
from repeating import assert_different, assert_same_again, result_of, short, trained

from costate._base.task_files import VARIABLE, load_task_files
from costate.config.run_config import to_json
from costate.envs.sensors import SensorConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.cores import CORES
from costate.runs.run_directory import open_run

ARM = pathlib.Path(__file__).parents[2] / "examples" / "own_robot" / "arm.py"
# Everything random that sensors can do, all at once.
FAULTY = SensorConfig(
    dropout=0.2, group_dropout=0.2, sensor_dropout=0.2, burst_length=3.0, dark="hold",
    stuck=0.2, stuck_length=4.0, noise=0.1, drift=0.05, delay=1,
    delay_jitter=2, mask_input="bits",
)  # fmt: skip
IN_JAX = {f"core {name}": (short(core=name), 1) for name in CORES.names()} | {
    "all sensor faults, two devices": (short(sensors=FAULTY), 2)
}
ENGINES = {
    "EnvPool, off-policy": ("CartpoleSwingup", "sac"),
    "EnvPool, a robot of Gym's": ("envpool:InvertedPendulum-v4", "ppo"),
    "Gymnasium": ("gym:Pendulum-v1", "ppo"),
    "a robot of one's own": ("OwnArm", "ppo"),
}


@pytest.mark.quick("all sensor faults, two devices")
@pytest.mark.parametrize("what", IN_JAX)
def test_every_core_gives_the_same_again_and_another_seed_something_else(
    what: str, tmp_path: pathlib.Path
) -> None:
    config, devices = IN_JAX[what]
    assert_same_again(config, tmp_path, devices)


@pytest.mark.quick("Gymnasium")
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_again_and_another_seed_something_else(
    engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds that train together, twice."""
    monkeypatch.setenv(VARIABLE, str(ARM))
    load_task_files()
    task, algorithm = ENGINES[engine]
    once, again = (
        trained(short(task, algorithm=algorithm), tmp_path / name, (3, 4)) for name in ("once", "again")
    )
    assert once == again
    assert_different(*once)


AFRESH = """
import json, sys
from costate.config.run_config import from_json
from costate.training.loop import train
train(from_json(json.loads(sys.argv[1])), sys.argv[2], devices=1)
"""


@pytest.mark.thorough
def test_processes_that_share_nothing_give_the_same(tmp_path: pathlib.Path) -> None:
    """Use EnvPool's threads, other hashes of strings in each process, and a cache that only one may read."""
    config = short("CartpoleSwingup")
    document = json.dumps(to_json(config))
    differences = ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "JAX_ENABLE_COMPILATION_CACHE": "false"})
    outs = [tmp_path / "first", tmp_path / "second"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", AFRESH, document, str(out)],
            env=os.environ | difference,
            stderr=subprocess.PIPE,
            text=True,
        )
        for out, difference in zip(outs, differences, strict=True)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    first, second = (result_of(open_run(out)) for out in outs)
    assert first == second
    assert_different(first, trained(config, tmp_path / "other", [4])[0])


AS_USERS_DO = """
import json, sys
from costate.config.run_config import from_json
from costate.training.console import SilentReporter
from costate.training.loop import resume, train


class Cut(SilentReporter):
    def progress(self, progression):
        if progression.row["iteration"] == 3:
            raise KeyboardInterrupt


for document in json.loads(sys.argv[1]):
    config, out = from_json(document), sys.argv[2] + "/" + document["learner"]["name"]
    train(config, f"{out}-whole", devices=1)
    try:
        train(config, f"{out}-cut", devices=1, reporter=Cut())
    except KeyboardInterrupt:
        resume(f"{out}-cut", devices=1)
"""


def test_as_compiled_for_users_a_run_that_was_cut_off_equals_one_that_was_not(tmp_path: pathlib.Path) -> None:
    """All other tests compile quickly; here XLA optimises as it does by default."""
    # Four iterations, of which two span an episode, so that the cut after the third goes back to the
    # checkpoint after the second.
    rollout, replay = (
        RolloutConfig(environments=4, rollout_length=100),
        ReplayConfig(capacity=1600, window=8, burn_in=4, batch=4),
    )
    longer = {"steps": 1600, "checkpoint_every": 1, "rollout": rollout}
    sac = dataclasses.replace(short(algorithm="sac").learner, replay=replay)
    configs = [
        dataclasses.replace(short(), **longer),
        dataclasses.replace(short(algorithm="sac"), learner=sac, **longer),
    ]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
    }
    command = [
        sys.executable,
        "-c",
        AS_USERS_DO,
        json.dumps([to_json(config) for config in configs]),
        str(tmp_path),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for config in configs:
        whole, cut = (
            result_of(open_run(tmp_path / f"{config.learner_name}-{name}")) for name in ("whole", "cut")
        )
        assert len(whole[0]) == 4
        assert whole == cut
