"""Sweeps on a real Ray cluster of two nodes, one of which is killed in the middle."""

import socket
import time

import pytest
from sweeping import results, small_spec

from costate._errors import ConfigError
from costate.experiments.local import LocalBackend
from costate.experiments.schedule import run_jobs
from costate.experiments.sweep import Status, jobs_left, open_sweep, standing
from costate.interrupts import StopRequest

ray = pytest.importorskip("ray")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes on this machine, each with one core to give; the head has none, so that either can be lost."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def test_a_sweep_survives_the_death_of_a_node_with_the_results_of_an_undisturbed_one(cluster, tmp_path):
    from costate.experiments.ray_cluster import RayBackend

    cluster, nodes = cluster
    spec, struck, whole = small_spec(), tmp_path / "struck", tmp_path / "whole"
    for folder in (struck, whole):
        open_sweep(folder, spec, retry_failed=False)
    killed, seen = [], []

    def strike(running):
        seen.append(len(running))
        counts = [standing(struck, spec, planned).env_steps for planned in spec.runs]
        # Both have passed a checkpoint and neither is near its end.
        if not killed and len(running) == 2 and min(counts) >= 6 * 4000:
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed.append(max(counts))

    backend = RayBackend(cluster.address, spec.resources, struck)
    try:
        assert run_jobs(backend, jobs_left(struck, spec), spec.resources.retries, StopRequest(), strike)
    finally:
        backend.close()
    assert killed, "the node was not killed in the middle"
    assert killed[0] < 240_000
    assert [standing(struck, spec, planned).status for planned in spec.runs] == [Status.FINISHED] * 2

    local = LocalBackend(1)
    try:
        assert run_jobs(local, jobs_left(whole, spec), 0, StopRequest(), lambda running: None)
    finally:
        local.close()
    assert results(struck, spec) == results(whole, spec)


def test_a_sweep_on_a_cluster_of_its_own_stops_when_asked(tmp_path):
    from costate.experiments.ray_cluster import RayBackend

    spec = small_spec()
    open_sweep(tmp_path, spec, retry_failed=False)
    stop = StopRequest()

    def watch(running):
        if any(standing(tmp_path, spec, planned).env_steps > 0 for planned in spec.runs):
            stop.ask()

    backend = RayBackend(None, spec.resources, tmp_path)
    try:
        assert not run_jobs(backend, jobs_left(tmp_path, spec), 0, stop, watch)
    finally:
        backend.close()
    assert not ray.is_initialized()
    assert Status.INTERRUPTED in [standing(tmp_path, spec, planned).status for planned in spec.runs]
    assert not (tmp_path / "stop").exists()


def test_an_address_that_does_not_answer_is_an_error_after_a_short_wait(tmp_path):
    from costate.experiments.ray_cluster import RayBackend

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(ConfigError, match=f"No Ray cluster answers at '{address}'"):
        RayBackend(address, small_spec().resources, tmp_path)
    assert time.monotonic() - started < 10
