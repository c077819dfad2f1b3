"""Settings of soft actor-critic."""

import dataclasses
from typing import Literal

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate._base.undecided import UNDECIDED
from costate.learners.replay import ReplayConfig


@dataclasses.dataclass(frozen=True)
class SACConfig:
    """The learner's settings."""

    costate_coef: float = 0.05
    """Weight c₃ of the co-state loss; 0 is plain SAC."""
    costate_memory: Literal["actor", "both"] = "actor"
    """Whose hidden state is pulled towards the co-state: the actor's, or also the critic's own."""
    critic: Literal["sighted", "recurrent"] = UNDECIDED
    """What judges the actor while it learns: a critic that sees through the blackouts and so needs no memory, or one that reads and remembers what
    the actor reads. The actor, and with it the trained policy, is the same. What is not given is decided by the task: sighted where working sensors
    show the whole state."""
    steps_per_update: int = 16
    """Environment steps for each update."""
    warmup_steps: int = 5_000
    """Steps of random controls before learning starts."""
    explorers: int = 0
    """Environments that never stop doing random controls, so that the replay always has some of what the policy does not do."""
    observation_statistics: Literal["running", "frozen"] = "running"
    """What observations are normalised by: the mean and deviation of all steps so far, or those of the warm-up alone. A body that learns to move
    leaves the range of a body that trembles, and what is clipped there cannot be learnt from."""
    head_width: int = 128
    """Units in each of the two hidden layers of a Q head."""
    learning_rate: float = 1e-3
    """Adam's step size for actor, critic and temperature."""
    max_gradient_norm: float = 10.0
    """Gradients of the actor or of the critic that are longer are shortened to it."""
    discount: float = 0.99
    """Discount factor γ."""
    target_rate: float = 0.05
    """Share τ of the critic that the target critic takes over with every update."""
    initial_temperature: float = 0.1
    """Weight α of the entropy at the start."""
    target_entropy: float = -0.5
    """Entropy that the temperature steers to, for each component of the control."""
    replay: ReplayConfig = ReplayConfig()

    @property
    def sighted(self) -> bool:
        """Whether the critic sees through the blackouts; without a task that decides otherwise it does."""
        return self.critic != "recurrent"

    def __post_init__(self) -> None:
        require_finite(self)
        for name in ("steps_per_update", "head_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be at least 1.")
        for name in ("learning_rate", "max_gradient_norm", "initial_temperature"):
            if getattr(self, name) <= 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must be a positive number.")
        if not 0.0 <= self.discount <= 1.0 or not 0.0 < self.target_rate <= 1.0:
            raise ConfigError(
                f"discount is {self.discount} and target_rate is {self.target_rate}, but they are shares of 1, the rate not zero."
            )
        for name in ("costate_coef", "warmup_steps", "explorers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it cannot be negative.")
