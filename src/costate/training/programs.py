"""The two compiled halves of an iteration, collecting and learning, for one seed or several, on one device or many, whatever the learner."""

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
from costate.learners.sharding import SEEDS, Layout, Shards, choose_layout
from costate.learners.states import Acting, Experience, LearnerState, StreamState

Tree = TypeVar("Tree")
SeedMetrics = dict[str, Float[Array, " N"]]

# Programs that contain the address of a simulator are different in every process. They carry this name, so that a compilation cache can tell them
# from those that are worth keeping.
UNCACHEABLE = "with_simulator"
CACHEABLE = "rollout"


@dataclasses.dataclass(frozen=True)
class Programs:
    """An iteration: physics and policy on one device, or on all of them where the physics is written in JAX; the learner on all of them.

    The rollout is a program of its own, because one that is compiled for several devices would step another simulator once for each; and because a
    benchmark wants to time the two apart.
    """

    layout: Layout
    _env: AbstractEnv
    _acting: Callable[[LearnerState], Acting]
    _explore: Callable[[Key[Array, " N"]], Exploration]
    _collect: jax.stages.Compiled
    _update: jax.stages.Compiled
    _placement: NamedSharding
    _stage: Sharding
    """Where the rollout runs."""

    def place(self, tree: Tree) -> Tree:
        """``tree``, with the seeds as the first axis of every array, on the learner's devices."""
        placed: Tree = jax.device_put(tree, self._placement)
        return placed

    def bring(self, tree: Tree) -> Tree:
        """``tree`` where the rollout runs."""
        brought: Tree = jax.device_put(tree, self._stage)
        return brought

    def collect(self, states: LearnerState, rollout_state: StreamState) -> tuple[StreamState, Experience]:
        """T steps of every environment of every seed. Returns when they are over, because the next reset must not overtake them."""
        acting, keys, rollout_state = self.bring((self._acting(states), states.key, rollout_state))
        collected: tuple[StreamState, Experience] = self._collect(acting, rollout_state, self._explore(keys))
        jax.block_until_ready(collected)
        self._env.check()
        return collected

    @property
    def working_bytes(self) -> int:
        """Memory that the larger of the two takes beside its arguments; 0 where the compiler does not say."""
        return max(working_bytes(self._collect, self._stage), working_bytes(self._update, self._placement))

    def update(self, states: LearnerState, experience: Experience) -> tuple[LearnerState, SeedMetrics]:
        """What every seed learns from its experience."""
        updated: tuple[LearnerState, SeedMetrics] = self._update(states, self.place(experience))
        return updated


def learner_layout(config: RunConfig, seeds: int, devices: int | None) -> Layout:
    """The grid of devices for a learner of so many seeds; all that are of use if ``devices`` is None."""
    learner = learner_for(config)
    # Nobody asked for devices with next to nothing to do.
    worthwhile = learner.streams if devices is not None else max(1, learner.streams // learner.worth_a_device)
    return choose_layout(devices, len(jax.devices()), seeds, worthwhile)


def compile_programs(
    config: RunConfig, env: AbstractEnv, states: LearnerState, rollout_state: StreamState, layout: Layout
) -> Programs:
    """Compile before anything runs, so that compile time is known apart and an error in it costs nothing; the two side by side."""
    placement = NamedSharding(layout.mesh(), PartitionSpec(SEEDS))
    stage = rollout_stage(env, layout, placement)
    explore = lower_explore(config, env, states, stage).compile()
    collect = lower_collect(config, env, states, rollout_state, explore.out_info, stage)
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        compiling = worker.submit(collect.compile)
        _, experience = collect.out_info
        update = lower_update(config, layout, placement, states, experience).compile()
        compiled_collect = compiling.result()
    return Programs(
        layout, env, learner_for(config).acting, explore, compiled_collect, update, placement, stage
    )


def working_bytes(program: jax.stages.Compiled, placement: Sharding) -> int:
    """Memory that a program takes beside its arguments, on all of its devices; 0 where the compiler does not say."""
    found = program.memory_analysis()
    on_one = 0 if found is None else int(found.temp_size_in_bytes + found.output_size_in_bytes)
    return len(placement.device_set) * on_one


def program_name(env: AbstractEnv) -> str:
    """Of a program with steps of the environment inside."""
    return CACHEABLE if env.written_in_jax else UNCACHEABLE


def rollout_stage(env: AbstractEnv, layout: Layout, placement: NamedSharding) -> Sharding:
    """Where a rollout runs: on the learner's devices where each can step a share of the environments, else on the first."""
    shared = layout.devices > 1 and env.share(layout.mesh())
    return placement if shared else SingleDeviceSharding(jax.devices()[0])


def lower_explore(config: RunConfig, env: AbstractEnv, states: LearnerState, stage: Sharding) -> Any:
    return jax.jit(functools.partial(draw_exploration, config, env), out_shardings=stage).lower(
        shapes(states.key, stage)
    )


def draw_exploration(config: RunConfig, env: AbstractEnv, keys: Key[Array, " N"]) -> Exploration:
    """What is random in the rollouts of an iteration, by the keys of every seed."""
    return jax.vmap(lambda key: explore(env, config.rollout, iteration_keys(key).rollout))(keys)


def lower_collect(
    config: RunConfig,
    env: AbstractEnv,
    states: LearnerState,
    rollout_state: StreamState,
    exploration: Any,
    stage: Sharding,
) -> Any:
    learner = learner_for(config)
    rollout = functools.partial(roll_seeds, learner, env)
    rollout.__name__ = program_name(env)  # type: ignore[attr-defined]
    # The learner needs all rows on every device anyway, so what was collected in shares is brought together at the end.
    return jax.jit(rollout, out_shardings=stage).lower(
        *shapes((learner.acting(states), rollout_state, exploration), stage)
    )


def roll_seeds(
    learner: AnyLearner, env: AbstractEnv, acting: Acting, state: StreamState, exploration: Exploration
) -> tuple[StreamState, Experience]:
    """A rollout of all seeds together; everything but a simulator's state that they share has the seeds as its first axis."""

    def one(acting: Acting, env_state: Any, state: Any, exploration: Exploration) -> tuple[Any, ...]:
        state, experience = learner.roll(env, acting, state.with_env(env_state), exploration)
        return state.env_state, state.with_env(None), experience

    axis = env.seed_axis
    every = jax.vmap(one, in_axes=(0, axis, 0, 0), out_axes=(axis, 0, 0))
    env_state, rest, experience = every(acting, state.env_state, state.with_env(None), exploration)
    return rest.with_env(env_state), experience


def lower_update(
    config: RunConfig, layout: Layout, placement: NamedSharding, states: Any, experience: Any
) -> Any:
    options = threads_of_a_device(learner_for(config), layout)
    return jax.jit(learn_on(config, layout, placement), compiler_options=options).lower(
        *shapes((states, experience), placement)
    )


def threads_of_a_device(learner: AnyLearner, layout: Layout) -> dict[str, bool] | None:
    """What the compiler is told of threads: one for each device, where every core is one and small products gain nothing from two."""
    every_core = (
        layout.devices > 1
        and layout.devices >= len(os.sched_getaffinity(0))
        and jax.devices()[0].platform == "cpu"
    )
    return {"xla_cpu_multi_thread_eigen": False} if every_core and not learner.spreads_products else None


def learn_on(
    config: RunConfig, layout: Layout, placement: NamedSharding
) -> Callable[[LearnerState, Experience], tuple[LearnerState, SeedMetrics]]:
    """The learner of all seeds on the devices of a layout."""
    learn = functools.partial(update_seeds, learner_for(config), layout.shards)
    by_seed = PartitionSpec(SEEDS)
    # All devices of a group compute the same state from the summed gradient; the check that proves it does not know custom derivatives.
    sharded: Callable[..., Any] = jax.shard_map(
        learn, mesh=placement.mesh, in_specs=by_seed, out_specs=by_seed, check_vma=False
    )
    return sharded


def update_seeds(
    learner: AnyLearner, shards: Shards, states: LearnerState, experience: Experience
) -> tuple[LearnerState, SeedMetrics]:
    """What every seed learns; seeds are the first axis of everything.

    One after the other: vmapping them was measured to be no faster, and needs the memory of all at once.
    """

    def one(seed: tuple[LearnerState, Experience]) -> tuple[LearnerState, Metrics]:
        return learner.learn(*seed, shards)

    updated: tuple[LearnerState, SeedMetrics] = jax.lax.map(one, (states, experience))
    return updated


def shapes(tree: Any, placement: Sharding) -> Any:
    """What a program has to know of its arguments before it is compiled."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement), tree)


def fresh_state(config: RunConfig) -> LearnerState:
    """Training of one seed before its first iteration; a function of the config alone."""
    state: LearnerState = jax.tree.map(lambda leaf: leaf[0], fresh_states(config, (config.seed,)))
    return state


@functools.lru_cache(maxsize=8)
def state_template(config: RunConfig) -> LearnerState:
    """The shapes of :func:`fresh_state`, computed without it, and only once for one config: every file that is read is compared with them."""
    template: LearnerState = jax.eval_shape(learner_for(config).fresh, jnp.uint32(0))
    return template


def fresh_states(config: RunConfig, seeds: tuple[int, ...]) -> LearnerState:
    """The same for several seeds, which are the first axis."""
    states: LearnerState = jax.jit(jax.vmap(learner_for(config).fresh))(jnp.array(seeds, jnp.uint32))
    return states


def start_episodes(config: RunConfig, env: AbstractEnv, states: LearnerState) -> StreamState:
    """A new episode in every environment, with the keys of the iteration that is to come."""
    keys = _reset_keys(jax.device_put(states.key, jax.devices()[0]))
    started: StreamState = learner_for(config).begin(env, states, keys)
    return started


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
