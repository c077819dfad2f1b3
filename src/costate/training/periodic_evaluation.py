"""Evaluate policies periodically during training, without exploration noise and in separate environments.

Training is not affected: it has other environments and other random keys. Every evaluation plays new
episodes, so that no policy is chosen for a few lucky starts. A resumed run plays those that an uninterrupted
one would.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from costate._base.types import Array, Key
from costate.config.run_config import RunConfig
from costate.envs.base import AbstractEnv, EnvState, TimeStep
from costate.envs.factory import make_env
from costate.learners import learner_for
from costate.learners.episodes import FirstEpisodes, first_episodes
from costate.policies.controllers import AbstractController
from costate.runs.evaluation_log import TrainingEvaluation, best_of, read_log, write_log
from costate.runs.metrics_log import Row
from costate.training.course import Position
from costate.training.group import Group, save_best
from costate.training.programs import program_name
from costate.training.startup import forget_uncacheable

EPISODES = 10
# Added to the seed, so that training and `costate evaluate` play other episodes.
SEED_OFFSET = 2_000_003
# "PERI" in ASCII: folded into the run's key, so that sensors fail at other steps than in training and in
# `costate evaluate`.
KEY_DOMAIN = 0x5045_5249
RETURN, DEVIATION, SECONDS = "eval/episode_reward", "eval/episode_reward_std", "time/evaluation"
# Evaluating a step takes at most as long as training on one, so one evaluated step in fifty is 2 % of the
# time.
TRAINED_PER_EVALUATED = 50


def interval(config: RunConfig) -> int | None:
    """Return the environment steps between two evaluations; None if there are none."""
    if config.evaluate_every is not None:
        return config.evaluate_every or None
    evaluated = EPISODES * config.task_record.episode_steps
    usual = round(TRAINED_PER_EVALUATED * evaluated / learner_for(config).cost_of_a_step)
    # A shorter run is a trial, for which compiling the evaluation would take longer than training.
    return usual if usual <= config.final_steps else None


def is_due(config: RunConfig, iteration: int) -> bool:
    """Return whether a run is evaluated after an iteration: the first after each interval, and the last."""
    every, steps = interval(config), config.rollout.steps_per_iteration
    if every is None or iteration == 0:
        return False
    return iteration == config.iterations or iteration * steps // every > (iteration - 1) * steps // every


class PeriodicEvaluator:
    """Play episodes with the policies of a group, and save the best policy of each run.

    Close it at the end.
    """

    def __init__(self, group: Group, iteration: int) -> None:
        """Continue from ``iteration``. Later evaluations are dropped, because they will be repeated."""
        self._group = group
        self._logs = [_kept(read_log(run), group.config, iteration) for run in group.runs]
        self._env: AbstractEnv | None = None
        self._program: Callable[..., FirstEpisodes] | None = None

    def is_due(self, iteration: int) -> bool:
        return is_due(self._group.config, iteration)

    def evaluate(self, position: Position) -> list[Row]:
        """Play episodes with every run's policy, and return a row to log for each."""
        started = time.perf_counter()
        config, runs, iteration = self._group.config, self._group.runs, position.iteration
        # Only the policies: a state may hold gigabytes of experience.
        controllers = jax.device_put(
            jax.vmap(learner_for(config).controller)(position.states), jax.devices()[0]
        )
        played = self._play(iteration, controllers)
        steps = iteration * config.rollout.steps_per_iteration
        rows: list[Row] = []
        for index, run in enumerate(runs):
            returns = tuple(float(value) for value in played.returns[index])
            # The episode that the reset began counts too.
            began = tuple(1 + int(count) for count in played.restarts[index])
            result, log = TrainingEvaluation(iteration, steps, returns, began), self._logs[index]
            before = best_of(log)
            log.append(result)
            write_log(run, log)
            if before is None or result.mean > before.mean:
                save_best(
                    self._group,
                    index,
                    iteration,
                    position.restarts,
                    position.states,
                    position.saved[index].slowdowns,
                )
            rows.append({RETURN: result.mean, DEVIATION: result.deviation})
        seconds = time.perf_counter() - started
        return [row | {SECONDS: seconds} for row in rows]

    def close(self) -> None:
        """Release the environments."""
        if self._env is not None:
            self._env.close()

    def _play(self, iteration: int, controllers: AbstractController) -> FirstEpisodes:
        """Play all episodes of all seeds at once."""
        env = self._environments()
        keys = [
            jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), KEY_DOMAIN), iteration)
            for seed in self._group.seeds
        ]
        key_reset, key_steps = zip(*(jax.random.split(key) for key in keys), strict=True)
        env_state, timestep = env.reset_seeds(jax.numpy.stack(key_reset))
        if self._program is None:
            player = functools.partial(_play_seeds, env)
            player.__name__ = program_name(env)  # type: ignore[attr-defined]
            self._program = jax.jit(player)
        played = jax.tree.map(
            np.asarray, self._program(controllers, env_state, timestep, jax.numpy.stack(key_steps))
        )
        env.check()
        forget_uncacheable()
        return FirstEpisodes(*played)

    def _environments(self) -> AbstractEnv:
        """Return the environments, built on first use, because most short runs never need them."""
        if self._env is None:
            config = self._group.config
            self._env = make_env(
                config.task, EPISODES, [seed + SEED_OFFSET for seed in self._group.seeds], config.sensors
            )
            started = [
                np.sum([each.restarts for each in log], axis=0, dtype=int) if log else np.zeros(EPISODES, int)
                for log in self._logs
            ]
            self._env.skip_resets(np.concatenate(started))
        return self._env


def _play_seeds(
    env: AbstractEnv,
    controllers: AbstractController,
    env_state: EnvState,
    timestep: TimeStep,
    keys: Key[Array, " N"],
) -> FirstEpisodes:
    """Play with the policies of all seeds, which are the first axis."""

    def one(
        controller: AbstractController, env_state: EnvState, timestep: TimeStep, key: Key[Array, ""]
    ) -> FirstEpisodes:
        return first_episodes(env, controller, env_state, timestep, key)

    played: Any = jax.vmap(one, in_axes=(0, env.seed_axis, 0, 0))(controllers, env_state, timestep, keys)
    return FirstEpisodes(*played)


def _kept(log: list[TrainingEvaluation], config: RunConfig, iteration: int) -> list[TrainingEvaluation]:
    """Return the evaluations that an uninterrupted run would have made by now.

    A run that was made longer was also evaluated at its former end, which is dropped. So are entries with
    more episodes than an evaluation has steps: an altered log would make the simulator reset that often.
    """
    possible = [
        each
        for each in log
        if len(each.restarts) == EPISODES and max(each.restarts) <= config.task_record.episode_steps + 1
    ]
    return [each for each in possible if each.iteration <= iteration and is_due(config, each.iteration)]
