"""Time one iteration after compilation beside the raw engine, in one process: what produced the speeds in the README.

    python benchmarks/iteration.py WalkerStand

Speeds move with the machine and the hour; the ratio of the two moves less.
"""

import time
from typing import Annotated

import jax
import numpy as np
import tyro

from costate.config import PresetName, preset
from costate.envs.base import AbstractEnv
from costate.envs.factory import make_env
from costate.ppo import iteration_keys
from costate.rollout import begin
from costate.training import compile_programs, fresh_state


def main(
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "WalkerStand",
    preset_name: PresetName = "nc-gru",
    repeats: int = 8,
) -> None:
    """Measure.

    Args:
        task: Task to time.
        preset_name: Variant of the paper.
        repeats: Iterations, each followed by as many steps of the raw engine.
    """
    config = preset(preset_name, task)
    env = make_env(task, config.rollout.environments, config.seed, config.sensors)
    state = fresh_state(config)
    rollout_state = begin(env, state.policy, state.key)
    programs = compile_programs(config, env, state, rollout_state)
    engine = compile_engine(env, rollout_state.env_state, config.rollout.rollout_length)
    steps = config.rollout.steps_per_iteration
    collects, updates, raws = [], [], []
    for _ in range(repeats):
        started = time.perf_counter()
        keys = iteration_keys(state.key)
        rollout_state = begin(env, state.policy, keys.reset)
        rollout_state, trajectory, final_value = jax.block_until_ready(
            programs.collect(state.policy, state.observation_stats, rollout_state, keys.rollout)
        )
        collected = time.perf_counter()
        state, _ = jax.block_until_ready(programs.update(state, trajectory, final_value))
        updated = time.perf_counter()
        jax.block_until_ready(engine(rollout_state.env_state, keys.rollout))
        collects.append(collected - started)
        updates.append(updated - collected)
        raws.append(time.perf_counter() - updated)
    whole = np.array(collects) + np.array(updates)
    print(f"{preset_name} on {task}, {steps} steps an iteration, median (best) of {repeats}:")
    print(f"  raw engine   {speed(raws, steps)}")
    print(f"  collect      {speed(collects, steps)}")
    print(f"  update       {speed(updates, steps)}")
    print(f"  end to end   {speed(whole, steps)}   {np.median(raws) / np.median(whole):.2f} of the raw engine")
    print(f"  compiled in  {sum(programs.seconds):.1f} s (rollout {programs.seconds[0]:.1f} s, update {programs.seconds[1]:.1f} s)")


def compile_engine(env: AbstractEnv, env_state: jax.Array, length: int):
    """Random actions and nothing else."""

    def advance(state, key):
        return env.step(state, jax.random.uniform(key, (env.batch_size, env.action_size), minval=-1.0, maxval=1.0), key)

    def run(state, key):
        return jax.lax.scan(advance, state, jax.random.split(key, length))[1].reward.sum()

    return jax.jit(run).lower(env_state, jax.random.key(0)).compile()


def speed(seconds, steps: int) -> str:
    return f"{np.median(seconds):6.2f} s {steps / np.median(seconds):>9,.0f} steps/s  ({steps / np.min(seconds):,.0f})"


if __name__ == "__main__":
    tyro.cli(main)
