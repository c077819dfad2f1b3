"""Frame stacking, the oldest kind of memory: the last few observations, and nothing before them."""

import dataclasses

import jax
import jax.numpy as jnp

from costate._base.checks import require_at_most
from costate._base.errors import ConfigError
from costate._base.types import Array, Bool, Float, Key
from costate.policies.cores.base import (
    CORES,
    AbstractFastCore,
    CoreConfig,
    CoreFlops,
    Memory,
    as_rows,
    remember,
)
from costate.policies.initialisation import Initialisation, recurrent_matrix


class FrameStack(AbstractFastCore):
    """h_t = tanh(Σ_i W_i ỹ_{t−i} + b) over the k newest encoded observations, with zeros before the first.

    The state consists of these k observations, the newest first, and h is a function of them. A step writes
    only the newest, so ∂h_t/∂ỹ_t is W_0's.
    """

    input_weights: Float[Array, "K F H"]
    bias: Float[Array, " H"]

    @property
    def hidden_size(self) -> int:
        return self.bias.shape[-1]

    @property
    def state_size(self) -> int:
        return self.input_weights.shape[-3] * self.input_weights.shape[-2]

    def step(self, feature: Float[Array, " F"], state: Float[Array, " C"]) -> Float[Array, " C"]:
        return jnp.concatenate([feature, state[: -feature.shape[0]]])

    def expose(self, state: Float[Array, "*N C"]) -> Float[Array, "*N H"]:
        drive = state @ self.input_weights.reshape(-1, self.hidden_size)
        return jnp.tanh(drive + jnp.broadcast_to(self.bias, drive.shape))

    def fast_read(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Memory:
        # All steps at once, because nothing that is remembered has to be computed.
        states = self._stack(features, state, is_first)
        return remember(self, features, states, state, is_first, tape=self.expose(states))

    def fast_feature_gradients(
        self, memory: Memory, cotangents: Float[Array, "T B H"]
    ) -> Float[Array, "T B F"]:
        """Return ((1 − h²) ⊙ c) W_0ᵀ."""
        h = memory.tape
        return (as_rows((1.0 - h * h) * cotangents) @ self.input_weights[0].T).reshape(*h.shape[:2], -1)

    def _stack(
        self, features: Float[Array, "T B F"], state: Float[Array, "B C"], is_first: Bool[Array, "T B"]
    ) -> Float[Array, "T B C"]:
        """Return the state after every step: row t holds ỹ_t, ỹ_{t−1}, … back to the start of its episode."""
        frames, width = self.input_weights.shape[:2]
        steps = features.shape[0]
        # The oldest first, as a sequence before this one.
        before = state.reshape(-1, frames, width)[:, ::-1].swapaxes(0, 1)
        line = jnp.concatenate([before, features])
        # Steps of the episode before each step. An episode that began before this sequence reaches back
        # through all that was carried.
        age = jnp.where(is_first, 0, frames)
        for lag in range(1, frames):
            age = age.at[lag:].min(jnp.where(is_first[:-lag], lag, frames)) if lag < steps else age
        windows = [
            jnp.where((age >= lag)[..., None], line[frames - lag : frames - lag + steps], 0.0)
            for lag in range(frames)
        ]
        return jnp.concatenate(windows, axis=-1)


# More than the steps of an episode. Each frame has its own matrix.
MOST_FRAMES = 10_000


@CORES.register("frame-stack")
@dataclasses.dataclass(frozen=True)
class FrameStackConfig(CoreConfig):
    """A layer on the last few encoded observations: a baseline without a recurrent memory."""

    shows_all = False

    frames: int = 8
    """Observations that are remembered, the present one included.

    At 50 % blackout at least one of 8 was seen with probability 0.996.
    """
    initialisation: Initialisation = "orthogonal"
    """Initial input matrices."""

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ConfigError(
                f"frames is {self.frames}, but at least the present observation must be read. The default "
                "is 8."
            )
        require_at_most("frames", self.frames, MOST_FRAMES)

    def build(self, key: Key[Array, ""], feature_size: int, hidden_size: int) -> FrameStack:
        keys = jax.random.split(key, self.frames)
        weights = jnp.stack(
            [recurrent_matrix(k, self.initialisation, feature_size, hidden_size) for k in keys]
        )
        return FrameStack(weights, jnp.zeros(hidden_size))

    def flops(self, hidden_size: int) -> CoreFlops:
        square = 2.0 * hidden_size**2
        return CoreFlops(self.frames * square, square)
