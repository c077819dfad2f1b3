"""Measure how training slows down with the number of hypotheses of an ensemble.

    python benchmarks/ensemble.py [TASK]

Prints the seconds of one rollout and one update for each size.
"""

import contextlib
import dataclasses
import sys
import time

import jax

from costate.config.presets import preset
from costate.envs.factory import make_env
from costate.training.programs import compile_programs, fresh_states, learner_grid, start_episodes
from costate.training.startup import prepare_jax

SIZES = (1, 2, 5, 10)
REPEATS = 3


def seconds(task: str, ensemble: int) -> tuple[float, float]:
    """Return the fastest rollout and the fastest update of a few."""
    config = preset("nc-gru", task)
    config = dataclasses.replace(config, policy=dataclasses.replace(config.policy, ensemble=ensemble))
    with contextlib.closing(make_env(task, config.rollout.environments, (0,), config.sensors)) as env:
        states = fresh_states(config, (0,))
        start = start_episodes(config, env, states)
        programs = compile_programs(config, env, states, start, learner_grid(config, 1, None))
        states = programs.place(states)
        rollouts, updates = [], []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            start, experience = programs.collect(states, start)
            middle = time.perf_counter()
            jax.block_until_ready(programs.update(states, experience))
            rollouts.append(middle - begin)
            updates.append(time.perf_counter() - middle)
    return min(rollouts), min(updates)


def main() -> None:
    task = sys.argv[1] if len(sys.argv) > 1 else "CartpoleSwingup"
    prepare_jax()
    print(f"{task}: {'hypotheses':>10} {'rollout (s)':>12} {'update (s)':>11} {'of one':>7}")
    first = None
    for size in SIZES:
        rollout, update = seconds(task, size)
        first = first or rollout + update
        print(
            f"{'':{len(task)}}  {size:>10} {rollout:12.2f} {update:11.2f} {(rollout + update) / first:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
