"""One environment of Gymnasium for drawing, from its MuJoCo model or else by its own ``render()``."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from costate._base.errors import ConfigError
from costate._base.types import Float, UInt8
from costate.envs.base import AbstractActuators
from costate.envs.engines.gymnasium import (
    MakeOne,
    MakeVector,
    Space,
    action_bounds,
    batch_of_one,
    flat_observation,
    make_or_explain,
)
from costate.envs.stage import Outcome
from costate.envs.visible import AbstractPicturedRobot, AbstractRobot, AbstractVisibleRobot


def visible_robot(name: str, make_vector: MakeVector, make_pictured: MakeOne | None) -> AbstractRobot:
    """Return the first environment if it runs in MuJoCo, else one that ``make_pictured`` makes.

    Raise if neither can be drawn.
    """
    vector = make_or_explain(name, lambda: make_vector(1))
    inside: Any = getattr(vector, "envs", [None])[0]
    if type(getattr(getattr(inside, "unwrapped", None), "model", None)).__name__ == "MjModel":
        return GymnasiumRobot(name, inside, vector.close)
    if make_pictured is None and inside is not None:
        return PicturedRobot(name, inside, vector.close)
    vector.close()
    if make_pictured is None:
        raise ConfigError(
            f"{name} cannot be drawn: its vector environment has no attribute `envs` with its environments. "
            f"Use one that steps them in this process, such as gymnasium.vector.SyncVectorEnv, or register a "
            f"single one with register_gymnasium."
        )
    env = make_or_explain(name, make_pictured)
    return PicturedRobot(name, env, env.close)


class Actuators(AbstractActuators):
    """Actuators of one environment."""

    batch_size = 1

    def __init__(self, name: str, space: Space) -> None:
        self.action_low, self.action_high = action_bounds(name, space)
        self.action_size = self.action_low.size


class _GymnasiumEnvironment(AbstractRobot):
    """One environment, stepped on its own."""

    def __init__(self, name: str, env: gymnasium.Env[Any, Any], close: Callable[[], object]) -> None:
        self._env, self._close = env, close
        self.actuators = Actuators(name, env.action_space)
        self._observation: Any = None

    def start(self, seed: int) -> None:
        self._observation, _ = self._env.reset(seed=seed)

    def observe(self) -> Float[np.ndarray, " O"]:
        rows: Float[np.ndarray, "1 O"] = flat_observation(
            batch_of_one(self._observation), self._env.observation_space
        )
        observation: Float[np.ndarray, " O"] = rows[0].astype(np.float64)
        return observation

    def step(self, control: Float[np.ndarray, " U"]) -> Outcome:
        space: Any = self._env.action_space
        action = (
            np.clip(control, self.actuators.action_low, self.actuators.action_high)
            .reshape(space.shape)
            .astype(space.dtype)
        )
        self._observation, reward, terminated, _, _ = self._env.step(action)
        return Outcome(float(reward), bool(terminated))

    def close(self) -> None:
        self._close()


class GymnasiumRobot(_GymnasiumEnvironment, AbstractVisibleRobot):
    """One environment that runs in MuJoCo."""

    @property
    def model(self) -> Any:
        unwrapped: Any = self._env.unwrapped
        return unwrapped.model

    @property
    def data(self) -> Any:
        unwrapped: Any = self._env.unwrapped
        return unwrapped.data


class PicturedRobot(_GymnasiumEnvironment, AbstractPicturedRobot):
    """One environment whose ``render()`` returns images. It is rejected at once if it returns none."""

    def __init__(self, name: str, env: gymnasium.Env[Any, Any], close: Callable[[], object]) -> None:
        super().__init__(name, env, close)
        self._name = name
        try:
            self.start(0)
            self.picture()
        except Exception:
            close()
            raise

    def picture(self) -> UInt8[np.ndarray, "H W 3"]:
        try:
            shown: Any = self._env.render()
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise ConfigError(
                f"{self._name} cannot be drawn: its render() needs a package that is missing. "
                f"{str(error).rstrip('.')}."
            ) from error
        except Exception as error:
            raise ConfigError(
                f"{self._name} cannot be drawn: its render() raised {type(error).__name__}: "
                f"{str(error).rstrip('.')}."
            ) from error
        picture = np.asarray(shown)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ConfigError(self._no_picture(shown))
        return picture

    def _no_picture(self, shown: Any) -> str:
        modes = self._env.metadata.get("render_modes") or ()
        gave = (
            f"an array of {shown.dtype}{list(shown.shape)}"
            if isinstance(shown, np.ndarray)
            else type(shown).__name__
        )
        known = f"it knows {', '.join(map(str, modes))}" if modes else "it names none in its metadata"
        return (
            f"{self._name} cannot be drawn: its render() returned {gave} instead of an image, an array of "
            f"uint8[height, width, 3]. Its render mode is {self._env.render_mode!r}, and {known}. Use the "
            f"mode 'rgb_array': register a function that accepts it, such as lambda render_mode=None: "
            f"MyEnv(render_mode=render_mode), and return an image from render(). `costate evaluate` and "
            f"`costate report` need no images."
        )
