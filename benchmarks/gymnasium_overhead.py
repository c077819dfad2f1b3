"""Measure the overhead of stepping a Gymnasium vector environment from inside a compiled loop.

    python benchmarks/gymnasium_overhead.py --id Pendulum-v1 --environments 32

The same environment is also stepped in plain Python. Both get the same actions, made beforehand. They take
turns in short stretches and in which goes first, so that both see the same load. The plain loop only calls
`env.step`; the compiled one also checks, flattens and stacks observations. Lower quartiles and medians are
printed as JSON. On a busy machine the lower quartiles say more.
"""

import argparse
import json
import os
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from costate.envs.engines.gymnasium import make_vector, maker_of
from costate.envs.tasks import TASKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--id", default="Pendulum-v1")
    parser.add_argument("--environments", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=40)
    given = parser.parse_args()

    env = TASKS[f"gym:{given.id}"].build(given.environments, [0])
    plain = make_vector(given.id, maker_of(given.id), given.environments)
    shape = (given.steps, given.environments, env.action_size)
    actions = np.random.default_rng(0).uniform(env.action_low, env.action_high, shape).astype(np.float32)

    def run(state, actions):
        return jax.lax.scan(lambda state, action: env.step(state, action, jax.random.key(0)), state, actions)

    program = jax.jit(run).lower(env.reset(jax.random.key(0))[0], jnp.asarray(actions)).compile()
    inside: list[tuple[float, float]] = []
    outside: list[tuple[float, float]] = []
    load = os.getloadavg()[0]
    on_device = jnp.asarray(actions)
    batched = actions.reshape(given.steps, *plain.action_space.shape)

    def step_inside() -> None:
        state, _ = env.reset(jax.random.key(0))
        started, worked = time.perf_counter(), time.process_time()
        jax.block_until_ready(program(state, on_device))
        inside.append((time.perf_counter() - started, time.process_time() - worked))
        env.check()

    def step_outside() -> None:
        plain.reset(seed=len(outside))
        started, worked = time.perf_counter(), time.process_time()
        for action in batched:
            plain.step(action)
        outside.append((time.perf_counter() - started, time.process_time() - worked))

    for repeat in range(given.repeats + 1):
        for take_turn in (step_inside, step_outside) if repeat % 2 else (step_outside, step_inside):
            take_turn()
    steps = given.steps * given.environments
    # The first time of each is left out. Rows: lower quartile and median; columns: compiled and plain.
    wall, processor = (
        np.array([np.percentile([row[i] for row in rows[1:]], (25, 50)) for rows in (inside, outside)]).T
        for i in range(2)
    )
    result = {
        "id": given.id,
        "environments": given.environments,
        "gymnasium": gymnasium.__version__,
        "jax": jax.__version__,
        "plain_steps_per_second": round(steps / wall[1, 1]),
        "compiled_steps_per_second": round(steps / wall[1, 0]),
        "overhead_wall": [round(row[0] / row[1] - 1.0, 3) for row in wall],
        "overhead_processor": [round(row[0] / row[1] - 1.0, 3) for row in processor],
        "extra_microseconds_of_processor_per_step_of_all": round(
            1e6 * (processor[0, 0] - processor[0, 1]) / given.steps, 1
        ),
        "load_before_and_after": [round(load, 1), round(os.getloadavg()[0], 1)],
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
