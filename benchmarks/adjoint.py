"""Measure how long the true co-states of one episode take: the times in docs/adjoint.md.

    python benchmarks/adjoint.py WalkerStand

The policy is untrained. Times include compilation, and grow with the number of the robot's contacts.
"""

import os
import time
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from costate.config.presets import preset
from costate.learners import learner_for
from costate.trained.recording import record_episode
from costate.trained.true_costates import true_costates


def main(
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "WalkerStand",
    steps: int = 1000,
    threads: int = 2,
) -> None:
    """Record an episode and differentiate it.

    Args:
        task: Task of dm_control.
        steps: Control steps.
        threads: Threads that differentiate.
    """
    algorithm = learner_for(preset("nc-gru", task))
    controller = algorithm.controller(jax.jit(algorithm.fresh)(jnp.uint32(0)))
    start = time.perf_counter()
    episode = record_episode(task, controller, seed=0, dropout=0.5, steps=steps)
    recorded, worked = time.perf_counter(), time.process_time()
    costates = true_costates(episode, 0.99, threads=threads)
    derived, work = time.perf_counter(), time.process_time() - worked
    load = os.getloadavg()[0]
    print(
        f"{task}, {steps} steps, {len(costates.names)} components, {threads} threads, load average "
        f"{load:.1f} on {os.cpu_count()} cores"
    )
    print(
        f"recording {recorded - start:.1f} s, co-states {derived - recorded:.1f} s, of which {work:.1f} s of "
        "processor time"
    )
    sizes = np.linalg.norm(costates.closed_loop, axis=1)
    print(
        "norm of the closed-loop co-state, every tenth of the episode: "
        + " ".join(f"{size:.2g}" for size in sizes[:: max(steps // 10, 1)])
    )


if __name__ == "__main__":
    tyro.cli(main)
