"""Sweeps with real workers: skipped, continued, killed, stopped, failed and retried.

The results always equal those of an undisturbed sweep.
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from sweeping import SPEC, STEPS, results, small_spec

from costate._base.errors import RunDirectoryError
from costate.cli import main
from costate.experiments.processors import claim_cores
from costate.experiments.schedule import DIED, AbstractBackend, run_jobs
from costate.experiments.spec import parse_spec
from costate.experiments.sweep import Status, jobs_left, locked, open_sweep, standing
from costate.experiments.work import DONE, FAILED, Job, read_failure
from costate.runs.interrupts import StopRequest
from costate.runs.run_directory import create_run


@pytest.fixture(scope="module")
def spec_file(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("spec") / "small.toml"
    path.write_text(SPEC.format(steps=STEPS))
    return path


def start_sweep(spec_file: pathlib.Path, out: pathlib.Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "costate.cli", "sweep", str(spec_file), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_rows(folder: pathlib.Path, process: subprocess.Popen, count: int) -> None:
    """Wait until every run of the sweep has written that many rows."""
    spec = small_spec()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        files = [folder / planned.folder / "metrics.jsonl" for planned in spec.runs]
        if all(file.exists() and len(file.read_text().splitlines()) >= count for file in files):
            return
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    raise AssertionError("the sweep did not get so far")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def workers_of(process: subprocess.Popen) -> list[int]:
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(pid)
        for pid in children
        if b"costate.experiments.work" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.fixture(scope="module")
def undisturbed(spec_file, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "sweep"
    process = start_sweep(spec_file, folder)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "done: 2 runs" in output
    assert "finished    CartpoleSwingup gru seed 0, 100%, return" in output
    return folder


# The compiled programs of this task can be cached, so that it costs little.
SHORT = SPEC.format(steps=8_000).replace("CartpoleSwingup", "LQR")


@pytest.fixture(scope="module")
def short(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
    """Return a finished sweep of two iterations, and its file."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "short.toml").write_text(SHORT)
    process = start_sweep(folder / "short.toml", folder / "sweep")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "done: 2 runs" in output
    return folder / "sweep", folder / "short.toml"


def test_runs_live_in_folders_named_by_their_hash_and_are_evaluated(short):
    folder, spec = short[0], parse_spec(SHORT, "short")
    assert {path.name for path in folder.iterdir() if (path / "config.json").exists()} == {
        planned.folder for planned in spec.runs
    }
    assert all(standing(folder, spec, planned).status is Status.FINISHED for planned in spec.runs)
    assert all(
        len(metrics) == 2 and len(evaluations) == 1 for metrics, evaluations in results(folder, spec).values()
    )
    manifest = json.loads((folder / "sweep.json").read_text())
    assert [run["variant"] for run in manifest["runs"]] == ["gru", "nc-gru"]


def test_finished_runs_are_skipped(short, capsys):
    undisturbed, spec_file, spec = *short, parse_spec(SHORT, "short")
    before = {
        file: file.stat().st_mtime_ns
        for planned in spec.runs
        for file in (undisturbed / planned.folder).rglob("*")
    }
    assert jobs_left(undisturbed, spec, 1) == []
    assert main(["sweep", str(spec_file), "--out", str(undisturbed)]) == 0
    assert "done: 2 runs" in capsys.readouterr().out
    assert all(file.stat().st_mtime_ns == when for file, when in before.items())


@pytest.mark.thorough
def test_nothing_that_strikes_a_sweep_changes_its_results(undisturbed, spec_file, tmp_path):
    """Kill the sweep, then one of its workers, then press Ctrl-C: the same command continues every time."""
    folder = tmp_path / "sweep"
    process = start_sweep(spec_file, folder)
    wait_for_rows(folder, process, 7)
    workers = workers_of(process)
    assert workers
    process.kill()
    process.wait()
    # No process trains a run that a new sweep will continue.
    wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers))

    cards = [folder / planned.folder / "machine.json" for planned in small_spec().runs]
    made = [card.stat().st_mtime_ns for card in cards]
    process = start_sweep(spec_file, folder)
    wait_for_rows(folder, process, 15)
    with pytest.raises(RunDirectoryError, match="Another sweep is running"), locked(folder):
        pass
    os.kill(workers_of(process)[0], signal.SIGKILL)
    wait_until(lambda: len(workers_of(process)) == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "stopped and saved; continue with the same command" in output
    assert Status.INTERRUPTED in {
        standing(folder, small_spec(), planned).status for planned in small_spec().runs
    }

    process = start_sweep(spec_file, folder)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert results(folder, small_spec()) == results(undisturbed, small_spec())
    # The run was continued, not restarted: a new run would have a new machine record.
    assert [card.stat().st_mtime_ns for card in cards] == made


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes on this machine with one core each. The head has none, so that either node can be lost."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.thorough
def test_a_sweep_on_ray_survives_the_death_of_a_node(undisturbed, cluster, tmp_path):
    from costate.experiments.ray_cluster import RayBackend

    cluster, nodes = cluster
    spec, struck = small_spec(), tmp_path / "struck"
    open_sweep(struck, spec, 2, retry_failed=False)
    killed, made = [], []

    def strike(running):
        counts = [standing(struck, spec, planned).env_steps for planned in spec.runs]
        # Both runs have passed a checkpoint, and neither is near its end.
        if not killed and len(running) == 2 and min(counts) >= 6 * 4000:
            made.extend(
                (struck / planned.folder / "machine.json").stat().st_mtime_ns for planned in spec.runs
            )
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed.append(max(counts))

    backend = RayBackend(cluster.address, spec.resources, struck)
    try:
        assert run_jobs(backend, jobs_left(struck, spec, 1), spec.resources.retries, StopRequest(), strike)
    finally:
        backend.close()
    assert killed, "the node was not killed in the middle"
    assert killed[0] < STEPS
    assert [standing(struck, spec, planned).status for planned in spec.runs] == [Status.FINISHED] * 2
    assert results(struck, spec) == results(undisturbed, spec)
    assert [(struck / planned.folder / "machine.json").stat().st_mtime_ns for planned in spec.runs] == made, (
        "continued, not begun again"
    )


@pytest.mark.thorough
def test_a_failed_run_is_listed_the_rest_is_done_and_it_is_retried_on_request(spec_file, tmp_path):
    spec = small_spec(8_000)
    spec_file = tmp_path / "short.toml"
    spec_file.write_text(SPEC.format(steps=8_000))
    broken, whole = spec.runs
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / broken.folder).write_text("in the way")
    process = start_sweep(spec_file, folder)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    assert f"failed: CartpoleSwingup gru seed 0 ({folder / broken.folder}): " in output
    assert "exists and is not a run directory" in output
    assert "1 of 2 runs failed" in output
    assert [standing(folder, spec, planned).status for planned in spec.runs] == [
        Status.FAILED,
        Status.FINISHED,
    ]
    assert whole.folder != broken.folder

    (folder / broken.folder).unlink()
    # Failed runs stay failed until a retry is requested.
    assert main(["sweep", str(spec_file), "--out", str(folder)]) == 1
    process = start_sweep(spec_file, folder, "--retry-failed")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert [standing(folder, spec, planned).status for planned in spec.runs] == [Status.FINISHED] * 2


@pytest.mark.parametrize(("seeds", "places", "together"), [(3, 2, 1), (4, 2, 2), (5, 1, 2)])
def test_two_seeds_share_a_program_where_there_is_enough_to_do_for_every_place(
    tmp_path, seeds, places, together
):
    spec = parse_spec(
        SPEC.format(steps=8_000).replace('["gru", "nc-gru"]', f'["gru"]\nseeds = {seeds}'), "auto"
    )
    assert open_sweep(tmp_path, spec, places, retry_failed=False) == together
    # A later call with another number of places keeps the groups.
    assert open_sweep(tmp_path, spec, 99, retry_failed=False) == together
    assert [len(job.runs) for job in jobs_left(tmp_path, spec, together)] == [together] * (
        seeds // together
    ) + [1] * (seeds % together)


def test_a_group_goes_on_together_only_if_all_of_it_stands_at_the_same_point(tmp_path):
    spec = parse_spec(SPEC.format(steps=8_000).replace('["gru", "nc-gru"]', '["gru"]\nseeds = 8'), "begun")
    # Seeds 0 and 1 are at the same step, 2 is ahead of 3, 4 has begun, and 5 has only its first checkpoint.
    # Seeds 6 and 7 are new.
    for seed, steps in enumerate((4000, 4000, 8000, 4000, 4000, 0)):
        planned = spec.runs[seed]
        run = create_run(tmp_path / planned.folder, planned.config, {}, overwrite=False)
        (run.checkpoints / f"step_{steps:012d}").mkdir()
    seeds = [
        tuple(json.loads(config)["seed"] for config in job.configs) for job in jobs_left(tmp_path, spec, 2)
    ]
    assert seeds == [(0, 1), (2,), (3,), (4,), (5,), (6, 7)]


@pytest.mark.thorough
def test_one_seed_that_diverges_does_not_take_its_group_along(tmp_path, monkeypatch):
    from costate.experiments.work import DONE, perform
    from costate.training import loop as training

    spec = parse_spec(SPEC.format(steps=8_000).replace('["gru", "nc-gru"]', '["gru"]\nseeds = 2'), "sick")
    (group,) = jobs_left(tmp_path, spec, 2)
    advance = training.advance

    def sick(group, programs, position):
        position, rows = advance(group, programs, position)
        return position, [
            row | {"losses/value": float("nan")} if row_is_of_seed_1(rows, i, group.config) else row
            for i, row in enumerate(rows)
        ]

    def row_is_of_seed_1(rows, index, config):
        return rows[0]["iteration"] == 2 and (index if len(rows) == 2 else config.seed) == 1

    monkeypatch.setattr(training, "advance", sick)
    assert perform(group) == FAILED
    # The healthy run began in the group and continued from what it had learned there.
    assert json.loads((tmp_path / spec.runs[0].folder / "machine.json").read_text())["seeds_together"] == [
        0,
        1,
    ]
    assert [standing(tmp_path, spec, run).status for run in spec.runs] == [Status.FINISHED, Status.FAILED]
    assert "diverged in iteration 2: losses/value" in read_failure(tmp_path, spec.runs[1].folder)
    monkeypatch.undo()
    open_sweep(tmp_path, spec, 2, retry_failed=True)
    (retried,) = jobs_left(tmp_path, spec, 2)
    assert perform(retried) == DONE


@pytest.mark.thorough
def test_runs_of_a_sweep_that_were_resized_by_hand_keep_their_length_but_reach_that_of_the_sweep(tmp_path):
    from costate.experiments.work import DONE, perform
    from costate.training.loop import resume, train

    spec = parse_spec(SHORT, "resized")
    longer, shorter = spec.runs
    train(longer.config, tmp_path / longer.folder)
    resume(tmp_path / longer.folder, steps=12_000)
    train(dataclasses.replace(shorter.config, steps=4_000), tmp_path / shorter.folder)
    # Existing runs stay as they are: nothing is trained again.
    assert standing(tmp_path, spec, longer).status is Status.INTERRUPTED
    assert (standing(tmp_path, spec, longer).env_steps, standing(tmp_path, spec, longer).total_steps) == (
        12_000,
        12_000,
    )
    assert [perform(job) for job in jobs_left(tmp_path, spec, 1)] == [DONE, DONE]
    assert [standing(tmp_path, spec, planned).status for planned in spec.runs] == [
        Status.FINISHED,
        Status.FINISHED,
    ]
    rows = [
        len((tmp_path / planned.folder / "metrics.jsonl").read_text().splitlines()) for planned in spec.runs
    ]
    assert rows == [3, 2]
    assert jobs_left(tmp_path, spec, 1) == []


def test_the_remains_of_a_worker_that_died_while_making_a_folder_are_cleared(tmp_path):
    from costate.experiments.work import _clear

    (tmp_path / "remains" / "checkpoints").mkdir(parents=True)
    (tmp_path / "remains" / "machine.json").write_text("{}")
    (tmp_path / "thesis" / "checkpoints").mkdir(parents=True)
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    for name in ("remains", "thesis", "nothing"):
        _clear(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


class _Scripted(AbstractBackend):
    """A backend that ends every job at once with the next exit code of a script."""

    def __init__(self, codes):
        self.codes, self.started, self.current, self.stopped = list(codes), [], [], False

    def places(self):
        return 1

    def start(self, job):
        self.started.append(job)
        self.current.append(job)

    def ended(self):
        done, self.current = self.current, []
        return [(job, self.codes.pop(0)) for job in done]

    def ask_to_stop(self):
        self.stopped = True

    def close(self):
        pass


def job(folder, name="a"):
    return Job(str(folder), (name,), ("{}",), 1, (), 1)


def test_a_job_whose_worker_dies_is_retried_so_often_and_no_more(tmp_path):
    backend = _Scripted([DIED, DIED, DONE])
    assert run_jobs(backend, [job(tmp_path)], 2, StopRequest(), lambda running: None, poll=0.0)
    assert len(backend.started) == 3
    assert read_failure(tmp_path, "a") is None
    backend = _Scripted([DIED, DIED])
    assert run_jobs(backend, [job(tmp_path)], 1, StopRequest(), lambda running: None, poll=0.0)
    assert "was killed, or its node went away 2 times" in read_failure(tmp_path, "a")


def test_an_error_of_the_run_itself_is_not_retried(tmp_path):
    backend = _Scripted([FAILED, DONE])
    assert run_jobs(
        backend, [job(tmp_path), job(tmp_path, "b")], 5, StopRequest(), lambda running: None, poll=0.0
    )
    assert [j.runs for j in backend.started] == [("a",), ("b",)]


def test_when_nobody_looks_any_more_it_saves_and_stops(tmp_path):
    def closed_pipe(running):
        raise BrokenPipeError

    stop = StopRequest()
    assert not run_jobs(
        _Scripted([DONE, DONE]), [job(tmp_path), job(tmp_path, "b")], 0, stop, closed_pipe, poll=0.0
    )
    assert stop.asked


def test_after_a_stop_nothing_new_is_started(tmp_path):
    stop = StopRequest()
    backend = _Scripted([DONE, DONE])
    assert not run_jobs(
        backend, [job(tmp_path), job(tmp_path, "b")], 0, stop, lambda running: stop.ask(), poll=0.0
    )
    assert [j.runs for j in backend.started] == [("a",)]


def test_cores_are_claimed_once_and_given_back(tmp_path, monkeypatch):
    # In a separate folder, because a real sweep may be claiming cores at this moment.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cores = len(os.sched_getaffinity(0))
    claims = []
    while (claim := claim_cores(1)) is not None:
        claims.append(claim)
    assert len({core for claim in claims for core in claim.cores}) == len(claims) == cores
    assert claim_cores(1) is None
    for claim in claims:
        claim.release()
    again = claim_cores(cores)
    assert again is not None
    again.release()


def test_a_dry_run_lists_and_starts_nothing(spec_file, tmp_path, capsys):
    assert main(["sweep", str(spec_file), "--out", str(tmp_path / "x"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "2 runs (2 variants × 1 task × 1 seed)" in out
    assert "CartpoleSwingup nc-gru seed 0, 120,000 steps, waiting" in out
    assert not (tmp_path / "x").exists()
    assert main(["sweep", str(spec_file), "--out", str(tmp_path / "x"), "--dry-run", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["variant"], run["status"], run["env_steps"], run["total_steps"]) for run in runs] == [
        ("gru", "waiting", 0, 120_000),
        ("nc-gru", "waiting", 0, 120_000),
    ]
    assert not (tmp_path / "x").exists()


def test_more_cores_than_there_are_and_an_address_without_ray_are_refused(tmp_path, capsys):
    text = SPEC.format(steps=8_000) + "[resources]\ncores = 512\n"
    (tmp_path / "big.toml").write_text(text)
    assert main(["sweep", str(tmp_path / "big.toml"), "--out", str(tmp_path / "x")]) == 1
    assert "resources.cores is 512, but this machine has" in capsys.readouterr().err
    assert main(["sweep", str(tmp_path / "big.toml"), "--address", "here:1"]) == 1
    assert "needs --backend ray" in capsys.readouterr().err


def test_speed_is_the_median_of_the_newest_iterations_and_cut_rows_are_passed_over(tmp_path):
    spec = small_spec()
    run = create_run(tmp_path / spec.runs[0].folder, spec.runs[0].config, {}, overwrite=False)
    rows = [
        {"env_steps": 4000 * (i + 1), "training/sps": speed} for i, speed in enumerate((90.0, 100.0, 1.0))
    ]
    run.metrics.write_text(
        "x" * 9000 + "\n" + "".join(json.dumps(row) + "\n" for row in rows) + '{"env_steps": 160'
    )
    found = standing(tmp_path, spec, spec.runs[0])
    assert (found.env_steps, found.steps_per_second) == (12_000, 90.0)
