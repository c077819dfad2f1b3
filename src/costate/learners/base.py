"""What an algorithm has to be able to do; everything else is shared."""

import abc
import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

from costate._base.types import Array, Bool, Float, Key, UInt
from costate.envs.base import AbstractEnv
from costate.envs.tasks import Task
from costate.learners.averages import Metrics as Metrics
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import Replay
from costate.learners.rollout import Exploration, RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.learners.sharding import Shards
from costate.losses import AuxiliaryLossConfig
from costate.policies.controllers import AbstractController
from costate.policies.insight import AbstractInsight
from costate.policies.policy import PolicyConfig

State = Any
"""Everything that training changes, as a pytree with a random key in ``key``."""
RolloutState = Any
"""Where every stream stands between two iterations, as a dataclass with ``env_state`` and ``timestep``."""


@runtime_checkable
class Setup(Protocol):
    """What an algorithm is told of a run."""

    @property
    def algorithm(self) -> str: ...
    @property
    def task_record(self) -> Task: ...
    @property
    def policy(self) -> PolicyConfig: ...
    @property
    def rollout(self) -> RolloutConfig: ...
    @property
    def ppo(self) -> PPOConfig: ...
    @property
    def sac(self) -> SACConfig: ...
    @property
    def losses(self) -> tuple[AuxiliaryLossConfig, ...]:
        """Auxiliary losses on the memory."""

    @property
    def seed(self) -> int: ...
    @property
    def observation_size(self) -> int:
        """Numbers that a policy reads."""

    @property
    def iterations(self) -> int:
        """Iterations in the whole run."""

    @property
    def cycle(self) -> int:
        """Iterations between two moments at which every environment starts afresh."""


class Experience(NamedTuple):
    """What a rollout leaves for the learner."""

    rows: Any
    """Only the algorithm itself looks into it."""
    is_first: Bool[Array, "*N T B"]


class Collected(NamedTuple):
    """What a rollout brought, whatever an algorithm makes of it."""

    observation: Float[Array, "*N T B O"]
    complete: Float[Array, "*N T B O"] | None
    """What working sensors would have shown, where the algorithm learns from that."""
    action: Float[Array, "*N T B A"]
    reward: Float[Array, "*N T B"]


class Sequence(NamedTuple):
    """What streams of a trained policy went through."""

    observation: Float[Array, "T B O"]
    """Zeros where the sensors were dark."""
    complete: Float[Array, "T B O"]
    """What working sensors would have shown."""
    memory: Any
    """What the controller remembered before each observation, with leading axes T and B."""
    hidden: Float[Array, "T B H"]
    """The hidden state after it, the part of the memory that plays the co-state."""
    is_first: Bool[Array, "T B"]
    seen: Bool[Array, "T B"]
    """Whether anything was seen."""


@dataclasses.dataclass(frozen=True)
class AbstractAlgorithm(abc.ABC):
    """A learner of one run. It holds the config and nothing else; all methods but :meth:`begin` are pure and written for one seed."""

    config: Setup

    @property
    @abc.abstractmethod
    def streams(self) -> int:
        """Sequences in one gradient step, which devices can share between them."""

    @property
    @abc.abstractmethod
    def worth_a_device(self) -> int:
        """Sequences for which a device of its own pays."""

    @property
    @abc.abstractmethod
    def spreads_products(self) -> bool:
        """Whether products are large enough for a device to spread one over several cores, where each core is a device of its own already."""

    @property
    @abc.abstractmethod
    def warmup_iterations(self) -> int:
        """Iterations before the first that learns."""

    @property
    @abc.abstractmethod
    def updates_per_iteration(self) -> int:
        """Gradient steps between two rollouts."""

    @property
    @abc.abstractmethod
    def cost_of_a_step(self) -> float:
        """Time of training on an environment step, roughly, in times of acting in one."""

    @abc.abstractmethod
    def fresh(self, seed: UInt[Array, ""]) -> State:
        """Training before its first iteration."""

    @abc.abstractmethod
    def acting(self, state: State) -> Any:
        """The part of a state that a rollout needs; it is moved to the device of the simulator in every iteration."""

    @abc.abstractmethod
    def begin(self, env: AbstractEnv, states: State, keys: Key[Array, " N"]) -> RolloutState:
        """A new episode in every environment of every seed, with nothing in memory (runs on the host)."""

    @abc.abstractmethod
    def roll(
        self, env: AbstractEnv, acting: Any, state: RolloutState, exploration: Exploration
    ) -> tuple[RolloutState, Experience]:
        """One rollout."""

    @abc.abstractmethod
    def collected(self, experience: Experience) -> Collected:
        """What is in it, of one seed or of several."""

    @abc.abstractmethod
    def learn(self, state: State, experience: Experience, shards: Shards) -> tuple[State, Metrics]:
        """What is learnt from it. All shards hold all of the experience and end with the same state."""

    @abc.abstractmethod
    def controller(self, state: State) -> AbstractController:
        """What acts when nobody learns any more."""

    @abc.abstractmethod
    def insight(self, state: State) -> AbstractInsight:
        """That with its critic: all that can be shown of a policy while it acts, and nothing that only training needs."""

    @abc.abstractmethod
    def critic_costates(self, state: State, sequence: Sequence) -> Float[Array, "T B F"]:
        """λ̂_t = ∂V/∂ỹ_t by the critic, what the co-state loss compares the hidden state with."""

    @property
    @abc.abstractmethod
    def replay_bytes(self) -> int:
        """Memory of the experience that a state remembers, known before there is one; 0 if it remembers none."""

    @abc.abstractmethod
    def detach_replay(self, state: State) -> tuple[State, Replay | None]:
        """A state without the experience that it remembers, and that; it is stored apart, because most of it was stored before."""

    @abc.abstractmethod
    def attach_replay(self, state: State, replay: Replay | None) -> State:
        """The inverse of :meth:`detach_replay`."""
