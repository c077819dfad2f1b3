"""Measure the time of one step of one stream of a trained policy in JAX, ONNX Runtime and NumPy.

python benchmarks/latency.py RUN
"""

import os
import sys
import tempfile
from collections.abc import Callable

import numpy as np

from costate.deploy import numpy_runtime
from costate.deploy.bundle import pack
from costate.deploy.latency import step_microseconds
from costate.deploy.onnx_graph import onnx_model
from costate.deploy.runners import numpy_step, onnx_step
from costate.trained.exporting import load_policy


def numpy_policy(content: bytes) -> numpy_runtime.Policy:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return numpy_runtime.Policy(file.name)


def main(source: str) -> None:
    policy = load_policy(source)
    content = pack(policy.bundle)
    steps: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
        "JAX (policy.predict)": policy.predict,
        "ONNX Runtime": onnx_step(onnx_model(policy.bundle)),
        "NumPy": numpy_step(content),
        "NumPy, `policy.predict` with its checks": numpy_policy(content).predict,
    }
    print(f"{policy!r}, load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    print("| | median µs | lowest tenth | highest tenth |\n|---|---|---|---|")
    for name, step in steps.items():
        low, median, high = np.percentile(step_microseconds(policy, step, 5000), [10, 50, 90])
        print(f"| {name} | {median:.0f} | {low:.0f} | {high:.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
