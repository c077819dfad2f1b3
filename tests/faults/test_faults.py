"""The fault campaign on runs and files: kills, damaged files, full disks and jumping clocks.

A short version runs every day, the full campaign with `make faults`.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
import safetensors.numpy
from cut_off import Breaker, numbers
from forked import Forge, forge

from costate._base import files as _files
from costate._base.errors import (
    BundleError,
    CheckpointError,
    ConfigError,
    CostateError,
    RunDirectoryError,
    StorageError,
)
from costate.config.run_config import RunConfig
from costate.deploy.bundle import read
from costate.runs.checkpoint import _digest, folders, save
from costate.runs.run_directory import create_run, open_run
from costate.trained.trained import load_state
from costate.training.group import load_group
from costate.training.loop import resume, train

FULL = os.environ.get("COSTATE_FAULTS") == "full"
# Split into parts, so that all cores are busy.
PARTS = 5 if FULL else 1
KILLS = 50 // PARTS if FULL else 2
MUTANTS = 2000 // PARTS if FULL else 160
FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "format_1"


def count(what: str) -> None:
    """Print a line that `make faults` shows."""
    print(f"\nfaults: {what}")


# Trains or resumes a run of six short iterations with a checkpoint after each, and kills itself at a given
# moment: a number of seconds after the first iteration was compiled, or at flush number N to the disk.
VICTIM = """
import os, pathlib, signal, sys, threading, time
out, config, moment, writes = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
from costate._base import files as _files
from costate.config.run_config import from_json
from costate.training.console import SilentReporter
from costate.training.loop import resume, train
import json

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if writes >= 0:
    real, left = os.fsync, [writes]
    def fsync(descriptor):
        if left[0] == 0:
            die()
        left[0] -= 1
        real(descriptor)
    os.fsync = fsync

class Clock(SilentReporter):
    def say(self, text):
        if text.startswith("compiled") and moment >= 0:
            threading.Timer(moment, die).start()

if (out / "config.json").is_file() and any((out / "checkpoints").glob("step_*")):
    resume(out, reporter=Clock())
else:
    train(from_json(json.loads(config)), out, overwrite=True, reporter=Clock())
"""


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forge(tmp_path_factory.mktemp("victims")) as made:
        yield made


def tiny(config: RunConfig) -> RunConfig:
    return dataclasses.replace(config, steps=6 * 4 * 1000, checkpoint_every=1)


@pytest.mark.parametrize("part", range(PARTS))
def test_runs_that_are_killed_at_random_moments_end_as_if_they_were_not(
    part: int, small_config: RunConfig, quick_config: RunConfig, tmp_path: pathlib.Path, victims: Forge
) -> None:
    """Kill −9 a run again and again until it gets to its end.

    Each kill comes a random number of milliseconds after training began, or in the middle of a write.
    """
    from costate.config.run_config import to_json

    # With a simulator that cannot be rewound. Every day, and in some parts, with one that starts faster.
    config = tiny(small_config if FULL and part % 2 == 0 else quick_config)
    document = json.dumps(to_json(config))
    # Computed by a process like the others, with the same number of devices.
    assert victims.run(VICTIM, [str(tmp_path / "undisturbed"), document, "-1", "-1"]).returncode == 0
    undisturbed = numbers(open_run(tmp_path / "undisturbed"))
    chance = random.Random(part)
    kills = runs = 0
    while kills < KILLS:
        out = tmp_path / f"run-{runs}"
        while True:
            # Many of the moments are in the middle of writing a checkpoint, though that takes a small part of
            # the time.
            writing = chance.random() < 0.4 and kills < KILLS
            moment = chance.uniform(0.0, 0.5) if not writing and kills < KILLS else -1.0
            writes = chance.randrange(50) if writing else -1
            process = victims.run(VICTIM, [str(out), document, str(moment), str(writes)])
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL, process.stderr
            kills += 1
        assert numbers(open_run(out)) == undisturbed
        runs += 1
    count(f"{kills} kills of {runs} runs of {config.task}: each run ended with the same numbers, bit for bit")


# Creates the folder of a run, and ends at flush number N to the disk.
MAKER = """
import os, pathlib, sys
left = [int(sys.argv[2])]
def fsync(descriptor, real=os.fsync):
    if left[0] == 0:
        os._exit(7)
    left[0] -= 1
    real(descriptor)
os.fsync = fsync
from costate.config.run_config import RunConfig
from costate.runs.run_directory import create_run
create_run(pathlib.Path(sys.argv[1]), RunConfig("LQR"), {}, overwrite=False)
"""


def test_a_run_that_was_killed_before_it_had_a_config_is_not_in_the_way(
    quick_config: RunConfig, tmp_path: pathlib.Path, victims: Forge
) -> None:
    """Kill at every write. Files that were there before are not touched."""
    for writes in range(100):
        folder = tmp_path / str(writes)
        if (code := victims.run(MAKER, [str(folder), str(writes)]).returncode) == 0:
            break
        assert code == 7
        if not (folder / "config.json").exists():
            assert create_run(folder, quick_config, {}, overwrite=False).config == quick_config
    assert writes > 4
    (tmp_path / "other" / "checkpoints").mkdir(parents=True)
    (tmp_path / "other" / "checkpoints" / "mine").touch()
    with pytest.raises(RunDirectoryError, match="exists and is not a run directory"):
        create_run(tmp_path / "other", quick_config, {}, overwrite=True)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip a bit, cut off the end, overwrite a stretch, or insert something."""
    changed, place = bytearray(content), int(rng.integers(len(content)))
    match int(rng.integers(4)):
        case 0:
            changed[place] ^= 1 << int(rng.integers(8))
        case 1:
            del changed[place:]
        case 2:
            stretch = rng.integers(0, 256, int(rng.integers(1, 40)), np.uint8).tobytes()
            changed[place : place + len(stretch)] = stretch
        case _:
            changed[place:place] = rng.integers(0, 256, int(rng.integers(1, 40)), np.uint8).tobytes()
    return bytes(changed)


def reseal(folder: pathlib.Path) -> None:
    """Recompute the digests of a checkpoint, as an attacker would."""
    path = folder / "checkpoint.json"
    record = json.loads(path.read_text())
    record["sha256"] = hashlib.sha256((folder / "state.safetensors").read_bytes()).hexdigest()
    record.pop("digest", None)
    path.write_text(json.dumps(record | {"digest": _digest(record)}))


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_checkpoints_and_bundles_are_refused_with_a_reason(part: int, tmp_path: pathlib.Path) -> None:
    rng, refused, harmless = np.random.default_rng(part), 0, 0
    for number in range(MUTANTS):
        name = ("ppo", "sac")[number % 2]
        kind = ("state.safetensors", "checkpoint.json", "policy.costate", "resealed state")[number // 2 % 4]
        if kind == "policy.costate":
            content = (FIXTURES / name / kind).read_bytes()
            (tmp_path / kind).write_bytes(broken := mutated(content, rng))
            if broken != content:
                with pytest.raises(BundleError):
                    read(tmp_path / kind)
                refused += 1
            continue
        shutil.copytree(FIXTURES / name, tmp_path / "run")
        run = open_run(tmp_path / "run")
        folder = folders(run.checkpoints)[-1]
        for other in folders(run.checkpoints)[:-1]:
            shutil.rmtree(other)
        file = folder / ("state.safetensors" if kind == "resealed state" else kind)
        content = file.read_bytes()
        file.write_bytes(mutated(content, rng))
        if kind == "resealed state":
            reseal(folder)
        try:
            load_state(run, None, lambda _: None)
        except (CheckpointError, ConfigError):
            refused += 1
        else:
            # A changed number with new digests is a valid checkpoint of another policy. Nothing else is
            # accepted.
            assert kind == "resealed state" or file.read_bytes() == content, (
                f"{kind} of {name}, number {number}"
            )
            harmless += 1
        shutil.rmtree(tmp_path / "run")
    count(
        f"{refused} of {MUTANTS} mutated files refused; {harmless} were unchanged, or valid checkpoints of "
        "other numbers (new digests)"
    )
    assert refused > 0.8 * MUTANTS


def sparse(path: pathlib.Path, size: int, start: bytes = b"") -> None:
    """Make a file that claims to be large."""
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(size)


HOSTILE = {
    "a header of exabytes": lambda path: path.write_bytes((2**60).to_bytes(8, "little") + b"{}"),
    "a file of a terabyte": lambda path: sparse(path, 2**40),
    "arrays of exabytes": lambda path: path.write_bytes(
        _header({"x": {"dtype": "F32", "shape": [2**30, 2**30], "data_offsets": [0, 4 * 2**60]}})
    ),
    "places that overlap": lambda path: path.write_bytes(
        _header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}) + b"\0" * 8
    ),
    "an unknown type": lambda path: path.write_bytes(
        _header({"x": {"dtype": "PICKLE", "shape": [1], "data_offsets": [0, 4]}}) + b"\0" * 4
    ),
    "a type that NumPy lacks": lambda path: path.write_bytes(
        _header({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}) + b"\0" * 4
    ),
    "other arrays": lambda path: path.write_bytes(safetensors.numpy.save({"x": np.zeros(3)})),
    "a pickle": lambda path: path.write_bytes(
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94."
    ),
    "nothing": lambda path: path.write_bytes(b""),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


def _header(tensors: dict[str, object]) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_states_cost_neither_memory_nor_the_process(what: str, tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    run = open_run(tmp_path / "run")
    for folder in folders(run.checkpoints):
        HOSTILE[what](folder / "state.safetensors")
        if (folder / "state.safetensors").is_file() and (folder / "state.safetensors").stat().st_size < 2**20:
            reseal(folder)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        load_state(run, None, lambda _: None)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    assert time.monotonic() - started < 20.0


RECORDS = {
    "a path out of the run": {
        "replay": [{"file": "../../../../etc/passwd", "start": 0, "stop": 1, "sha256": "0"}]
    },
    "rows without end": {
        "replay": [
            {"file": "rows_000000000000_000000000200.safetensors", "start": 0, "stop": 2**60, "sha256": "0"}
        ]
    },
    "rows that are words": {
        "replay": [
            {"file": "rows_000000000000_000000000200.safetensors", "start": "0", "stop": "1", "sha256": "0"}
        ]
    },
    "an unknown field of a chunk": {"replay": [{"run": "me"}]},
    "a negative iteration": {"iteration": -1},
    "an iteration that is a word": {"iteration": "__import__('os')"},
    "restarts that are no list": {"restarts": 5},
    "restarts without end": {"restarts": [10**30]},
    "a config that is a list": {"config": []},
}


@pytest.mark.parametrize("what", RECORDS)
def test_hostile_records_are_refused(what: str, tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "sac", tmp_path / "run")
    run = open_run(tmp_path / "run")
    for folder in folders(run.checkpoints):
        record = json.loads((folder / "checkpoint.json").read_text()) | RECORDS[what]
        (folder / "checkpoint.json").write_text(json.dumps(record))
        reseal(folder)
    # The reason must be the record, not a wrong digest.
    expected = (
        "which is impossible" if what in ("a path out of the run", "rows without end") else "was altered:?"
    )
    with pytest.raises(CostateError, match=expected):
        resume(run.path)


def test_a_checkpoint_that_was_sealed_anew_and_not_altered_is_read(tmp_path: pathlib.Path) -> None:
    """The new digest alone is no reason to refuse a checkpoint."""
    shutil.copytree(FIXTURES / "sac", tmp_path / "run")
    run = open_run(tmp_path / "run")
    for folder in folders(run.checkpoints):
        reseal(folder)
    assert load_state(run, None, pytest.fail)[0].env_steps == 400


@pytest.mark.parametrize("moment", [0, 1])
def test_a_checkpoint_that_is_replaced_is_there_whenever_that_is_cut_off(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Cut the replacement off before or after the old checkpoint is moved aside.

    As with a kill, nothing cleans up afterwards.
    """
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    run = open_run(tmp_path / "run")
    newest = folders(run.checkpoints)[-1]
    checkpoint, state = load_state(run, None, pytest.fail)
    real, calls = os.replace, iter(range(10))

    class Killed(BaseException):
        pass

    def cut_off(source: pathlib.Path, target: pathlib.Path) -> None:
        if next(calls) == moment:
            monkeypatch.setattr(_files, "restore", lambda path: None)
            raise Killed
        real(source, target)

    monkeypatch.setattr(os, "replace", cut_off)
    with pytest.raises(Killed):
        save(run.checkpoints, checkpoint, state)
    monkeypatch.undo()
    # A process that only reads must not touch it: the process that trains could be at this point.
    assert (newest in folders(run.checkpoints)) == (moment == 0)
    load_group([run], pytest.fail)
    assert folders(run.checkpoints)[-1] == newest
    assert load_state(run, None, pytest.fail)[0] == checkpoint


def test_a_record_of_brackets_is_refused(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    run = open_run(tmp_path / "run")
    for folder in folders(run.checkpoints):
        (folder / "checkpoint.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match="not JSON"):
        load_state(run, None, lambda _: None)


CONFIGS = {
    "a config of terabytes": (
        lambda path: sparse(path, 2**40),
        "has 1,099,511,627,776 bytes, but at most 16,777,216 are possible",
    ),
    "a config of brackets": (lambda path: path.write_text("[" * 200_000), "it is not JSON"),
    "a config with a field of brackets": (
        lambda path: path.write_text('{"config": {"task": ' + "[" * 200_000),
        "it is not JSON",
    ),
    "a config that is no object": (
        lambda path: path.write_text("5"),
        "not the JSON that `costate train` writes",
    ),
    "a config of other bytes": (lambda path: path.write_bytes(b"\xff" * 100), "it is not JSON"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_hostile_config_is_one_paragraph(what: str, tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    make, message = CONFIGS[what]
    make(tmp_path / "run" / "config.json")
    with pytest.raises(RunDirectoryError, match=rf"config\.json .*{message}.* Restore the file"):
        open_run(tmp_path / "run")


def test_no_depth_of_a_config_is_more_than_an_error(tmp_path: pathlib.Path) -> None:
    """At a depth that the parser just manages, the code after it has to fail cleanly instead."""
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    for depth in range(100, sys.getrecursionlimit() + 50, 50):
        (tmp_path / "run" / "config.json").write_text(
            '{"config": {"task": ' + "[" * depth + "]" * depth + "}}"
        )
        with pytest.raises((RunDirectoryError, ConfigError)):
            open_run(tmp_path / "run")


def test_a_hostile_log_is_left_out_or_one_paragraph(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    run = open_run(tmp_path / "run")
    rows = len(run.read_metrics())
    with open(run.metrics, "a") as file:
        file.write("[" * 200_000 + "\n")
    assert len(run.read_metrics()) == rows
    assert run.read_log().complaint == f"metrics.jsonl is damaged in line {rows + 1}, which is left out"
    sparse(run.metrics, 2**40)
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl has 1,099,511,627,776 bytes"):
        run.read_metrics()
    run.metrics.unlink()
    os.mkfifo(run.metrics)
    with pytest.raises(RunDirectoryError, match="not a plain file"):
        run.read_metrics()
    (run.path / "machine.json").write_text("[" * 200_000)
    assert run.read_machine() == {}


def test_swapped_files_are_noticed(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    run = open_run(tmp_path / "run")
    first, *_, last = folders(run.checkpoints)
    shutil.copy(first / "state.safetensors", last / "state.safetensors")
    warnings: list[str] = []
    checkpoint, _ = load_state(run, None, warnings.append)
    assert checkpoint.env_steps == 4000
    assert "its digest does not match the recorded one" in warnings[0]


def test_a_deleted_directory_is_an_error_and_not_a_new_one(
    quick_config: RunConfig, tmp_path: pathlib.Path
) -> None:
    class Cleaner(Breaker):
        def progress(self, progression) -> None:
            if progression.row["iteration"] == 1:
                shutil.rmtree(tmp_path / "run")

    with pytest.raises(StorageError, match="was deleted or replaced while it was trained"):
        train(quick_config, tmp_path / "run", reporter=Cleaner())
    assert not (tmp_path / "run").exists()


@pytest.mark.quick("full")
@pytest.mark.skipif(os.geteuid() != 0, reason="making a small disk needs root")
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_disk_that_is_full_or_read_only_keeps_the_last_good_checkpoint(
    quick_config: RunConfig, tmp_path: pathlib.Path, fault: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    checkpoints = disk / "run" / "checkpoints"
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("file systems cannot be mounted here")

    class Filler(Breaker):
        def progress(self, progression) -> None:
            if progression.row["iteration"] == 2 and fault == "full":
                with open(disk / "ballast", "wb", buffering=0) as file:
                    while True:
                        try:
                            file.write(bytes(4096))
                        except OSError:
                            break
            elif progression.row["iteration"] == 2:
                subprocess.run(["mount", "--bind", checkpoints, checkpoints], check=True)
                subprocess.run(["mount", "-o", "remount,bind,ro", checkpoints], check=True)

    try:
        message = "No space left on device" if fault == "full" else "Read-only file system"
        with pytest.raises(StorageError, match=message):
            train(quick_config, disk / "run", reporter=Filler())
        if fault == "full":
            (disk / "ballast").unlink()
        else:
            subprocess.run(["umount", checkpoints], check=True)
        checkpoint, _ = load_state(open_run(disk / "run"), None, pytest.fail)
        assert checkpoint.iteration == 1
        resume(disk / "run")
        assert numbers(open_run(disk / "run")) == numbers(train(quick_config, tmp_path / "undisturbed").run)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.thorough
def test_a_clock_that_jumps_does_no_harm(
    quick_config: RunConfig, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps an hour forwards, then back to before the start, as when a machine wakes up."""
    real, jumps = time.time, iter([3600.0, -1e9, 7200.0])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps, -1e6))
    run = train(quick_config, tmp_path / "run").run
    monkeypatch.undo()
    assert numbers(run) == numbers(train(quick_config, tmp_path / "undisturbed").run)
    elapsed = [row["time/elapsed"] for row in run.read_metrics()]
    assert elapsed == sorted(elapsed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (5, "The name of a core is 5"),
        (["gru"], r"The name of a core is \['gru'\]"),
        ("gur", "Did you mean gru"),
    ],
)
def test_a_config_with_a_name_that_cannot_be_is_named_with_its_file(
    name: object, message: str, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(FIXTURES / "ppo", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    document = json.loads(path.read_text())
    document["config"]["policy"]["core"]["name"] = name
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=rf"run/config\.json: .*{message}"):
        open_run(tmp_path / "run")
