"""The contract of a learner: its settings, its states, and all that training, evaluation and reports need."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from costate._base.errors import ConfigError
from costate._base.plain_data import chosen_from
from costate._base.registry import Registry
from costate._base.types import Array, Bool, Float, Int, Key, UInt
from costate.envs.base import AbstractEnv
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import Task
from costate.learners.averages import Metrics as Metrics
from costate.learners.replay import Replay
from costate.learners.rollout import Exploration, RolloutConfig
from costate.learners.sharding import Shards
from costate.learners.states import Acting, Experience, LearnerState, StreamState
from costate.losses import AuxiliaryLossConfig
from costate.policies.controllers import AbstractController
from costate.policies.insight import AbstractInsight
from costate.policies.policy import PolicyConfig


class Collected(NamedTuple):
    """The numbers of a rollout that can be checked for any learner."""

    observation: Float[Array, "*N T B O"]
    complete: Float[Array, "*N T B O"] | None
    """What working sensors would have shown; None unless the learner learns from it."""
    action: Float[Array, "*N T B A"]
    reward: Float[Array, "*N T B"]


class Sequence(NamedTuple):
    """Recorded streams of a trained policy."""

    observation: Float[Array, "T B O"]
    """Zeros where the sensors were dark."""
    complete: Float[Array, "T B O"]
    """What working sensors would have shown."""
    memory: Any
    """The controller's memory before each observation, with leading axes T and B."""
    hidden: Float[Array, "T B H"]
    """The hidden state after each observation: the part of the memory that plays the co-state."""
    is_first: Bool[Array, "T B"]
    seen: Bool[Array, "T B"]
    """Whether any sensor gave a reading."""


@runtime_checkable
class Setup(Protocol):
    """The part of a run's config that a learner may read."""

    @property
    def learner(self) -> "LearnerConfig": ...
    @property
    def task_record(self) -> Task: ...
    @property
    def policy(self) -> PolicyConfig: ...
    @property
    def rollout(self) -> RolloutConfig: ...
    @property
    def losses(self) -> tuple[AuxiliaryLossConfig, ...]:
        """Auxiliary losses on the memory."""

    @property
    def seed(self) -> int: ...
    @property
    def diverged(self) -> str:
        """Response to a NaN or infinite loss: stop, or resume with half the learning rate."""

    @property
    def observation_size(self) -> int:
        """Numbers that a policy reads."""

    @property
    def iterations(self) -> int:
        """Iterations of the whole run."""

    @property
    def cycle(self) -> int:
        """Iterations between two resets of all environments."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """The parts of a run's config that a preset names."""

    learner: "LearnerConfig"
    policy: PolicyConfig = PolicyConfig()
    sensors: SensorConfig = SensorConfig()
    rollout: RolloutConfig = RolloutConfig()


@dataclasses.dataclass(frozen=True)
class LearnerConfig(abc.ABC):
    """Settings of a learner: a frozen dataclass registered in ``LEARNERS``.

    To add a learner, subclass this and :class:`AbstractLearner` in a package of your own. No other module
    names it.
    """

    label: ClassVar[str]
    """The learner's name in sentences: PPO, soft actor-critic."""
    usual_rollout: ClassVar[dict[str, Any]] = {
        "environments": 32,
        "rollout_length": 1000,
        "noise_colour": 0.0,
    }
    """Defaults of the rollout's settings. These are the paper's."""
    trains_losses: ClassVar[bool] = False
    """Whether the learner trains auxiliary losses. If not, they are refused."""
    warms_up_faults: ClassVar[bool] = False
    """Whether its rollouts let sensor faults set in gradually. If not, `fault_warmup` is refused."""
    actor_reads_control: ClassVar[bool] = False
    """True if a policy reads its own last control beside the sensors, also without a memory."""

    @property
    @abc.abstractmethod
    def discount(self) -> float:
        """Discount factor γ."""

    @property
    @abc.abstractmethod
    def learning_rate(self) -> float:
        """Learning rate at the start, which :meth:`slowed` halves."""

    @property
    def costate_coef(self) -> float:
        """Weight c₃ of the co-state loss; 0 for learners that have none."""
        return 0.0

    @classmethod
    def presets(cls) -> Mapping[str, Variant]:
        """Return the named variants in the order in which they are listed."""
        return {LEARNERS.name_of(cls): Variant(cls())}

    @classmethod
    def usual_preset(cls) -> str:
        """Return the preset to use if only the learner is named."""
        return LEARNERS.name_of(cls)

    @classmethod
    def plain_preset(cls) -> str:
        """Return the baseline: the usual preset without the co-state loss."""
        return LEARNERS.name_of(cls)

    def budget(self, task: Task) -> int:
        """Return the default number of environment steps of a run."""
        return task.budget

    def decided(self, task: Task) -> "LearnerConfig":
        """Return the settings with undecided ones chosen by the task."""
        return self

    def check(self, setup: Setup) -> None:  # noqa: B027 (a learner may fit everything)
        """Raise a ConfigError unless these settings fit the rest of the config."""

    @abc.abstractmethod
    def slowed(self, times: int) -> "LearnerConfig":
        """Return the settings with the learning rate halved ``times`` times."""

    def schedules(self, setup: Setup, iteration: Int[Array, ""]) -> dict[str, float]:
        """Return the values that follow a schedule, by name, in an iteration counted from 0."""
        return {}

    def flops_per_env_step(self, setup: Setup) -> float:
        """Return the floating-point operations per environment step in the matrix products of a run.

        Rollout and update are included.
        """
        raise ConfigError(
            f"The matrix products of {self.label} are not known. Define the method `flops_per_env_step` of "
            "its config to benchmark it."
        )

    @abc.abstractmethod
    def build(self, setup: Setup) -> "AnyLearner":
        """Build the learner of a run."""


LEARNERS: Registry[type[LearnerConfig]] = chosen_from("learner", LearnerConfig)
"""Name → config class of every learner."""
DEFAULT_LEARNER = "ppo"
"""The learner that is meant where none is named, however many others there are."""

Settings = TypeVar("Settings", bound=LearnerConfig)
State = TypeVar("State", bound=LearnerState)
Streams = TypeVar("Streams", bound=StreamState)
Actor = TypeVar("Actor", bound=Acting)
Rows = TypeVar("Rows", bound=Experience)


@dataclasses.dataclass(frozen=True)
class AbstractLearner(abc.ABC, Generic[Settings, State, Streams, Actor, Rows]):
    """A learner of one run, which holds configs and nothing else.

    All methods but :meth:`begin` are pure functions, written for one seed.
    """

    settings: Settings
    config: Setup

    @property
    def streams(self) -> int:
        """Sequences in one gradient step that devices can share; 1 if they are not shared."""
        return 1

    @property
    def worth_a_device(self) -> int:
        """Fewest sequences for which another device is worth its overhead."""
        return 1

    @property
    def spreads_products(self) -> bool:
        """True if matrix products are worth splitting over cores even where each core is a device."""
        return True

    @property
    def warmup_iterations(self) -> int:
        """Iterations of random controls before learning starts."""
        return 0

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps between two rollouts."""
        return 1

    @property
    def cost_of_a_step(self) -> float:
        """Rough time of training on one environment step, relative to the time of acting in it."""
        return 1.0

    @abc.abstractmethod
    def fresh(self, seed: UInt[Array, ""]) -> State:
        """Return the state before the first iteration."""

    @abc.abstractmethod
    def acting(self, state: State) -> Actor:
        """Return the part of a state that a rollout needs."""

    @abc.abstractmethod
    def begin(self, env: AbstractEnv, states: State, keys: Key[Array, " N"]) -> Streams:
        """Start a new episode in every environment of every seed, with an empty memory (runs on the host)."""

    @abc.abstractmethod
    def roll(
        self, env: AbstractEnv, acting: Actor, state: Streams, exploration: Exploration
    ) -> tuple[Streams, Rows]:
        """Collect one rollout."""

    @abc.abstractmethod
    def collected(self, experience: Rows) -> Collected:
        """Return the numbers of a rollout, of one seed or of several."""

    @abc.abstractmethod
    def learn(self, state: State, experience: Rows, shards: Shards) -> tuple[State, Metrics]:
        """Learn from a rollout. All shards hold all of the experience and end with the same state."""

    @abc.abstractmethod
    def controller(self, state: State) -> AbstractController:
        """Return the trained policy without exploration noise."""

    @abc.abstractmethod
    def insight(self, state: State) -> AbstractInsight:
        """Return the policy with its critic: all that can be shown while it acts, without training state."""

    @abc.abstractmethod
    def critic_costates(self, state: State, sequence: Sequence) -> Float[Array, "T B F"]:
        """Return λ̂_t = ∂V/∂ỹ_t by the critic, the target of the co-state loss."""

    @property
    def replay_bytes(self) -> int:
        """Bytes of the stored experience of a state, computed without allocating it; 0 if none is stored."""
        return 0

    @property
    def replay_steps(self) -> int:
        """Environment steps that the stored experience holds."""
        return 0

    def detach_replay(self, state: State) -> tuple[State, Replay | None]:
        """Split a state into one without stored experience, and the experience.

        The experience is saved separately, because most of it was saved before.
        """
        return state, None

    def attach_replay(self, state: State, replay: Replay | None) -> State:
        """Undo :meth:`detach_replay`."""
        return state


AnyLearner = AbstractLearner[Any, Any, Any, Any, Any]
"""A learner known by its contract only."""


def learner_for(setup: Setup) -> AnyLearner:
    """Build the learner of a run."""
    return setup.learner.build(setup)
