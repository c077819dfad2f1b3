"""The Ray backend: a local cluster, and addresses without one. The death of a node is in test_sweep.py."""

import socket
import time

import pytest
from sweeping import small_spec

from costate._base.errors import ConfigError
from costate.experiments.schedule import run_jobs
from costate.experiments.sweep import Status, jobs_left, open_sweep, standing
from costate.runs.interrupts import StopRequest

ray = pytest.importorskip("ray")


@pytest.mark.thorough
def test_a_sweep_on_a_cluster_of_its_own_stops_when_asked(tmp_path):
    from costate.experiments.ray_cluster import RayBackend

    spec = small_spec()
    open_sweep(tmp_path, spec, 2, retry_failed=False)
    stop = StopRequest()

    def watch(running):
        if any(standing(tmp_path, spec, planned).env_steps > 0 for planned in spec.runs):
            stop.ask()

    backend = RayBackend(None, spec.resources, tmp_path)
    try:
        assert not run_jobs(backend, jobs_left(tmp_path, spec, 1), 0, stop, watch)
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
    with pytest.raises(ConfigError, match="could not be joined"):
        RayBackend("somewhere", small_spec().resources, tmp_path)
