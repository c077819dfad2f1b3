"""Settings of proximal policy optimisation, and what can be wrong with them."""

import dataclasses
from typing import Literal

from costate._base.checks import require_finite
from costate._base.errors import ConfigError
from costate.learners.rollout import RolloutConfig

# Of a number with twenty digits nobody wants to see all, nor to wait for them.
LARGEST_DIVISOR = 10_000


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """The learner's settings; the defaults are the paper's table of hyperparameters."""

    costate_coef: float = 0.05
    """Weight c₃ of the co-state loss; 0 is plain PPO."""
    costate_hidden: Literal["after", "before"] = "after"
    """Hidden state in the cosine: h_t after reading y_t (the paper's text) or h_{t−1} before it (the authors' code)."""
    costate_gradient: Literal["feature", "both"] = "feature"
    """What the value is differentiated by: the encoded observation (the paper), or also what was remembered, each compared with h by itself."""
    costate_average: Literal["own", "ensemble"] = "own"
    """Target of every hypothesis of an ensemble: the gradient of its own critic, or the mean of all."""
    costate_warmup: float = 0.0
    """Share of training in which the weight of the co-state loss grows linearly from 0."""
    slow_critic: float | None = None
    """Targets from a slow average of the policy, which moves by this share towards it in every iteration; None for the policy itself."""
    bootstrap: float = 0.8
    """Share of the environments from which each critic of an ensemble learns, drawn anew in every iteration."""
    spread_bonus: float = 0.0
    """Weight of the ensemble's disagreement about the co-state as a reward for exploring; 0 leaves it out."""
    terminal_coef: float = 0.0
    """Weight of the terminal condition h(t_f) = ∇Φ (Definition 3.2) where an episode truly terminates; time limits are no ends. 0 leaves it out."""
    epochs: int = 4
    """Passes over the data of one iteration."""
    minibatches: int = 4
    """Parts into which the streams are split in every epoch."""
    bptt_length: int | None = None
    """Steps through which gradients flow; longer rollouts are cut into pieces that start from stored memories. None for the whole rollout."""
    learning_rate: float = 2.5e-4
    """Adam's step size at the start."""
    learning_rate_decay: Literal["linear", "none", "adaptive"] = "linear"
    """Whether the step size falls linearly to zero over the run, stays, or is steered so that iterations change the policy by target_kl."""
    target_kl: float = 0.01
    """Kullback-Leibler divergence from the policy that collected, mean over the last epoch, that an adaptive step size is steered to."""
    adam_epsilon: float = 1e-5
    """Adam's ε."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    discount: float = 0.99
    """Discount factor γ."""
    trace_decay: float = 0.95
    """GAE's λ."""
    clip_epsilon: float = 0.2
    """Bound of the importance ratio's and of the value's change."""
    value_loss: Literal["clipped", "plain"] = "clipped"
    """Whether a value may change by clip_epsilon only, as in the paper, or is free to follow its target."""
    value_coef: float = 0.5
    """Weight c₁ of the value loss."""
    entropy_coef: float = 0.01
    """Weight c₂ of the entropy bonus."""
    reward_scaling: Literal["running-return", "none"] = "running-return"
    """Whether rewards are divided by the deviation of the running discounted return."""
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
        if not 0.0 <= self.costate_warmup <= 1.0:
            raise ConfigError(f"costate_warmup is {self.costate_warmup}, but it is a share: between 0 and 1.")
        for name in ("slow_critic", "bootstrap"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= 1.0:
                raise ConfigError(f"{name} is {value}, but it is a share: above 0, and at most 1.")
        if self.spread_bonus < 0.0:
            raise ConfigError(
                f"spread_bonus is {self.spread_bonus}, but a reward for exploring cannot be negative. Use 0 to leave it out."
            )
        of_the_loss = ("costate_warmup", "slow_critic", "costate_gradient", "costate_average")
        idle = [
            f"{name} is {getattr(self, name)}"
            for name in of_the_loss
            if getattr(self, name) != getattr(PPOConfig, name)
        ]
        if self.costate_coef == 0.0 and idle:
            raise ConfigError(
                f"costate_coef is 0, but {' and '.join(idle)}, which would have no effect. Give --costate-coef {PPOConfig.costate_coef}, or leave it "
                f"out."
            )
        for name in ("costate_coef", "terminal_coef", "value_coef", "entropy_coef"):
            if getattr(self, name) < 0.0:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but a loss weight cannot be negative. Use 0 to leave the loss out."
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
        if self.target_kl != PPOConfig.target_kl and self.learning_rate_decay != "adaptive":
            raise ConfigError(
                f"target_kl is {self.target_kl}, but learning_rate_decay is {self.learning_rate_decay}, so that nothing is steered to it. Give "
                f"--learning-rate-decay adaptive, or leave it out."
            )
        if self.learning_rate_decay == "adaptive" and self.epochs < 2:
            raise ConfigError(
                "learning_rate_decay is adaptive, but with 1 epoch nothing is seen again after the policy has moved. Use 2 epochs or more."
            )
        if self.bptt_length is not None and self.bptt_length < 1:
            raise ConfigError(
                f"bptt_length is {self.bptt_length}, but it must be at least 1. Use None for the whole rollout."
            )


def streams_per_minibatch(rollout: RolloutConfig, ppo: PPOConfig) -> int:
    """Sequences in a minibatch: environments, times the pieces that each is cut into."""
    pieces = rollout.rollout_length // (ppo.bptt_length or rollout.rollout_length)
    return rollout.environments * pieces // ppo.minibatches


def _divisors(number: int) -> list[int]:
    """The numbers that divide another one, without those that are too large to be of use."""
    return [divisor for divisor in range(1, min(number, LARGEST_DIVISOR) + 1) if number % divisor == 0]


def check_divisible(rollout: RolloutConfig, ppo: PPOConfig) -> None:
    """Raise unless the streams of one iteration split evenly into minibatches."""
    length = ppo.bptt_length or rollout.rollout_length
    if rollout.rollout_length % length:
        divisors = _divisors(rollout.rollout_length)
        raise ConfigError(
            f"bptt_length {length} does not divide rollout_length {rollout.rollout_length}, so the rollout cannot be cut into equal pieces. "
            f"Lengths that work: {', '.join(map(str, divisors))}."
        )
    streams = rollout.environments * (rollout.rollout_length // length)
    if streams % ppo.minibatches:
        allowed = _divisors(streams)
        below = rollout.environments // ppo.minibatches * ppo.minibatches
        sizes = " or ".join(str(size) for size in (below, below + ppo.minibatches) if size > 0)
        raise ConfigError(
            f"{streams} streams ({rollout.environments} environments) cannot be split evenly into {ppo.minibatches} minibatches. "
            f"Minibatches that work: {', '.join(map(str, allowed))}; or keep {ppo.minibatches} minibatches and use {sizes} environments."
        )
