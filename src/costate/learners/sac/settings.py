"""Settings of soft actor-critic."""

import dataclasses
from typing import Any, ClassVar, Literal

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate._base.undecided import UNDECIDED
from costate.envs.tasks import Task
from costate.learners.base import LearnerConfig
from costate.learners.replay import ReplayConfig
from costate.policies.costate_loss import CostateConfig, check_costate
from costate.policies.heads import HeadConfig
from costate.policies.heads.scalar import ScalarHeadConfig

# Environment steps: five to twenty minutes on two cores.
BUDGET = 1_000_000


@dataclasses.dataclass(frozen=True)
class SACSettings(CostateConfig, LearnerConfig):
    """Settings of soft actor-critic."""

    label: ClassVar[str] = "soft actor-critic"
    trains_losses: ClassVar[bool] = True
    warms_up_faults: ClassVar[bool] = True
    # Few environments, so that the replay does not fill faster than it is used. 11 × 91 = 1001 rows are a
    # whole episode with its last observation. White noise makes a body tremble, while noise that stays on one
    # side for a while moves it; learning from a replay works with either.
    usual_rollout: ClassVar[dict[str, Any]] = {
        "environments": 16,
        "rollout_length": 91,
        "noise_colour": 1.0,
    }
    actor_reads_control: ClassVar[bool] = True

    costate_memory: Literal["actor", "both"] = "actor"
    """Hidden states pulled towards the co-state: the actor's, or also the critic's own."""
    critic: Literal["sighted", "recurrent"] = UNDECIDED
    """Input of the critic while it learns: what working sensors would show, so that it needs no memory
    (sighted), or what the actor reads, with a memory (recurrent). The actor, and so the trained policy, is
    the same. By default the task decides: sighted where working sensors show the whole state."""
    steps_per_update: int = 16
    """Environment steps for each update."""
    warmup_steps: int = 5_000
    """Steps of random controls before learning starts."""
    explorers: int = 0
    """Environments that keep to random controls throughout, so that the replay always holds controls that the
    policy does not choose."""
    observation_statistics: Literal["running", "frozen"] = "running"
    """Steps whose mean and standard deviation normalise observations: all steps so far, or those of the
    warm-up only. A body that learns to move leaves the range seen during the warm-up, and clipped
    observations cannot be learnt from."""
    head_width: int = 128
    """Units in each of the two hidden layers of a Q head."""
    learning_rate: float = 1e-3
    """Adam's learning rate for actor, critic and temperature."""
    max_gradient_norm: float = 10.0
    """Norm to which larger gradients of the actor, and of the critic, are clipped."""
    discount: float = 0.99
    """Discount factor γ."""
    target_rate: float = 0.05
    """Share τ by which the target critic moves towards the critic in every update."""
    initial_temperature: float = 0.1
    """Weight α of the entropy at the start."""
    target_entropy: float = -0.5
    """Entropy per component of the control that the temperature is adjusted to."""
    replay: ReplayConfig = ReplayConfig()
    critic_head: HeadConfig = ScalarHeadConfig()
    """Kind and number of the heads with which the critic predicts values."""

    @property
    def sighted(self) -> bool:
        """True if the critic sees through the blackouts, also while the task has not decided yet."""
        return self.critic != "recurrent"

    def __post_init__(self) -> None:
        require_finite(self)
        check_costate(self)
        for name in ("steps_per_update", "head_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be at least 1.")
        for name in ("learning_rate", "max_gradient_norm", "initial_temperature"):
            if getattr(self, name) <= 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be a positive number.")
        if not 0.0 <= self.discount <= 1.0 or not 0.0 < self.target_rate <= 1.0:
            raise ConfigError(
                f"discount is {self.discount} and target_rate is {self.target_rate}, but both must lie "
                "between 0 and 1, and target_rate must not be 0."
            )
        for name in ("warmup_steps", "explorers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it cannot be negative.")

    def budget(self, task: Task) -> int:
        return BUDGET

    def decided(self, task: Task) -> "SACSettings":
        if self.critic is not UNDECIDED:
            return self
        return dataclasses.replace(self, critic="sighted" if task.observes_state else "recurrent")

    def slowed(self, times: int) -> "SACSettings":
        return dataclasses.replace(self, learning_rate=self.learning_rate * 0.5**times)
