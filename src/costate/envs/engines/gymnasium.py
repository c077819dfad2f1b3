"""The Gymnasium engine: adapts any vector environment with continuous actions to the environment contract."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from costate._base.checks import WIDEST_BOUND
from costate._base.errors import ConfigError
from costate._base.registry import nearest
from costate._base.types import Bool, Float
from costate.envs.base import Layout
from costate.envs.engines.host import AbstractSimulator, HostEnv, HostRows

MakeOne = Callable[[], gymnasium.Env[Any, Any]]
Space = gymnasium.Space[Any]
MakeVector = Callable[[int], VectorEnv[Any, Any, Any]]
# Name of a Box observation, which has none of its own.
OBSERVATION = "observation"
# Time limit for environments that would never end.
TIME_LIMIT = 1000
# Used if an environment does not give its time step.
UNKNOWN_TIMESTEP = float("nan")


class Described(NamedTuple):
    """The properties of an environment that its task's record needs."""

    layout: Layout
    action_size: int
    control_timestep: float
    episode_steps: int


def maker_of(identifier: str) -> MakeOne:
    """Return a function that makes an environment by id. Raise if Gymnasium does not know the id."""
    if ":" in identifier:
        raise ConfigError(
            f"{identifier!r} asks Gymnasium to import a module, which a name in a config must not do. Import "
            f"the module in a Python file of your own, pass that file with --tasks, and use the id alone."
        )
    if identifier not in gymnasium.registry:
        raise ConfigError(
            f"Gymnasium has no environment {identifier!r}. {nearest(identifier, tuple(gymnasium.registry))}"
        )
    limited = gymnasium.registry[identifier].max_episode_steps is not None
    return lambda: (
        gymnasium.make(identifier) if limited else gymnasium.make(identifier, max_episode_steps=TIME_LIMIT)
    )


def rendering_maker_of(identifier: str) -> MakeOne:
    """Return a function that makes an environment by id, with image rendering if it supports that."""

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(identifier, render_mode="rgb_array")
        except TypeError:
            # It does not accept a render mode.
            return gymnasium.make(identifier)

    return make


def with_rendering(make: Callable[..., gymnasium.Env[Any, Any]]) -> MakeOne:
    """Let ``make`` request image rendering if it accepts a render mode. Otherwise leave it as it is."""
    try:
        takes_mode = "render_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        # A compiled function does not list its parameters.
        takes_mode = False
    return (lambda: make(render_mode="rgb_array")) if takes_mode else make


def with_time_limit(make: MakeOne, episode_steps: int | None) -> MakeOne:
    """Add a time limit to an environment, if one is given."""
    return make if episode_steps is None else lambda: gymnasium.wrappers.TimeLimit(make(), episode_steps)


def describe(name: str, make: MakeOne) -> Described:
    """Make one environment and read its spaces. Raise if it cannot be trained on."""
    env = make_or_explain(name, make)
    try:
        low, _ = action_bounds(name, env.action_space)
        steps = _time_limit(env)
        if steps is None:
            raise ConfigError(
                f"{name} has no time limit. Give episode_steps, after which an episode is cut off."
            )
        return Described(
            observation_layout(name, env.observation_space), low.shape[0], _control_timestep(env), steps
        )
    finally:
        env.close()


def describe_vector(name: str, make: MakeVector, episode_steps: int) -> Described:
    """Do the same for a vector environment, by making one with a single environment."""
    env = make_or_explain(name, lambda: make(1))
    try:
        low, _ = action_bounds(name, env.single_action_space)
        return Described(
            observation_layout(name, env.single_observation_space),
            low.shape[0],
            UNKNOWN_TIMESTEP,
            episode_steps,
        )
    finally:
        env.close()


def make_or_explain(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        missing = isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled)
        advice = (
            " Gymnasium's extras bring what environments need, such as pip install 'gymnasium[mujoco]'."
            if missing
            else ""
        )
        raise ConfigError(
            f"{name} cannot be made: {type(error).__name__}: {str(error).rstrip('.')}.{advice}"
        ) from error


def _time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Return the time limit of the outermost wrapper that has one."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    spec = layer.spec
    return None if spec is None else spec.max_episode_steps


def _control_timestep(env: gymnasium.Env[Any, Any]) -> float:
    """Return the control time step in seconds, from the simulator or from Gymnasium's frame rate."""
    timestep = getattr(env.unwrapped, "dt", None)
    rate = env.metadata.get("render_fps")
    if isinstance(timestep, int | float):
        return float(timestep)
    return 1.0 / rate if rate else UNKNOWN_TIMESTEP


def action_bounds(name: str, space: Space) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """Return the bounds of the flattened control. Raise unless it is continuous and bounded."""
    if not isinstance(space, gymnasium.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ConfigError(
            f"{name} has actions {space}, but only continuous controls are supported: a Box of "
            f"floating-point numbers. Use the continuous version of the environment if there is one (such as "
            f"MountainCarContinuous-v0), or wrap it."
        )
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    if not low.size:
        raise ConfigError(f"{name} has actions {space}, so there is nothing to control.")
    if max(np.abs(low).max(), np.abs(high).max()) > WIDEST_BOUND:
        raise ConfigError(
            f"{name} has actions without bounds, {space}. Wrap it in gymnasium.wrappers.RescaleAction or in "
            f"an ActionWrapper whose action_space has bounds."
        )
    return low, high


def observation_layout(name: str, space: Space) -> Layout:
    """Return the names and sizes of the observations, in the space's order. Raise unless all are vectors.

    An entry of a Dict within a Dict gets both names. Gymnasium itself sorts the entries of a Dict that is
    made from a plain dictionary.
    """
    layout = tuple((label, int(np.prod(box.shape))) for label, box in _boxes(name, space))
    if sum(size for _, size in layout) == 0:
        raise ConfigError(f"{name} has observations {space}, so there is nothing to observe.")
    return layout


def _boxes(name: str, space: Space, label: str = "") -> Iterator[tuple[str, gymnasium.spaces.Box]]:
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _boxes(name, part, f"{label}/{key}" if label else str(key))
        return
    what = f"{name} observes {label} as" if label else f"{name} has observations"
    if not isinstance(space, gymnasium.spaces.Box):
        raise ConfigError(
            f"{what} {space}, but only a Box or a Dict of Boxes is supported. Wrap it in "
            f"gymnasium.wrappers.FlattenObservation."
        )
    if space.dtype == np.uint8 or len(space.shape) > 1:
        raise ConfigError(
            f"{what} {space}, which looks like an image, but policies read vectors. Observe the content of "
            f"the image as numbers. If it is not an image, flatten it with "
            f"gymnasium.wrappers.FlattenObservation."
        )
    yield label or OBSERVATION, space


def flat_observation(observation: Any, space: Space) -> Float[np.ndarray, "N O"]:
    """Copy the observations of all environments into one float32 row each."""
    return np.array(observation_rows(observation, space), np.float32)


def observation_rows(observation: Any, space: Space) -> Float[np.ndarray, "N O"]:
    """Return the same rows, possibly as a view of memory that the environment will overwrite."""
    if isinstance(space, gymnasium.spaces.Dict):
        return np.concatenate(
            [observation_rows(observation[key], part) for key, part in space.spaces.items()], axis=1
        )
    return np.asarray(observation).reshape(len(observation), -1)


class VectorStep(NamedTuple):
    """Result of a vector environment's step.

    Observations are flattened but may be views of its own memory. First rows are included as far as it
    reports them.
    """

    observation: Float[np.ndarray, "N O"]
    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]


def step_next_step(
    env: VectorEnv[Any, Any, Any], space: Space, action: Any, ended: Bool[np.ndarray, " N"]
) -> VectorStep:
    """Step environments that restart one step after their last one and ignore that action: the contract."""
    observation, reward, terminated, truncated, _ = env.step(action)
    return VectorStep(observation_rows(observation, space), reward, terminated, truncated)


def step_same_step(
    env: VectorEnv[Any, Any, Any], space: Space, action: Any, ended: Bool[np.ndarray, " N"]
) -> VectorStep:
    """Step environments that restart within their last step and return the true last observation separately.

    An environment whose episode ended one step earlier has now taken an action that the contract ignores, so
    it is restarted once more.
    """
    observation, reward, terminated, truncated, beside = env.step(action)
    rows = flat_observation(observation, space)
    for i in np.flatnonzero((terminated | truncated) & ~ended):
        last = beside["final_obs"][i]
        rows[i] = flat_observation(batch_of_one(last), space)[0]
    if ended.any():
        rows[ended] = restart(env, space, ended)[ended]
    return VectorStep(rows, reward, terminated, truncated)


def step_disabled(
    env: VectorEnv[Any, Any, Any], space: Space, action: Any, ended: Bool[np.ndarray, " N"]
) -> VectorStep:
    """Step environments that restart only on request.

    An ended environment can only be stepped together with the others, so it is restarted before the step and
    once more after it.
    """
    if ended.any():
        restart(env, space, ended)
    observation, reward, terminated, truncated, _ = env.step(action)
    rows = flat_observation(observation, space)
    if ended.any():
        rows[ended] = restart(env, space, ended)[ended]
    return VectorStep(rows, reward, terminated, truncated)


STEPS: dict[AutoresetMode, Callable[..., VectorStep]] = {
    AutoresetMode.NEXT_STEP: step_next_step,
    AutoresetMode.SAME_STEP: step_same_step,
    AutoresetMode.DISABLED: step_disabled,
}


def restart(
    env: VectorEnv[Any, Any, Any], space: Space, mask: Bool[np.ndarray, " N"]
) -> Float[np.ndarray, "N O"]:
    """Restart some environments, leave the others alone, and return all observations."""
    observation, _ = env.reset(options={"reset_mask": mask.copy()})
    return flat_observation(observation, space)


def batch_of_one(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: batch_of_one(part) for key, part in observation.items()}
    return np.asarray(observation)[None]


def takes_seeds(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether each environment accepts a seed of its own, which the interface does not guarantee.

    If there is only one seed for all of them, runs that train together do not get the episodes that each
    would get alone.
    """
    try:
        _seeded(env, list(range(env.num_envs)))
    except Exception:
        return False
    return True


def _seeded(env: Any, seed: int | list[int]) -> Any:
    return env.reset(seed=seed)


def _one_seed(seeds: Sequence[int]) -> int:
    return int(np.random.SeedSequence(list(seeds)).generate_state(1, np.uint32)[0]) >> 1


class GymnasiumSimulator(AbstractSimulator):
    """A vector environment of Gymnasium, as a simulator."""

    def __init__(self, env: VectorEnv[Any, Any, Any], name: str) -> None:
        self._env = env
        self.count = env.num_envs
        self._space: Space = env.single_observation_space
        self.layout = observation_layout(name, self._space)
        self.action_low, self.action_high = action_bounds(name, env.single_action_space)
        space: Any = env.single_action_space
        self._action_shape, self._action_type = (self.count, *space.shape), space.dtype
        self._is_flat = len(space.shape) == 1
        # Rounding a bound to float32, the type of the controls, can put it slightly outside of itself.
        self._narrower = self._action_type != np.float32
        mode = env.metadata.get("autoreset_mode")
        if mode not in STEPS:
            raise ConfigError(
                f"{name} does not declare how its environments restart: its metadata has autoreset_mode "
                f"{mode!r}. Set it to the mode that it follows: "
                f"{', '.join(f'AutoresetMode.{known.name}' for known in STEPS)}."
            )
        self._step = STEPS[mode]
        self._ended, self._has_ended = np.zeros(self.count, bool), False
        self._seeds_each = takes_seeds(env)
        if mode != AutoresetMode.NEXT_STEP:
            self._require_mask(name, mode)

    def start(self, seeds: Sequence[int]) -> Float[np.ndarray, "N O"]:
        self._ended, self._has_ended = np.zeros(self.count, bool), False
        observation, _ = _seeded(self._env, list(seeds) if self._seeds_each else _one_seed(seeds))
        return flat_observation(observation, self._space)

    def advance(self, action: Float[np.ndarray, "N A"]) -> HostRows:
        # A copy, because an environment may keep its argument.
        action = action.astype(self._action_type)
        if self._narrower:
            action = np.clip(action, self.action_low, self.action_high)
        first, has_first = self._ended, self._has_ended
        stepped = self._step(
            self._env, self._space, action if self._is_flat else action.reshape(self._action_shape), first
        )
        terminated, truncated = stepped.terminated, stepped.truncated
        if has_first:
            terminated, truncated = terminated & ~first, truncated & ~first
        self._ended = terminated | truncated
        self._has_ended = bool(np.count_nonzero(self._ended))
        return HostRows(
            stepped.observation,
            stepped.reward,
            terminated,
            truncated,
            first,
            quiet=not (has_first or self._has_ended),
        )

    def close(self) -> None:
        self._env.close()

    def _require_mask(self, name: str, mode: AutoresetMode) -> None:
        """Raise unless single environments can be restarted while the others are left alone."""
        mask = np.arange(self.count) == 0
        obstacle = "restarted others too"
        try:
            self.start(range(self.count))
            middle = 0.5 * (self.action_low + self.action_high)
            rows = self.advance(np.broadcast_to(middle, (self.count, middle.size)))
            others = ~(mask | rows.terminated | rows.truncated)
            before = rows.observation[others].copy()
            if np.array_equal(restart(self._env, self._space, mask)[others], before):
                return
        except Exception as error:
            obstacle = f"raised {type(error).__name__}: {error}"
        raise ConfigError(
            f"{name} has autoreset_mode {mode.name}. Then the action after a last step can be ignored only "
            f"if "
            f'reset(options={{"reset_mask": mask}}) restarts just the environments in the mask, but it '
            f"{obstacle}. "
            f"Give an environment with AutoresetMode.NEXT_STEP, the default of gymnasium's SyncVectorEnv and "
            f"AsyncVectorEnv."
        )


def host_env(
    name: str, vector: VectorEnv[Any, Any, Any], batch_size: int, seeds: Sequence[int], episode_steps: int
) -> HostEnv:
    """Wrap a vector environment with ``batch_size`` environments per seed for compiled rollouts."""
    if vector.num_envs != batch_size * len(seeds):
        raise ConfigError(
            f"{name} made {vector.num_envs} environments, but {batch_size * len(seeds)} were requested. Make "
            f"the requested number."
        )
    return HostEnv(GymnasiumSimulator(vector, name), name, batch_size, seeds, episode_steps)


def make_vector(name: str, make: MakeOne, count: int) -> VectorEnv[Any, Any, Any]:
    """Make ``count`` environments in this process."""
    vector: VectorEnv[Any, Any, Any] = make_or_explain(
        name, lambda: SyncVectorEnv([make] * count, copy=False)
    )
    return vector
