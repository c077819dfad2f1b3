"""Runs for views and films, made without training: weights are random, and metrics made up."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from costate.config.run_config import RunConfig, to_json
from costate.learners import learner_for
from costate.runs.checkpoint import Checkpoint, save, save_milestone
from costate.runs.run_directory import Run, create_run
from costate.training.programs import state_template


def made_run(path: pathlib.Path, config: RunConfig, steps: tuple[int, ...] = (0, 4000, 8000)) -> Run:
    """Make a run with a milestone at each of ``steps``, and a checkpoint at the last two."""
    run = create_run(path, config, {}, overwrite=False)
    algorithm = learner_for(config)
    for number, step in enumerate(steps):
        state = shaken(state_template(config), seed=100 * config.seed + number)
        # Before its first iteration no environment has started a second episode.
        checkpoint = Checkpoint(
            number, step, to_json(config), (min(number, 1),) * config.rollout.environments
        )
        save_milestone(run.milestones, checkpoint, algorithm.insight(state))
        if number >= len(steps) - 2:
            save(run.checkpoints, checkpoint, *algorithm.detach_replay(state))
    rows = [
        {
            "env_steps": step,
            "training/episode_reward": 10.0 * i,
            "costate/cosine": 0.1 * i,
            "training/sps": 1e4,
        }
        for i, step in enumerate(steps)
    ]
    run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return run


def shaken(template: object, seed: int) -> object:
    """Return a state of the right shape with random values in every array."""
    draws = np.random.default_rng(seed)

    def fill(path: tuple[object, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(seed)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.zeros(leaf.shape, leaf.dtype)
        values = draws.normal(size=leaf.shape) / np.sqrt(max((1, *leaf.shape[-2:])))
        # Variances and counts are positive.
        return jnp.asarray(
            np.abs(values) + 0.5 if "stats" in jax.tree_util.keystr(path) else values, leaf.dtype
        )

    return jax.tree_util.tree_map_with_path(fill, template)
