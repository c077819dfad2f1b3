"""Processes that receive signals, or lose the reader of their output, at all kinds of moments.

Signals, terminals and pipes are real. A few chosen moments run every day, many random ones with `make
faults`. Kill −9 of a run is in test_faults.py, one Ctrl-C in test_cli.py, and a single strike on a sweep in
test_sweep.py.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from cut_off import numbers
from forked import Forge, forge
from sweeping import SPEC, STEPS, results, small_spec

from costate.cli import main
from costate.experiments.sweep import Status, standing
from costate.runs.checkpoint import folders
from costate.runs.run_directory import Run, open_run
from costate.trained.trained import load_state

FULL = os.environ.get("COSTATE_FAULTS") == "full"
STRIKES = 20
TERMINALS = 10 if FULL else 1
READERS = 10 if FULL else 0
WORKERS = 12
# With a simulator that cannot be rewound. Every day, with one that starts faster.
TASK = "CartpoleSwingup" if FULL else "LQR"
# Six short iterations, with a checkpoint after every second one, so that a stop has something to save.
SMALL = [
    TASK,
    "--environments",
    "4",
    "--rollout-length",
    "1000",
    "--hidden-size",
    "8",
    "--epochs",
    "1",
    "--minibatches",
    "1",
]
SMALL += ["--checkpoint-every", "2", "--steps", "24_000", "--devices", "1"]
PATIENCE = 300


def count(what: str) -> None:
    """Print a line that `make faults` shows."""
    print(f"\nfaults: {what}")


@dataclasses.dataclass(frozen=True)
class Strike:
    """A signal that a process sends itself, and when."""

    signal: str
    moment: str
    """Start of the count: "begun" (then it compiles) or "compiled" (then it trains), in seconds.

    "writing" or "saving" are the same moments, counted in flushes.
    """
    at: float
    again: float | None = None
    """Seconds until the same signal comes a second time."""
    again_writing: int | None = None
    """Flushes until the second signal, so that it comes while the first one's checkpoint is written."""


# The real command in a process that also sends itself signals, until the command is over.
VICTIM = """
import json, os, signal, sys, threading
from costate import cli
from costate.training import console

strike, arguments = json.loads(sys.argv[1]), sys.argv[2:]
over, flushes = threading.Event(), []

def send():
    if not over.is_set():
        os.write(2, b"struck\\n")
        os.kill(os.getpid(), signal.Signals[strike["signal"]])

def later(seconds, what):
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()

def first():
    send()
    if strike["again"] is not None:
        later(strike["again"], send)
    if strike["again_writing"] is not None:
        flushes.append([strike["again_writing"], send])

def fsync(descriptor, real=os.fsync):
    for waiting in list(flushes):
        waiting[0] -= 1
        if waiting[0] < 0:
            flushes.remove(waiting)
            waiting[1]()
    real(descriptor)

os.fsync = fsync
def say(self, text, real=console.PlainReporter.say):
    real(self, text)
    if text.startswith("compiled in"):
        moments = {"compiled", "saving"}
    else:
        moments = {"begun", "writing"} if " → " in text else set()
    if strike["moment"] not in moments:
        return
    if strike["moment"] in ("writing", "saving"):
        flushes.append([strike["at"], first])
    else:
        later(strike["at"], first)

console.PlainReporter.say = say
try:
    code = cli.main(arguments)
finally:
    over.set()
sys.exit(code)
"""


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forge(tmp_path_factory.mktemp("victims")) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Results that every struck run must reach."""
    path = tmp_path_factory.mktemp("signals") / "undisturbed"
    assert main(["train", *SMALL, "--out", str(path)]) == 0
    return open_run(path)


def has_begun(path: pathlib.Path) -> bool:
    return (path / "config.json").is_file() and bool(folders(path / "checkpoints"))


def command(path: pathlib.Path) -> list[str]:
    """Return the command that a user would type to start or continue this run."""
    return (
        ["train", "--resume", str(path)]
        if has_begun(path)
        else ["train", *SMALL, "--out", str(path), "--overwrite"]
    )


def go_on(path: pathlib.Path) -> None:
    """Train the run to its end, in this process."""
    assert main(command(path)) == 0


def final_state(run: Run) -> bytes:
    return (folders(run.checkpoints)[-1] / "state.safetensors").read_bytes()


def assert_same(path: pathlib.Path, undisturbed: Run) -> None:
    assert numbers(open_run(path)) == numbers(undisturbed)
    assert final_state(open_run(path)) == final_state(undisturbed)


def assert_all_saved(path: pathlib.Path) -> None:
    """The newest checkpoint is intact and contains all that was logged, and no partial file is left."""
    run = open_run(path)
    checkpoint, _ = load_state(run, None, pytest.fail)
    assert checkpoint.env_steps == sum(4000 for _ in run.read_metrics())
    assert not list(path.rglob("*.partial"))


def moments(chance: random.Random, name: str, twice: bool) -> Iterator[Strike]:
    """Return random moments, many of them in the middle of a write.

    Writes take a small part of the time, so uniform moments would seldom hit one.
    """
    while True:
        again, again_writing = None, None
        if twice and chance.random() < 0.5:
            again = chance.uniform(0.0, 0.4)
        elif twice:
            again_writing = chance.randrange(8)
        moment, limit = chance.choice([("begun", 3.0), ("compiled", 1.5), ("writing", 14), ("saving", 30)])
        at = chance.randrange(limit) if isinstance(limit, int) else chance.uniform(0.0, limit)
        yield Strike(name, moment, at, again, again_writing)


CHOSEN = [
    # During compilation, and in the middle of the first checkpoint that training writes.
    Strike("SIGTERM", "begun", 0.2),
    Strike("SIGTERM", "saving", 5),
    # The second signal comes while the first one's checkpoint is written.
    Strike("SIGINT", "compiled", 0.05, again_writing=1),
]


@pytest.mark.parametrize("kind", ["SIGTERM", "SIGINT", "SIGINT twice"] if FULL else ["chosen moments"])
def test_a_run_that_is_asked_to_end_saves_and_goes_on_to_the_same_numbers(
    kind: str, undisturbed: Run, victims: Forge, tmp_path: pathlib.Path
) -> None:
    """One signal: the current iteration is finished and saved.

    Two: it ends at once, and the last checkpoint is intact.
    """
    chosen = moments(random.Random(kind), kind.split()[0], kind.endswith("twice")) if FULL else iter(CHOSEN)
    wanted = STRIKES if FULL else len(CHOSEN)
    signals, processes, saved, at_once, runs = 0, 0, 0, 0, 0
    while processes < wanted:
        out = tmp_path / f"run-{runs}"
        while processes < wanted:
            strike = next(chosen)
            done = victims.run(VICTIM, [json.dumps(dataclasses.asdict(strike)), *command(out)])
            sent = done.stderr.count("struck\n")
            assert "Traceback" not in done.stderr, f"{strike}\n{done.stderr}"
            assert "error:" not in done.stderr, f"{strike}\n{done.stderr}"
            if done.returncode == 0:
                # Too late: the run was finished already.
                break
            assert sent, f"{strike} was not sent, but {done.returncode}: {done.stderr}"
            assert done.returncode == 130, f"{strike}\n{done.stderr}"
            signals += sent
            processes += 1
            if "stopped and saved; continue with: costate train --resume" in done.stdout:
                saved += 1
                assert_all_saved(out)
            else:
                at_once += 1
                assert "stopped at once; the last checkpoint is kept" in done.stderr
                if has_begun(out):
                    load_state(open_run(out), None, pytest.fail)
        go_on(out)
        assert_same(out, undisturbed)
        runs += 1
    # One signal only requests a stop. Of two signals, the second seldom comes too late.
    assert saved > 0 or kind == "SIGINT twice"
    assert at_once > 0 or kind == "SIGINT"
    count(
        f"{kind}: {signals} signals to {processes} processes of {runs} runs; {saved} saved all and stopped, "
        f"{at_once} stopped at once; same numbers"
    )


ASKED = """
import os, signal, sys
if sys.argv[1] == "true":
    # The tests themselves may have been started with nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
from costate.runs.interrupts import signals_as_interrupts, stop_requests
with signals_as_interrupts(), stop_requests() as stop:
    for name in ("SIGHUP", "SIGTERM"):
        os.kill(os.getpid(), signal.Signals[name])
        print(name, stop.asked)
"""


@pytest.mark.parametrize(
    ("before", "lines"), [('trap "" HUP', ["SIGHUP False", "SIGTERM True"]), ("true", ["SIGHUP True"])]
)
def test_what_was_started_with_nohup_is_not_asked_to_stop_when_its_terminal_closes(
    before: str, lines: list[str]
) -> None:
    """Other signals still stop it.

    Without nohup a closed terminal does, and a second signal then ends it at once.
    """
    program = ["bash", "-c", f'{before}; exec "$@"', "bash", sys.executable, "-c", ASKED, before]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == lines
    assert ("KeyboardInterrupt" in done.stderr) == (len(lines) == 1)


UNRAISABLE = """
import gc, os, signal, time
from costate.runs.interrupts import signals_as_interrupts
struck = []
# A shell that runs the tests in the background may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def collecting(phase, info):
    if not struck:
        struck.append(phase)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)

try:
    with signals_as_interrupts():
        gc.callbacks.append(collecting)
        gc.collect()
        time.sleep(100.0)
except KeyboardInterrupt:
    print("heard")
"""


def test_a_ctrl_c_while_garbage_is_collected_is_not_lost() -> None:
    """Python cannot raise there, and prints a traceback instead.

    The campaign found this in a callback of JAX.
    """
    done = subprocess.run(
        [sys.executable, "-c", UNRAISABLE], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr, done.returncode) == ("heard\n", "", 0)


@pytest.mark.skipif(not FULL, reason="the same without training is above")
def test_a_run_that_was_started_with_nohup_goes_on_when_its_terminal_closes(
    undisturbed: Run, tmp_path: pathlib.Path
) -> None:
    strike = json.dumps(dataclasses.asdict(Strike("SIGHUP", "compiled", 0.0)))
    ignoring = [
        "bash",
        "-c",
        'trap "" HUP; exec "$@"',
        "bash",
        sys.executable,
        "-c",
        VICTIM,
        strike,
        *command(tmp_path / "run"),
    ]
    done = subprocess.run(ignoring, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("struck\n") == 1
    assert_same(tmp_path / "run", undisturbed)


# Takes the terminal on its standard input as its controlling terminal, as a login does, and becomes the
# command. Errors can be redirected, so that tests can read them.
ON_A_TERMINAL = """
import os, sys
os.login_tty(0)
if sys.argv[1]:
    os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)
os.execv(sys.executable, [sys.executable, "-m", "costate.cli", *sys.argv[2:]])
"""


@contextlib.contextmanager
def terminal(path: pathlib.Path, kind: str, errors: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a run on a terminal of its own, and return the end of it that a user would see."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", ON_A_TERMINAL, errors, *command(path)]
    process = subprocess.Popen(
        program, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": kind}
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()


@pytest.mark.thorough
def test_a_closed_terminal_stops_the_run_which_is_saved(undisturbed: Run, tmp_path: pathlib.Path) -> None:
    chance, codes, saved = random.Random(0), [], 0
    for number in range(TERMINALS):
        out, errors = tmp_path / f"run-{number}", tmp_path / f"errors-{number}"
        kind = "xterm" if number % 2 == 0 else "dumb"
        # Every other time errors go to the terminal too, as is usual.
        separate = number % 4 < 2
        with terminal(out, kind, str(errors) if separate else "") as (process, ours):
            seen = b""
            # The first line says that training starts, the others that it runs.
            awaited = TASK.encode() if chance.random() < 0.3 and FULL else b"return"
            while awaited not in seen:
                seen += os.read(ours, 4096)
            time.sleep(chance.uniform(0.0, 1.0) if FULL else 0.0)
            os.close(ours)
            codes.append(process.wait(PATIENCE))
        # Stopped by the hangup, or by the first output that could not be written.
        assert codes[-1] in (130, 141), seen
        if separate:
            assert "Traceback" not in errors.read_text()
            assert "error:" not in errors.read_text()
        if awaited == b"return":
            assert_all_saved(out)
            saved += 1
        go_on(out)
        assert_same(out, undisturbed)
    count(
        f"{TERMINALS} closed terminals, {saved} of them in training: everything was saved; exit codes "
        f"{sorted(set(codes))}; same numbers"
    )


@pytest.mark.thorough
def test_a_reader_that_leaves_at_a_random_moment_stops_the_run_which_is_saved(
    undisturbed: Run, tmp_path: pathlib.Path
) -> None:
    if not READERS:
        pytest.skip("one reader that leaves is in test_cli.py; many with `make faults`")
    chance = random.Random(1)
    for number in range(READERS):
        out = tmp_path / f"run-{number}"
        program = [sys.executable, "-m", "costate.cli", *command(out)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for _ in range(lines := chance.randrange(4)):
                process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.5))
            process.stdout.close()
            # Lines that follow too soon are not printed, so the run may be over before the missing reader is
            # noticed.
            errors = process.stderr.read()
            assert process.wait(PATIENCE) == 141, errors
        assert "Traceback" not in errors
        if lines > 2:
            assert_all_saved(out)
        go_on(out)
        assert_same(out, undisturbed)
    count(f"{READERS} readers that left at random moments: exit code 141; same numbers")


@pytest.mark.parametrize(
    ("arguments", "errors_too"),
    [
        (["--help"], False),
        (["train", "--help"], False),
        (["tasks"], True),
        *([(["tasks", "--json"], False), (["tasks", "--nonsense"], True)] if FULL else []),
    ],
)
def test_output_that_nobody_reads_is_no_error_of_ours(arguments: list[str], errors_too: bool) -> None:
    """A pipe has no reader from the start.

    Unwritten output at exit would make Python complain and return 120.
    """
    reading, writing = os.pipe()
    os.close(reading)
    program = [sys.executable, "-m", "costate.cli", *arguments]
    done = subprocess.run(
        program, stdout=writing, stderr=writing if errors_too else subprocess.PIPE, timeout=PATIENCE
    )
    os.close(writing)
    assert done.returncode == (2 if "--nonsense" in arguments else 141)
    assert not done.stderr


def test_evaluate_into_head_ends_quietly(undisturbed: Run, tmp_path: pathlib.Path) -> None:
    copy = shutil.copytree(undisturbed.path, tmp_path / "run")
    pipeline = '"$@" | head -1; exit ${PIPESTATUS[0]}'
    program = [
        "bash",
        "-c",
        pipeline,
        "bash",
        sys.executable,
        "-m",
        "costate.cli",
        "evaluate",
        str(copy),
        "--episodes",
        "2",
    ]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE)
    assert (
        done.stdout
        == f"evaluating {copy} (nc-gru+environments=4+epochs=1+hidden-size=8+minibatches=1): 2 episodes\n"
    )
    assert done.returncode == 141
    assert not done.stderr
    # The command did its work, though nobody read the output.
    assert len(list((copy / "evaluations").glob("*.json"))) == 1


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    with contextlib.suppress(OSError):
        return [
            int(pid)
            for pid in children
            if b"costate.experiments.work" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
    return []


@pytest.mark.skipif(not FULL, reason="one worker that is killed is in test_sweep.py; many with `make faults`")
def test_a_sweep_whose_workers_are_killed_at_random_moments_ends_as_if_they_were_not(
    tmp_path: pathlib.Path,
) -> None:
    spec, chance, kills = small_spec(), random.Random(0), 0
    file = tmp_path / "small.toml"
    # The same runs, since the number of retries does not change what they compute.
    file.write_text(SPEC.format(steps=STEPS) + "[resources]\nretries = 1000\n")

    def start(folder: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "costate.cli", "sweep", str(file), "--out", str(tmp_path / folder)]
        return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    whole = start("undisturbed")
    output, _ = whole.communicate(timeout=2 * PATIENCE)
    assert whole.returncode == 0, output
    process = start("struck")
    steps = []
    while process.poll() is None and kills < WORKERS:
        # Kills come at any time from start-up to the end of training, and often enough to hit some workers on
        # a fast machine.
        time.sleep(chance.uniform(0.5, 6.0))
        victims = workers_of(process)
        if victims:
            steps.append(max(standing(tmp_path / "struck", spec, planned).env_steps for planned in spec.runs))
            os.kill(chance.choice(victims), signal.SIGKILL)
            kills += 1
    output, _ = process.communicate(timeout=4 * PATIENCE)
    assert process.returncode == 0, output
    assert [standing(tmp_path / "struck", spec, planned).status for planned in spec.runs] == [
        Status.FINISHED
    ] * len(spec.runs)
    assert results(tmp_path / "struck", spec) == results(tmp_path / "undisturbed", spec)
    assert kills > WORKERS // 2
    count(
        f"{kills} workers of a sweep killed (at up to {steps} steps of its runs): same metrics and "
        "evaluations"
    )
