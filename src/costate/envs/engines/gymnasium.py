"""The Gymnasium engine: any vector environment with continuous actions, brought to the environment contract whatever its way of starting anew."""

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
# What Box observations are called, which have no names of their own.
OBSERVATION = "observation"
# For environments that would never end.
TIME_LIMIT = 1000
# Where an environment does not say how long a step takes.
UNKNOWN_TIMESTEP = float("nan")


class Described(NamedTuple):
    """What a task's record has to know of an environment."""

    layout: Layout
    action_size: int
    control_timestep: float
    episode_steps: int


def known_id(identifier: str) -> MakeOne:
    """What makes an environment with this id; raises if Gymnasium does not know it."""
    if ":" in identifier:
        raise ConfigError(
            f"{identifier!r} asks to import a module, which a name in a config must not do. Import it in a file of your own, "
            f"give that with --tasks, and use the id alone."
        )
    if identifier not in gymnasium.registry:
        raise ConfigError(
            f"Gymnasium has no environment {identifier!r}. {nearest(identifier, tuple(gymnasium.registry))}"
        )
    limited = gymnasium.registry[identifier].max_episode_steps is not None
    return lambda: (
        gymnasium.make(identifier) if limited else gymnasium.make(identifier, max_episode_steps=TIME_LIMIT)
    )


def pictured_id(identifier: str) -> MakeOne:
    """What makes an environment with a known id whose ``render()`` gives pictures, if it has any to give."""

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(identifier, render_mode="rgb_array")
        except TypeError:
            # It takes no render mode.
            return gymnasium.make(identifier)

    return make


def pictured(make: Callable[..., gymnasium.Env[Any, Any]]) -> MakeOne:
    """The same environment with a ``render()`` that gives pictures, where ``make`` takes a render mode; else as it makes it."""
    try:
        takes_mode = "render_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        # Something compiled, which does not say what it takes.
        takes_mode = False
    return (lambda: make(render_mode="rgb_array")) if takes_mode else make


def limited(make: MakeOne, episode_steps: int | None) -> MakeOne:
    """The same environment with a time limit, where one is given."""
    return make if episode_steps is None else lambda: gymnasium.wrappers.TimeLimit(make(), episode_steps)


def describe(name: str, make: MakeOne) -> Described:
    """Makes one environment and reads its spaces; raises if it cannot be trained on."""
    env = made(name, make)
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
    """The same for a vector environment, of which one with a single environment is made."""
    env = made(name, lambda: make(1))
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


def made(name: str, make: Callable[[], Any]) -> Any:
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
    """That of the outermost wrapper that has one."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    spec = layer.spec
    return None if spec is None else spec.max_episode_steps


def _control_timestep(env: gymnasium.Env[Any, Any]) -> float:
    """Seconds: as a simulator says, or from the rate at which Gymnasium would show it."""
    timestep = getattr(env.unwrapped, "dt", None)
    rate = env.metadata.get("render_fps")
    if isinstance(timestep, int | float):
        return float(timestep)
    return 1.0 / rate if rate else UNKNOWN_TIMESTEP


def action_bounds(name: str, space: Space) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """Bounds of the flattened control; raises if it is not continuous and bounded."""
    if not isinstance(space, gymnasium.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ConfigError(
            f"{name} has actions {space}, but controls here are continuous: a Box of floating-point numbers. Choose the continuous version of the "
            f"environment, if there is one (such as MountainCarContinuous-v0), or wrap it in one."
        )
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    if not low.size:
        raise ConfigError(f"{name} has actions {space}, so that there is nothing to control.")
    if max(np.abs(low).max(), np.abs(high).max()) > WIDEST_BOUND:
        raise ConfigError(
            f"{name} has actions without bounds, {space}. Wrap it in gymnasium.wrappers.RescaleAction or in an ActionWrapper whose action_space says "
            f"how large a control may be."
        )
    return low, high


def observation_layout(name: str, space: Space) -> Layout:
    """Names and sizes of what is observed, in the order of the space; an entry of a Dict within a Dict has both names. Raises unless all are vectors.

    Gymnasium itself sorts the entries of a Dict that is made from a plain dictionary.
    """
    layout = tuple((label, int(np.prod(box.shape))) for label, box in _boxes(name, space))
    if sum(size for _, size in layout) == 0:
        raise ConfigError(f"{name} has observations {space}, so that there is nothing to see.")
    return layout


def _boxes(name: str, space: Space, label: str = "") -> Iterator[tuple[str, gymnasium.spaces.Box]]:
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _boxes(name, part, f"{label}/{key}" if label else str(key))
        return
    what = f"{name} observes {label} as" if label else f"{name} has observations"
    if not isinstance(space, gymnasium.spaces.Box):
        raise ConfigError(
            f"{what} {space}, but observations here are a Box or a Dict of Boxes. Wrap it in gymnasium.wrappers.FlattenObservation."
        )
    if space.dtype == np.uint8 or len(space.shape) > 1:
        raise ConfigError(
            f"{what} {space}, which looks like an image; policies here read vectors. Observe what the image shows as numbers, or flatten an array "
            f"that is none with gymnasium.wrappers.FlattenObservation."
        )
    yield label or OBSERVATION, space


def flat_observation(observation: Any, space: Space) -> Float[np.ndarray, "N O"]:
    """Observations of all environments, as one row of float32 for each; always a copy."""
    return np.array(lent_observation(observation, space), np.float32)


def lent_observation(observation: Any, space: Space) -> Float[np.ndarray, "N O"]:
    """The same rows, where it can be in the memory of the environment, which will write the next ones there."""
    if isinstance(space, gymnasium.spaces.Dict):
        return np.concatenate(
            [lent_observation(observation[key], part) for key, part in space.spaces.items()], axis=1
        )
    return np.asarray(observation).reshape(len(observation), -1)


class Stepped(NamedTuple):
    """What a vector environment returned, observations flattened but perhaps in its own memory, and whatever it says of rows that are first ones."""

    observation: Float[np.ndarray, "N O"]
    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]


def step_next_step(
    env: VectorEnv[Any, Any, Any], space: Space, action: Any, ended: Bool[np.ndarray, " N"]
) -> Stepped:
    """An environment that has ended starts anew with the next step and ignores its action: the contract itself."""
    observation, reward, terminated, truncated, _ = env.step(action)
    return Stepped(lent_observation(observation, space), reward, terminated, truncated)


def step_same_step(
    env: VectorEnv[Any, Any, Any], space: Space, action: Any, ended: Bool[np.ndarray, " N"]
) -> Stepped:
    """An environment that ends has started anew already, and shows its true last observation beside.

    One that had ended before has now been stepped from its start with an action that must be ignored, so it starts once more.
    """
    observation, reward, terminated, truncated, beside = env.step(action)
    rows = flat_observation(observation, space)
    for i in np.flatnonzero((terminated | truncated) & ~ended):
        last = beside["final_obs"][i]
        rows[i] = flat_observation(batch_of_one(last), space)[0]
    if ended.any():
        rows[ended] = restarted(env, space, ended)[ended]
    return Stepped(rows, reward, terminated, truncated)


def step_disabled(
    env: VectorEnv[Any, Any, Any], space: Space, action: Any, ended: Bool[np.ndarray, " N"]
) -> Stepped:
    """An environment that has ended must be told to start anew; it can only be stepped with the others, so it starts before that and again after."""
    if ended.any():
        restarted(env, space, ended)
    observation, reward, terminated, truncated, _ = env.step(action)
    rows = flat_observation(observation, space)
    if ended.any():
        rows[ended] = restarted(env, space, ended)[ended]
    return Stepped(rows, reward, terminated, truncated)


STEPS: dict[AutoresetMode, Callable[..., Stepped]] = {
    AutoresetMode.NEXT_STEP: step_next_step,
    AutoresetMode.SAME_STEP: step_same_step,
    AutoresetMode.DISABLED: step_disabled,
}


def restarted(
    env: VectorEnv[Any, Any, Any], space: Space, mask: Bool[np.ndarray, " N"]
) -> Float[np.ndarray, "N O"]:
    """Observations after a new start of some environments, the others left alone."""
    observation, _ = env.reset(options={"reset_mask": mask.copy()})
    return flat_observation(observation, space)


def batch_of_one(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: batch_of_one(part) for key, part in observation.items()}
    return np.asarray(observation)[None]


def takes_seeds(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether each environment can have a seed of its own, which the interface does not promise; with one for all of them, several runs that train
    together do not see the episodes that each would see alone.
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
    """A vector environment of Gymnasium."""

    def __init__(self, env: VectorEnv[Any, Any, Any], name: str) -> None:
        self._env = env
        self.count = env.num_envs
        self._space: Space = env.single_observation_space
        self.layout = observation_layout(name, self._space)
        self.action_low, self.action_high = action_bounds(name, env.single_action_space)
        space: Any = env.single_action_space
        self._action_shape, self._action_type = (self.count, *space.shape), space.dtype
        self._is_flat = len(space.shape) == 1
        # Rounded to float32, in which controls come, a bound can lie a little outside of itself.
        self._narrower = self._action_type != np.float32
        mode = env.metadata.get("autoreset_mode")
        if mode not in STEPS:
            raise ConfigError(
                f"{name} does not say how its environments start anew: its metadata has autoreset_mode {mode!r}. Set it to the AutoresetMode that it "
                f"follows: {', '.join(f'AutoresetMode.{known.name}' for known in STEPS)}."
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
        # A copy, because an environment may keep what it is given.
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
        """Raise unless single environments can be started anew while the others are left alone."""
        mask = np.arange(self.count) == 0
        obstacle = "started others too"
        try:
            self.start(range(self.count))
            middle = 0.5 * (self.action_low + self.action_high)
            rows = self.advance(np.broadcast_to(middle, (self.count, middle.size)))
            others = ~(mask | rows.terminated | rows.truncated)
            before = rows.observation[others].copy()
            if np.array_equal(restarted(self._env, self._space, mask)[others], before):
                return
        except Exception as error:
            obstacle = f"raised {type(error).__name__}: {error}"
        raise ConfigError(
            f'{name} has autoreset_mode {mode.name}, with which the action after a last step can be ignored only if reset(options={{"reset_mask": '
            f"mask}}) starts the environments of the mask alone; but it {obstacle}. Give one with AutoresetMode.NEXT_STEP, such as gymnasium's "
            f"SyncVectorEnv and AsyncVectorEnv are by default."
        )


def host_env(
    name: str, vector: VectorEnv[Any, Any, Any], batch_size: int, seeds: Sequence[int], episode_steps: int
) -> HostEnv:
    """A vector environment with ``batch_size`` environments for each seed, as one that a compiled rollout can step."""
    if vector.num_envs != batch_size * len(seeds):
        raise ConfigError(
            f"{name} made {vector.num_envs} environments when it was asked for {batch_size * len(seeds)}. Make as many as asked for."
        )
    return HostEnv(GymnasiumSimulator(vector, name), name, batch_size, seeds, episode_steps)


def side_by_side(name: str, make: MakeOne, count: int) -> VectorEnv[Any, Any, Any]:
    """So many environments in this process."""
    vector: VectorEnv[Any, Any, Any] = made(name, lambda: SyncVectorEnv([make] * count, copy=False))
    return vector
