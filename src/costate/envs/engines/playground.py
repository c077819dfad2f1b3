"""The MuJoCo Playground engine: the paper's own simulator, with JAX physics (MJX) in the compiled rollout.

There is no callback and no host code. Several devices can therefore each step a share of the environments,
and all random numbers come from the keys. Episodes follow the environment contract instead of Playground's
own wrapper. That wrapper starts all episodes of an environment in the same state, and never returns the last
observation of one.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from mujoco_playground import dm_control_suite

from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Int, Key, UInt
from costate.envs.base import AbstractEnv, Layout, TimeStep
from costate.envs.engines.together import by_seed, fold_seeds
from costate.envs.tasks import Task

IMPLEMENTATIONS = ("jax", "warp")
VARIABLE = "COSTATE_MJX_IMPL"

Simulation = Any
"""A ``State`` of Playground: MJX's data, with the observation and reward."""


def implementation() -> str:
    """Return the backend that MJX computes with.

    It is Warp on a graphics card, where that is faster, and else JAX, because Warp cannot be vmapped there.
    The environment variable overrides it.
    """
    chosen = os.environ.get(VARIABLE) or ("warp" if jax.default_backend() == "gpu" else "jax")
    if chosen not in IMPLEMENTATIONS:
        raise ConfigError(
            f"{VARIABLE} is {chosen!r}, but MJX computes with {' or '.join(IMPLEMENTATIONS)}. Unset it to "
            f"choose automatically."
        )
    return chosen


class Simulator(NamedTuple):
    """Playground's environment of a task, and its two functions, vmapped over robots."""

    environment: Any
    start: Callable[[Key[Array, " B"]], Simulation]
    advance: Callable[[Simulation, Float[Array, "B A"]], Simulation]


def load_simulator(name: str) -> Simulator:
    """Load a task's simulator. Raise if Playground does not know the task."""
    if name not in dm_control_suite.ALL_ENVS:
        raise ConfigError(
            f"The installed MuJoCo Playground has no task {name!r}. Install the supported version: pip "
            f"install 'costate[playground]'."
        )
    return _simulator(name, implementation())


@functools.cache
def _simulator(name: str, impl: str) -> Simulator:
    # Cached, and compiled separately from its callers. Tracing MJX takes seconds, and training and
    # evaluations share it.
    environment = dm_control_suite.load(name, config_overrides={"impl": impl})
    return Simulator(
        environment,
        jax.jit(jax.vmap(_with_rank_promotion(environment.reset))),
        jax.jit(jax.vmap(_with_rank_promotion(environment.step))),
    )


class Episodes(eqx.Module):
    """A batch of simulations, how long each has run, and whether its last time step ended an episode."""

    simulation: Simulation
    elapsed: Int[Array, "*B"]
    is_last: Bool[Array, "*B"]


class PlaygroundEnv(AbstractEnv):
    """A batch of one task for each seed. A resumed run needs only its keys."""

    written_in_jax = True

    def __init__(
        self, task: Task, simulator: Simulator, shown: Layout, batch_size: int, seeds: Sequence[int] = (0,)
    ) -> None:
        """Build the batch. ``shown`` is the order in which Playground returns the record's observations."""
        self._simulator = simulator
        self._seeds = np.array(
            [np.random.SeedSequence(seed).generate_state(1)[0] for seed in seeds], np.uint32
        )
        self._order = rearrangement(shown, task.observation)
        self._mesh: Mesh | None = None
        self.batch_size = batch_size
        self.observation_size = task.observation_size
        self.action_size = task.action_size
        self.episode_steps = task.episode_steps
        self.action_low, self.action_high = simulator.environment.mj_model.actuator_ctrlrange.T.astype(
            np.float32
        )
        # Compiled as a whole, because resets run outside of the compiled programs, where JAX would compile
        # each operation separately.
        self._start_one: Callable[..., tuple[Episodes, TimeStep]] = jax.jit(
            lambda key, seed: self._begin(self._split(key, seed))
        )
        self._start_each: Callable[..., tuple[Episodes, TimeStep]] = jax.jit(self._begin_seeds)
        self._step = fold_seeds(self._step_all)

    @property
    def seed_axis(self) -> int:
        return 0

    def reset(self, key: Key[Array, ""]) -> tuple[Episodes, TimeStep]:
        return self._start_one(key, self._seeds[0])

    def reset_seeds(self, keys: Key[Array, " N"]) -> tuple[Episodes, TimeStep]:
        return self._start_each(keys, self._seeds)

    def step(
        self, state: Episodes, action: Float[Array, "B A"], key: Key[Array, ""]
    ) -> tuple[Episodes, TimeStep]:
        state, timestep = self._step(state, action, jax.random.split(key, self.batch_size))
        return state, timestep

    def skip_resets(self, counts: np.ndarray) -> None:
        """Do nothing, because episodes are drawn from the keys."""

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    def share(self, mesh: Mesh) -> bool:
        if self.batch_size * len(self._seeds) % mesh.size:
            return False
        self._mesh = mesh
        return True

    def _begin_seeds(self, keys: Key[Array, " N"], seeds: UInt[Array, " N"]) -> tuple[Episodes, TimeStep]:
        return by_seed(self._begin(jax.vmap(self._split)(keys, seeds).reshape(-1)), keys.shape[0])

    def _split(self, key: Key[Array, ""], seed: UInt[Array, ""]) -> Key[Array, " B"]:
        # The seed is folded in too, so that environments with other seeds, such as those of an evaluation,
        # never repeat these episodes.
        return jax.random.split(jax.random.fold_in(key, seed), self.batch_size)

    def _begin(self, keys: Key[Array, " B"]) -> tuple[Episodes, TimeStep]:
        simulation, count = self._simulator.start(keys), keys.shape[0]
        zeros, never = jnp.zeros(count), jnp.zeros(count, bool)
        episodes = Episodes(simulation, jnp.zeros(count, jnp.int32), never)
        return episodes, TimeStep(
            self._observed(simulation), reward=zeros, discount=zeros + 1.0, is_first=~never, is_last=never
        )

    def _step_all(
        self, state: Episodes, action: Float[Array, "B A"], keys: Key[Array, " B"]
    ) -> tuple[Episodes, TimeStep]:
        """Step any number of environments, those of all seeds, on one device or in shares on several."""
        if self._mesh is None:
            return self._step_share(state, action, keys)
        each = PartitionSpec(self._mesh.axis_names)
        sharded = jax.shard_map(
            self._step_share, mesh=self._mesh, in_specs=each, out_specs=each, check_vma=False
        )
        stepped: tuple[Episodes, TimeStep] = sharded(state, action, keys)
        return stepped

    def _step_share(
        self, state: Episodes, action: Float[Array, "B A"], keys: Key[Array, " B"]
    ) -> tuple[Episodes, TimeStep]:
        over, ran = state.is_last, self._run(state, action)

        def renewed() -> tuple[Episodes, TimeStep]:
            chosen: tuple[Episodes, TimeStep] = jax.tree.map(
                functools.partial(_where, over), self._begin(keys), ran
            )
            return chosen

        # A start can take as long as hundreds of steps, so it runs only if some episode is over. Most end
        # together.
        stepped: tuple[Episodes, TimeStep] = jax.lax.cond(over.any(), renewed, lambda: ran)
        return stepped

    def _run(self, state: Episodes, action: Float[Array, "B A"]) -> tuple[Episodes, TimeStep]:
        """Step every simulation as if no episode were over.

        Diverged physics ends its episode, as in Playground, and the observation stays that of the previous
        step. Nothing else terminates an episode here, and no reward is negative, so that a policy gains
        nothing by it.
        """
        simulation, elapsed = self._simulator.advance(state.simulation, action), state.elapsed + 1
        broken = simulation.done > 0.0
        is_last = broken | (elapsed >= self.episode_steps)
        observation = _where(broken, self._observed(state.simulation), self._observed(simulation))
        reward = jnp.where(broken, 0.0, simulation.reward)
        discount = 1.0 - jnp.float32(broken)
        return Episodes(simulation, elapsed, is_last), TimeStep(
            observation, reward, discount, jnp.zeros_like(is_last), is_last
        )

    def _observed(self, simulation: Simulation) -> Float[Array, "B O"]:
        observation: Float[Array, "B O"] = simulation.obs[:, self._order]
        return observation


def rearrangement(shown: Layout, wanted: Layout) -> Int[np.ndarray, " O"]:
    """Return the index of each number of the layout ``wanted`` in the layout ``shown``.

    Both have the same groups, in different orders.
    """
    starts = dict(
        zip((name for name, _ in shown), np.cumsum([0, *(size for _, size in shown)]), strict=False)
    )
    return np.concatenate([starts[name] + np.arange(size) for name, size in wanted])


def _where(chosen: Bool[Array, " B"], these: Array, others: Array) -> Array:
    """Choose one of two values for each environment, whatever their shape."""
    return jnp.where(chosen.reshape(-1, *[1] * (these.ndim - 1)), these, others)


def _with_rank_promotion(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function of MJX with rank promotion allowed, which MJX relies on, whatever the caller has set."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return function(*arguments)

    return called
