"""The two compiled halves of an iteration, collecting and learning.

They work for any learner, one seed or several, and one device or many.
"""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from costate._base.types import Array, Float, Key
from costate.config.run_config import RunConfig
from costate.envs.base import AbstractEnv
from costate.learners import AnyLearner, learner_for
from costate.learners.base import Metrics
from costate.learners.rollout import Exploration, explore, iteration_keys
from costate.learners.sharding import SEEDS, DeviceGrid, Shards, choose_grid
from costate.learners.states import Acting, Experience, LearnerState, StreamState

Tree = TypeVar("Tree")
SeedMetrics = dict[str, Float[Array, " N"]]

# Programs that contain the address of a simulator differ in every process. They have this name, so that they
# can be removed from the compilation cache.
UNCACHEABLE = "with_simulator"
CACHEABLE = "rollout"


@dataclasses.dataclass(frozen=True)
class Programs:
    """An iteration as two programs: a rollout and an update.

    The rollout runs on one device, or on all of them if the physics is written in JAX. The learner runs on
    all of them. They are separate, because a program for several devices would step other simulators once per
    device, and because a benchmark times them separately.
    """

    grid: DeviceGrid
    _env: AbstractEnv
    _acting: Callable[[LearnerState], Acting]
    _explore: Callable[[Key[Array, " N"]], Exploration]
    _collect: jax.stages.Compiled
    _update: jax.stages.Compiled
    _placement: NamedSharding
    _rollout_sharding: Sharding
    """Devices on which the rollout runs."""

    def place(self, tree: Tree) -> Tree:
        """Move ``tree``, with the seeds as the first axis of every array, to the learner's devices."""
        placed: Tree = jax.device_put(tree, self._placement)
        return placed

    def bring(self, tree: Tree) -> Tree:
        """Move ``tree`` to the devices of the rollout."""
        brought: Tree = jax.device_put(tree, self._rollout_sharding)
        return brought

    def collect(self, states: LearnerState, rollout_state: StreamState) -> tuple[StreamState, Experience]:
        """Make T steps in every environment of every seed.

        Wait until they are done, because the next reset must not overtake them.
        """
        acting, keys, rollout_state = self.bring((self._acting(states), states.key, rollout_state))
        collected: tuple[StreamState, Experience] = self._collect(acting, rollout_state, self._explore(keys))
        jax.block_until_ready(collected)
        self._env.check()
        return collected

    @property
    def working_bytes(self) -> int:
        """Bytes that the larger program takes beside its arguments; 0 if the compiler reports none."""
        return max(
            working_bytes(self._collect, self._rollout_sharding), working_bytes(self._update, self._placement)
        )

    def update(self, states: LearnerState, experience: Experience) -> tuple[LearnerState, SeedMetrics]:
        """Let every seed learn from its experience."""
        updated: tuple[LearnerState, SeedMetrics] = self._update(states, self.place(experience))
        return updated


def learner_grid(config: RunConfig, seeds: int, devices: int | None) -> DeviceGrid:
    """Return the device grid for the given seeds, with all useful devices if ``devices`` is None."""
    learner = learner_for(config)
    # Without a request, a device with next to nothing to do is left out.
    worthwhile = learner.streams if devices is not None else max(1, learner.streams // learner.worth_a_device)
    return choose_grid(devices, len(jax.devices()), seeds, worthwhile)


def compile_programs(
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_state: StreamState, grid: DeviceGrid
) -> Programs:
    """Compile both programs side by side before anything runs.

    The compile time is then known separately, and an error in it costs nothing.
    """
    placement = NamedSharding(grid.mesh(), PartitionSpec(SEEDS))
    rollout_sharding = choose_rollout_sharding(env, grid, placement)
    explore = lower_explore(config, env, states, rollout_sharding).compile()
    collect = lower_collect(config, env, states, rollout_state, explore.out_info, rollout_sharding)
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        compiling = worker.submit(collect.compile)
        _, experience = collect.out_info
        update = lower_update(config, grid, placement, states, experience).compile()
        compiled_collect = compiling.result()
    return Programs(
        grid,
        env,
        learner_for(config).acting,
        explore,
        compiled_collect,
        update,
        placement,
        rollout_sharding,
    )


def working_bytes(program: jax.stages.Compiled, placement: Sharding) -> int:
    """Return the bytes that a program takes beside its arguments, on all of its devices together.

    Return 0 if the compiler does not report them.
    """
    found = program.memory_analysis()
    on_one = 0 if found is None else int(found.temp_size_in_bytes + found.output_size_in_bytes)
    return len(placement.device_set) * on_one


def program_name(env: AbstractEnv) -> str:
    """Return the name of a program that steps the environment, which tells whether it can be cached."""
    return CACHEABLE if env.written_in_jax else UNCACHEABLE


def choose_rollout_sharding(env: AbstractEnv, grid: DeviceGrid, placement: NamedSharding) -> Sharding:
    """Return the devices of a rollout: the learner's if these can share the environments, else the first."""
    shared = grid.devices > 1 and env.share(grid.mesh())
    return placement if shared else SingleDeviceSharding(jax.devices()[0])


def lower_explore(
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_sharding: Sharding
) -> Any:
    return jax.jit(functools.partial(draw_exploration, config, env), out_shardings=rollout_sharding).lower(
        shapes(states.key, rollout_sharding)
    )


def draw_exploration(config: RunConfig, env: AbstractEnv, keys: Key[Array, " N"]) -> Exploration:
    """Draw the random numbers for the rollouts of an iteration from the keys of every seed."""
    return jax.vmap(lambda key: explore(env, config.rollout, iteration_keys(key).rollout))(keys)


def lower_collect(
    config: RunConfig,
    env: AbstractEnv,
    states: LearnerState,
    rollout_state: StreamState,
    exploration: Any,
    rollout_sharding: Sharding,
) -> Any:
    learner = learner_for(config)
    rollout = functools.partial(roll_seeds, learner, env)
    rollout.__name__ = program_name(env)  # type: ignore[attr-defined]
    # The learner needs all rows on every device anyway, so the collected shares are gathered at the end.
    return jax.jit(rollout, out_shardings=rollout_sharding).lower(
        *shapes((learner.acting(states), rollout_state, exploration), rollout_sharding)
    )


def roll_seeds(
    learner: AnyLearner, env: AbstractEnv, acting: Acting, state: StreamState, exploration: Exploration
) -> tuple[StreamState, Experience]:
    """Make a rollout of all seeds together.

    All arrays have the seeds as their first axis, except the state of a simulator that they share.
    """

    def one(acting: Acting, env_state: Any, state: Any, exploration: Exploration) -> tuple[Any, ...]:
        state, experience = learner.roll(env, acting, state.with_env(env_state), exploration)
        return state.env_state, state.with_env(None), experience

    axis = env.seed_axis
    every = jax.vmap(one, in_axes=(0, axis, 0, 0), out_axes=(axis, 0, 0))
    env_state, rest, experience = every(acting, state.env_state, state.with_env(None), exploration)
    return rest.with_env(env_state), experience


def lower_update(
    config: RunConfig, grid: DeviceGrid, placement: NamedSharding, states: Any, experience: Any
) -> Any:
    options = threads_of_a_device(learner_for(config), grid)
    return jax.jit(learn_on(config, grid, placement), compiler_options=options).lower(
        *shapes((states, experience), placement)
    )


def threads_of_a_device(learner: AnyLearner, grid: DeviceGrid) -> dict[str, bool] | None:
    """Return the compiler option that limits each device to one thread, or None.

    It is set if every core is a device and matrix products are too small to gain from two threads.
    """
    every_core = (
        grid.devices > 1
        and grid.devices >= len(os.sched_getaffinity(0))
        and jax.devices()[0].platform == "cpu"
    )
    return {"xla_cpu_multi_thread_eigen": False} if every_core and not learner.spreads_products else None


def learn_on(
    config: RunConfig, grid: DeviceGrid, placement: NamedSharding
) -> Callable[[LearnerState, Experience], tuple[LearnerState, SeedMetrics]]:
    """Return the update of all seeds on the devices of a grid."""
    learn = functools.partial(update_seeds, learner_for(config), grid.shards)
    by_seed = PartitionSpec(SEEDS)
    # All devices of a group compute the same state from the summed gradient. JAX's check of this does not
    # support custom derivatives, so it is off.
    sharded: Callable[..., Any] = jax.shard_map(
        learn, mesh=placement.mesh, in_specs=by_seed, out_specs=by_seed, check_vma=False
    )
    return sharded


def update_seeds(
    learner: AnyLearner, shards: Shards, states: LearnerState, experience: Experience
) -> tuple[LearnerState, SeedMetrics]:
    """Let every seed learn, with the seeds as the first axis of all arrays.

    They learn one after another: a vmap was measured to be no faster, and needs the memory of all at once.
    """

    def one(seed: tuple[LearnerState, Experience]) -> tuple[LearnerState, Metrics]:
        return learner.learn(*seed, shards)

    updated: tuple[LearnerState, SeedMetrics] = jax.lax.map(one, (states, experience))
    return updated


def shapes(tree: Any, placement: Sharding) -> Any:
    """Return the shapes, dtypes and devices of a program's arguments, as needed to compile it."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement), tree)


def fresh_state(config: RunConfig) -> LearnerState:
    """Return the training state of one seed before its first iteration, a function of the config only."""
    state: LearnerState = jax.tree.map(lambda leaf: leaf[0], fresh_states(config, (config.seed,)))
    return state


@functools.lru_cache(maxsize=8)
def state_template(config: RunConfig) -> LearnerState:
    """Return the shapes of :func:`fresh_state` without computing its numbers.

    They are cached, because every file that is read is compared with them.
    """
    template: LearnerState = jax.eval_shape(learner_for(config).fresh, jnp.uint32(0))
    return template


def fresh_states(config: RunConfig, seeds: tuple[int, ...]) -> LearnerState:
    """Return the training states of several seeds, as the first axis, before the first iteration."""
    states: LearnerState = jax.jit(jax.vmap(learner_for(config).fresh))(jnp.array(seeds, jnp.uint32))
    return states


def start_episodes(config: RunConfig, env: AbstractEnv, states: LearnerState) -> StreamState:
    """Start a new episode in every environment, with the keys of the next iteration."""
    keys = _reset_keys(jax.device_put(states.key, jax.devices()[0]))
    started: StreamState = learner_for(config).begin(env, states, keys)
    return started


@jax.jit
def _reset_keys(keys: Key[Array, " N"]) -> Key[Array, " N"]:
    return jax.vmap(lambda key: iteration_keys(key).reset)(keys)


@jax.jit
def join_seeds(*states: Tree) -> Tree:
    """Stack the states of seeds into one pytree with the seeds as the first axis."""
    joined: Tree = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    return joined


def split_seeds(states: Tree, count: int) -> list[Tree]:
    """Undo :func:`join_seeds`, on one device."""
    return list(_split_seeds(jax.device_put(states, jax.devices()[0]), count))


@functools.partial(jax.jit, static_argnums=1)
def _split_seeds(states: Any, count: int) -> tuple[Any, ...]:
    return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(count))
