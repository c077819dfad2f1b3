"""Settings of proximal policy optimisation, without its answers to the rest of the library."""

import dataclasses
from typing import ClassVar, Literal

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate.learners.base import LearnerConfig
from costate.policies.costate_loss import CostateConfig, check_costate


@dataclasses.dataclass(frozen=True)
class PPOSettings(CostateConfig, LearnerConfig):
    """Settings of PPO. The defaults are the paper's table of hyperparameters."""

    label: ClassVar[str] = "PPO"
    trains_losses: ClassVar[bool] = True
    warms_up_faults: ClassVar[bool] = True

    costate_gradient: Literal["feature", "both"] = "feature"
    """Inputs by which the value is differentiated: the encoded observation (the paper), or also the memory
    before it. Each gradient is compared with h by itself."""
    costate_average: Literal["own", "ensemble"] = "own"
    """Target of each hypothesis of an ensemble: the gradient of its own critic, or the mean over all
    critics."""
    slow_critic: float | None = None
    """Take the targets from a moving average of the policy, which moves towards it by this share in every
    iteration. None takes them from the policy itself."""
    bootstrap: float = 0.8
    """Share of the environments from which each critic of an ensemble learns, drawn anew in every
    iteration."""
    spread_bonus: float = 0.0
    """Weight of the ensemble's disagreement about the co-state as a reward for exploring; 0 leaves it out."""
    terminal_coef: float = 0.0
    """Weight of the terminal condition h(t_f) = ∇Φ (Definition 3.2) where an episode terminates. Time limits
    do not count. 0 leaves it out."""
    epochs: int = 4
    """Passes over the data of one iteration."""
    minibatches: int = 4
    """Parts into which the streams are split in every epoch."""
    bptt_length: int | None = None
    """Steps through which gradients flow. Longer rollouts are cut into pieces that start from stored
    memories. None for the whole rollout."""
    learning_rate: float = 2.5e-4
    """Adam's learning rate at the start."""
    learning_rate_decay: Literal["linear", "none", "adaptive"] = "linear"
    """Schedule of the learning rate: linear decay to zero over the run, constant, or adapted so that each
    iteration changes the policy by target_kl."""
    target_kl: float = 0.01
    """Kullback-Leibler divergence that an adaptive learning rate aims at: between the policy that collected
    the rollout and the trained one, averaged over the last epoch."""
    adam_epsilon: float = 1e-5
    """Adam's ε."""
    max_gradient_norm: float = 0.5
    """Global norm to which larger gradients are clipped."""
    discount: float = 0.99
    """Discount factor γ."""
    trace_decay: float = 0.95
    """GAE's λ."""
    clip_epsilon: float = 0.2
    """Clipping range of the importance ratio, and of the change of a value."""
    value_loss: Literal["clipped", "plain"] = "clipped"
    """Whether a value may change by clip_epsilon only, as in the paper, or may follow its target freely."""
    value_coef: float = 0.5
    """Weight c₁ of the value loss."""
    entropy_coef: float = 0.01
    """Weight c₂ of the entropy bonus."""
    reward_scaling: Literal["running-return", "none"] = "running-return"
    """Whether rewards are divided by the standard deviation of the running discounted return."""
    reward_clip: float | None = 10.0
    """Bound of a scaled reward; None for no bound, as in the authors' code."""

    def __post_init__(self) -> None:
        require_finite(self)
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but it must be at least 1. The paper uses 4."
                )
        for name in ("discount", "trace_decay"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must lie between 0 and 1.")
        for name in ("slow_critic", "bootstrap"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= 1.0:
                raise ConfigError(f"{name} is {value}, but it is a share: above 0, and at most 1.")
        if self.spread_bonus < 0.0:
            raise ConfigError(
                f"spread_bonus is {self.spread_bonus}, but a reward for exploring cannot be negative. "
                "Use 0 to leave it out."
            )
        check_costate(self, "slow_critic", "costate_gradient", "costate_average")
        for name in ("terminal_coef", "value_coef", "entropy_coef"):
            if getattr(self, name) < 0.0:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but a loss weight cannot be negative. "
                    "Use 0 to leave the loss out."
                )
        for name in (
            "learning_rate",
            "target_kl",
            "adam_epsilon",
            "max_gradient_norm",
            "clip_epsilon",
            "reward_clip",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0.0:
                raise ConfigError(f"{name} is {value}, but it must be positive.")
        if self.target_kl != PPOSettings.target_kl and self.learning_rate_decay != "adaptive":
            raise ConfigError(
                f"target_kl is {self.target_kl}, but learning_rate_decay is {self.learning_rate_decay}, "
                "so it would have no effect. Give --learning-rate-decay adaptive, or leave it out."
            )
        if self.learning_rate_decay == "adaptive" and self.epochs < 2:
            raise ConfigError(
                "learning_rate_decay is adaptive, but epochs is 1, so the change of the policy cannot be "
                "measured: no minibatch is used again after an update. Use 2 epochs or more."
            )
        if self.bptt_length is not None and self.bptt_length < 1:
            raise ConfigError(
                f"bptt_length is {self.bptt_length}, but it must be at least 1. Use None for the whole "
                "rollout."
            )

    def slowed(self, times: int) -> "PPOSettings":
        return dataclasses.replace(self, learning_rate=self.learning_rate * 0.5**times)
