"""One environment of Gymnasium to be looked at: drawn from MuJoCo's model where it has one, else by its own ``render()``."""

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
    made,
)
from costate.envs.stage import Outcome
from costate.envs.visible import AbstractPicturedRobot, AbstractRobot, AbstractVisibleRobot


def visible_robot(name: str, make_vector: MakeVector, make_pictured: MakeOne | None) -> AbstractRobot:
    """The environment that MuJoCo simulates, or one that ``make_pictured`` makes; raises if neither can be drawn."""
    vector = made(name, lambda: make_vector(1))
    inside: Any = getattr(vector, "envs", [None])[0]
    if type(getattr(getattr(inside, "unwrapped", None), "model", None)).__name__ == "MjModel":
        return GymnasiumRobot(name, inside, vector.close)
    if make_pictured is None and inside is not None:
        return PicturedRobot(name, inside, vector.close)
    vector.close()
    if make_pictured is None:
        raise ConfigError(
            f"{name} cannot be drawn: its vector environment does not show its environments as `envs`. Give one that steps them in this process, "
            f"such as gymnasium.vector.SyncVectorEnv, or register a single one with register_gymnasium."
        )
    env = made(name, make_pictured)
    return PicturedRobot(name, env, env.close)


class Actuators(AbstractActuators):
    """Of one environment."""

    batch_size = 1

    def __init__(self, name: str, space: Space) -> None:
        self.action_low, self.action_high = action_bounds(name, space)
        self.action_size = self.action_low.size


class _Stepped(AbstractRobot):
    """One environment, stepped by itself."""

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


class GymnasiumRobot(_Stepped, AbstractVisibleRobot):
    """One environment that MuJoCo simulates."""

    @property
    def model(self) -> Any:
        unwrapped: Any = self._env.unwrapped
        return unwrapped.model

    @property
    def data(self) -> Any:
        unwrapped: Any = self._env.unwrapped
        return unwrapped.data


class PicturedRobot(_Stepped, AbstractPicturedRobot):
    """One environment whose ``render()`` gives pictures; refused at once if it gives none."""

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
                f"{self._name} cannot be drawn: its render() needs a package that is missing. {str(error).rstrip('.')}."
            ) from error
        except Exception as error:
            raise ConfigError(
                f"{self._name} cannot be drawn: its render() raised {type(error).__name__}: {str(error).rstrip('.')}."
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
            f"{self._name} cannot be drawn: its render() gave {gave} and not a picture, an array of uint8[height, width, 3]. Its render mode is "
            f"{self._env.render_mode!r}, and {known}. Give it the mode 'rgb_array': register a function that takes it, such as "
            f"lambda render_mode=None: MyEnv(render_mode=render_mode), and return a picture from render(). `costate evaluate` and `costate report` "
            f"need no pictures."
        )
