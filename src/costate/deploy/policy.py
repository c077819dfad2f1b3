"""The policy object for notebooks, Gymnasium loops and robots."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import numpy as np

from costate._base.errors import MisuseError
from costate._base.types import Array, Bool, Float
from costate.deploy.bundle import Bundle, network_of, translated_errors
from costate.deploy.network import AbstractNetwork, Decision
from costate.deploy.numpy_runtime import Inputs, changed_batch, streams_of


@final
class Policy:
    """A trained policy that acts without noise, including its frozen normaliser.

    It takes and returns NumPy arrays.
    ``step`` keeps the memory, ``predict`` takes and returns it, and ``function`` is a pure function for JAX.
    An observation is a vector [O], rows of them [B, O], or a mapping from the names in
    ``observation_layout``.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._network = network_of(bundle)
        self._inputs = Inputs(bundle.description, self._network.state_size)
        self._act, self._differentiate = _compiled(self._network)
        self._state: Float[np.ndarray, "B S"] | None = None
        self._last: tuple[Decision, tuple[Any, ...], bool] | None = None

    def __repr__(self) -> str:
        made, policy = self.provenance, self._bundle.description["policy"]
        core, size = policy["core"]["name"], policy["hidden_size"]
        return f"<costate.Policy: {core} {size} for {made.get('task')}, step {made.get('env_steps'):,}>"

    @property
    def function(self) -> AbstractNetwork:
        """The policy as a pure function for ``jit``, ``vmap`` and ``scan``.

        It maps ``(observation [B, O], state [B, S], is_first [B])`` to ``Decision(action, state, hidden,
        value)``.
        """
        return self._network

    @property
    def description(self) -> dict[str, Any]:
        """The content of the bundle besides its weights."""
        return self._bundle.description

    @property
    def bundle(self) -> Bundle:
        return self._bundle

    @property
    def provenance(self) -> dict[str, Any]:
        """Task, seed, steps and config of the training that produced the policy."""
        made: dict[str, Any] = self._bundle.description["provenance"]
        return made

    @property
    def observation_layout(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the observed groups, in order."""
        return tuple((name, size) for name, size in self._bundle.description["observation"])

    @property
    def absent_sensors(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the task's groups of sensors that were hidden in training, and are not read."""
        return tuple((name, size) for name, size in self._bundle.description["sensors"].get("absent", []))

    @property
    def action_low(self) -> Float[np.ndarray, " A"]:
        return np.asarray(self._network.low, np.float32)

    @property
    def action_high(self) -> Float[np.ndarray, " A"]:
        return np.asarray(self._network.high, np.float32)

    @property
    def state_size(self) -> int:
        """Width of the state that is carried from step to step."""
        return self._network.state_size

    @property
    def state(self) -> Float[np.ndarray, "B S"]:
        """The carried state, as ``predict`` takes it."""
        if self._state is None:
            raise MisuseError("There is no state yet. Call reset() or step(observation) first.")
        return self._state

    @property
    def hidden(self) -> Float[np.ndarray, "*B H"]:
        """h, the part of the memory that plays the co-state, after the last step."""
        return self._shown(self._latest()[0].hidden)

    @property
    def value(self) -> Float[np.ndarray, "*B"]:
        """V(h), the critic's value after the last step, in the scaled rewards of training."""
        value = self._latest()[0].value
        if value is None:
            raise MisuseError(_NO_CRITIC)
        return self._shown(value)

    @property
    def costate(self) -> Float[np.ndarray, "*B F"]:
        """λ̂ = ∂V/∂ỹ by the critic at the last step, with which ``hidden`` was trained to align."""
        costate = self._differentiate(*self._latest()[1])
        if costate is None:
            raise MisuseError(_NO_CRITIC)
        return self._shown(costate)

    def reset(self, batch: Any = 1) -> None:
        """Clear the memory: ``batch`` streams start new episodes."""
        with translated_errors():
            self._state, self._last = self._empty(streams_of(batch)), None

    def step(self, observation: Any, is_first: Any = None, seen: Any = None) -> Float[np.ndarray, "*B A"]:
        """Return the action for an observation, and update the memory.

        ``is_first`` says which streams start an episode, as auto-resetting environments report it. ``seen``,
        for policies trained with a mask, says which streams or which numbers arrived. By default all did.
        """
        with translated_errors():
            rows, single = self._inputs.observation(observation, seen)
            if self._state is None:
                self.reset(rows.shape[0])
            if rows.shape[0] != self.state.shape[0]:
                raise changed_batch(self.state.shape[0], rows.shape[0])
            arguments = self._arguments(rows, self.state, self._inputs.is_first(is_first, rows.shape[0]))
        decision = self._act(*arguments)
        self._state, self._last = np.asarray(decision.state), (decision, arguments, single)
        return self._shown(decision.action)

    def predict(
        self, observation: Any, state: Any = None, is_first: Any = None, seen: Any = None
    ) -> tuple[Float[np.ndarray, "*B A"], Float[np.ndarray, "*B S"]]:
        """Return the action and the next state, without keeping a memory. Without a state, episodes start."""
        with translated_errors():
            rows, single = self._inputs.observation(observation, seen)
            before = self._empty(rows.shape[0]) if state is None else self._inputs.state(state, rows.shape[0])
            arguments = self._arguments(rows, before, self._inputs.is_first(is_first, rows.shape[0]))
        decision = self._act(*arguments)
        action, after = np.asarray(decision.action), np.asarray(decision.state)
        return (action[0], after[0]) if single else (action, after)

    def _empty(self, batch: int) -> Float[np.ndarray, "B S"]:
        return np.zeros((batch, self.state_size), np.float32)

    def _arguments(
        self, rows: np.ndarray, state: np.ndarray, is_first: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first = np.zeros(rows.shape[0], bool) if is_first is None else is_first
        return rows.astype(np.float32), state.astype(np.float32), first

    def _latest(self) -> tuple[Decision, tuple[Any, ...], bool]:
        if self._last is None:
            raise MisuseError("No step was taken yet. Call step(observation) first.")
        return self._last

    def _shown(self, array: Float[Array, "B ..."]) -> np.ndarray:
        """Remove the axis of streams if a single observation was given."""
        shown = np.asarray(array)
        return shown[0] if self._latest()[2] else shown


_NO_CRITIC = (
    "The critics of soft actor-critic are used only in training, because they read what a robot cannot "
    "measure. This policy therefore has no value and no co-state of a critic. Use `hidden`, which was "
    "trained to be the co-state."
)

Compiled = Callable[[Float[np.ndarray, "B O"], Float[np.ndarray, "B S"], Bool[np.ndarray, " B"]], Any]


def _compiled(network: AbstractNetwork) -> tuple[Compiled, Compiled]:
    """Compile a step and the critic's co-state, with the weights as arguments instead of constants."""
    weights, rest = eqx.partition(network, eqx.is_array)
    act = jax.jit(lambda weights, *now: eqx.combine(weights, rest)(*now))
    differentiate = jax.jit(lambda weights, *now: eqx.combine(weights, rest).costate(*now))
    return (lambda *now: act(weights, *now)), (lambda *now: differentiate(weights, *now))
