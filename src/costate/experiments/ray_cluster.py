"""The Ray backend: jobs on the nodes of a cluster with shared storage. Only this file imports Ray."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import Any

from costate._base.errors import ConfigError
from costate._base.files import open_to_append, remove_file
from costate.experiments.local import exit_code, open_log, worker_command
from costate.experiments.schedule import DIED, AbstractBackend
from costate.experiments.spec import Resources
from costate.experiments.work import Job

try:
    import ray
    import ray.exceptions
except ImportError as error:  # pragma: no cover
    raise ConfigError(
        "The Ray backend needs Ray, which is not installed. Install it with: pip install 'costate[ray]'."
    ) from error

STOP = "stop"
"""Name of a file in the sweep's folder that asks all workers, on any node, to save and stop."""
ANSWER_SECONDS = 5.0


class RayBackend(AbstractBackend):
    """Run jobs as Ray tasks, each of which starts a worker process on its node."""

    def __init__(self, address: str | None, resources: Resources, folder: pathlib.Path) -> None:
        self._stop = folder.resolve() / STOP
        remove_file(self._stop)
        self._resources = resources
        self._tasks: dict[Any, Job] = {}
        self._connected = connect(address)
        # Ray does not retry: the schedule does, and counts the deaths.
        self._perform = ray.remote(num_cpus=resources.cores, num_gpus=resources.gpus, max_retries=0)(_perform)
        for name, kind, wanted in (("cores", "CPU", resources.cores), ("gpus", "GPU", resources.gpus)):
            largest = max(
                (node["Resources"].get(kind, 0.0) for node in ray.nodes() if node["Alive"]), default=0.0
            )
            if wanted > largest:
                raise ConfigError(
                    f"resources.{name} is {wanted:g}, but no node of the cluster has more than {largest:g}. "
                    "Lower it."
                )

    def places(self) -> int:
        """Return the number of jobs that the living nodes have resources for.

        More jobs would only wait inside Ray.
        """
        total = ray.cluster_resources()
        limits = [total.get("CPU", 0.0) // self._resources.cores]
        if self._resources.gpus > 0.0:
            limits.append(total.get("GPU", 0.0) // self._resources.gpus)
        return int(min(limits))

    def start(self, job: Job) -> None:
        self._tasks[self._perform.remote(job.to_text(), str(self._stop))] = job

    def ended(self) -> list[tuple[Job, int | None]]:
        if not self._tasks:
            return []
        over, _ = ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0.0)
        return [(self._tasks.pop(task), _result(task)) for task in over]

    def ask_to_stop(self) -> None:
        open_to_append(self._stop).close()

    def close(self) -> None:
        for task in self._tasks:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)
        remove_file(self._stop)
        if self._connected:
            ray.shutdown()


def connect(address: str | None) -> bool:
    """Join the cluster at ``address``, or start one on this machine if it is None.

    Return False if this process had joined one already.
    """
    if ray.is_initialized():
        return False
    # Without this, Ray reports its usage over the network.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address is None:
        ray.init(address="local", num_cpus=len(os.sched_getaffinity(0)), include_dashboard=False, **quiet)
        return True
    _check_answer(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"The Ray cluster at {address!r} could not be joined: {_first_line(error)} Check it with `ray "
            "status`."
        ) from error
    return True


def _check_answer(address: str) -> None:
    """Raise within seconds if nothing listens at host:port. Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"No Ray cluster answers at {address!r}: {error}. Start one with `ray start --head` and give the "
            "address that it prints, or leave --address out to start one on this machine."
        ) from error


def _perform(text: str, stop: str) -> int:
    """Run the worker process of a job on this node, and stop it when the sweep is asked to stop."""
    job = Job.from_text(text)
    with open_log(job) as log:
        process = subprocess.Popen(worker_command(job), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        asked_to_stop = False
        while process.poll() is None:
            if not asked_to_stop and os.path.exists(stop):
                process.send_signal(signal.SIGINT)
                asked_to_stop = True
            time.sleep(0.2)
        return process.returncode


def _result(task: Any) -> int | None:
    try:
        return exit_code(ray.get(task))
    except ray.exceptions.RayError:
        return DIED


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
