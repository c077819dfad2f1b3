"""The two compiled halves of an iteration, for one seed or several, on one device or many."""

import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from costate._types import Array, Float, Key
from costate.config import RunConfig
from costate.envs.base import AbstractEnv
from costate.policy import build_policy
from costate.ppo import SeedMetrics, TrainState, initial_state, iteration_keys, streams_per_minibatch, update_seeds
from costate.rollout import Exploration, RolloutState, Trajectory, begin_seeds, explore, roll_seeds
from costate.sharding import SEEDS, Layout, choose_layout

Tree = TypeVar("Tree")

# Programs that contain the address of a simulator are different in every process. They carry this name, so that a compilation cache can tell them
# from those that are worth keeping.
UNCACHEABLE = "with_simulator"


@dataclasses.dataclass(frozen=True)
class Programs:
    """An iteration: physics and policy on one device, the learner on all of them.

    The rollout is a program of its own, because one that is compiled for several devices would step the simulator once for each.
    """

    layout: Layout
    _explore: Callable[[Key[Array, " N"]], Exploration]
    _collect: Callable[..., tuple[RolloutState, Trajectory, Float[Array, "N B"]]]
    _update: Callable[..., tuple[TrainState, SeedMetrics]]
    _placement: NamedSharding

    def place(self, tree: Tree) -> Tree:
        """``tree``, with the seeds as the first axis of every array, on the learner's devices."""
        placed: Tree = jax.device_put(tree, self._placement)
        return placed

    def collect(self, states: TrainState, rollout_state: RolloutState) -> tuple[RolloutState, Trajectory, Float[Array, "N B"]]:
        """T steps of every environment of every seed. Returns when they are over, because the next reset must not overtake them."""
        inputs = jax.device_put((states.policy, states.observation_stats, states.key), jax.devices()[0])
        collected = self._collect(inputs[0], inputs[1], rollout_state, self._explore(inputs[2]))
        jax.block_until_ready(collected)
        return collected

    def update(self, states: TrainState, trajectories: Trajectory, final_values: Float[Array, "N B"]) -> tuple[TrainState, SeedMetrics]:
        """What every seed learns from its trajectory."""
        return self._update(states, *self.place((trajectories, final_values)))


def learner_layout(config: RunConfig, seeds: int, devices: int | None) -> Layout:
    """The grid of devices for a learner of so many seeds; all that can be used if ``devices`` is None."""
    return choose_layout(devices, len(jax.devices()), seeds, streams_per_minibatch(config.rollout, config.ppo))


def compile_programs(config: RunConfig, env: AbstractEnv, states: TrainState, rollout_state: RolloutState, layout: Layout) -> Programs:
    """Compile before anything runs, so that compile time is known apart and an error in it costs nothing; the two side by side."""
    placement = NamedSharding(layout.mesh(), PartitionSpec(SEEDS))
    explore = lower_explore(config, env, states).compile()
    collect = lower_collect(config, env, states, rollout_state, explore.out_info)
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        compiling = worker.submit(collect.compile)
        _, *experience = collect.out_info
        update = lower_update(config, layout, placement, states, *experience).compile()
        compiled_collect = compiling.result()
    return Programs(layout, explore, compiled_collect, update, placement)


def lower_explore(config: RunConfig, env: AbstractEnv, states: TrainState) -> Any:
    def draw(keys: Key[Array, " N"]) -> Exploration:
        return jax.vmap(lambda key: explore(env, config.rollout, iteration_keys(key).rollout))(keys)

    return jax.jit(draw).lower(_shapes(states.key))


def lower_collect(config: RunConfig, env: AbstractEnv, states: TrainState, rollout_state: RolloutState, exploration: Any) -> Any:
    rollout = functools.partial(roll_seeds, env, config.rollout, config.ppo.discount, config.ppo.bptt_length)
    rollout.__name__ = UNCACHEABLE  # type: ignore[attr-defined]
    return jax.jit(rollout).lower(*_shapes((states.policy, states.observation_stats, rollout_state, exploration)))


def lower_update(config: RunConfig, layout: Layout, placement: NamedSharding, states: Any, trajectories: Any, final_values: Any) -> Any:
    learn = functools.partial(update_seeds, config.ppo, config.rollout, config.iterations, layout.shards)
    by_seed = PartitionSpec(SEEDS)
    # All devices of a group compute the same state from the summed gradient; the check that proves it does not know custom derivatives.
    sharded = jax.shard_map(learn, mesh=placement.mesh, in_specs=by_seed, out_specs=by_seed, check_vma=False)
    return jax.jit(sharded).lower(*_shapes((states, trajectories, final_values), placement))


def _shapes(tree: Any, placement: NamedSharding | None = None) -> Any:
    """What a program has to know of its arguments before it is compiled."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement), tree)


def fresh_state(config: RunConfig) -> TrainState:
    """Training of one seed before its first iteration; a function of the config alone."""
    state: TrainState = jax.tree.map(lambda leaf: leaf[0], fresh_states(config, (config.seed,)))
    return state


def state_template(config: RunConfig) -> TrainState:
    """The shapes of :func:`fresh_state`, computed without it."""
    template: TrainState = jax.eval_shape(functools.partial(_fresh, config), jnp.uint32(0))
    return template


def fresh_states(config: RunConfig, seeds: tuple[int, ...]) -> TrainState:
    """The same for several seeds, which are the first axis."""
    states: TrainState = jax.jit(jax.vmap(functools.partial(_fresh, config)))(jnp.array(seeds, jnp.uint32))
    return states


def _fresh(config: RunConfig, seed: Any) -> TrainState:
    key_policy, key_training = jax.random.split(jax.random.key(seed))
    task = config.task_record
    policy = build_policy(config.policy, key_policy, task.observation_size, task.action_size)
    return initial_state(config.ppo, policy, key_training, task.observation_size)


def start_episodes(env: AbstractEnv, states: TrainState) -> RolloutState:
    """A new episode in every environment, with the keys of the iteration that is to come."""
    keys = _reset_keys(jax.device_put(states.key, jax.devices()[0]))
    return begin_seeds(env, states.policy, keys)


@jax.jit
def _reset_keys(keys: Key[Array, " N"]) -> Key[Array, " N"]:
    return jax.vmap(lambda key: iteration_keys(key).reset)(keys)


@jax.jit
def join_seeds(*states: Tree) -> Tree:
    """One pytree with the seeds as the first axis."""
    joined: Tree = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    return joined


def split_seeds(states: Tree, count: int) -> list[Tree]:
    """The inverse of :func:`join_seeds`, on one device."""
    return list(_split_seeds(jax.device_put(states, jax.devices()[0]), count))


@functools.partial(jax.jit, static_argnums=1)
def _split_seeds(states: Any, count: int) -> tuple[Any, ...]:
    return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(count))
