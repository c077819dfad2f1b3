"""Checks of PPO's settings against the rest of a run's config."""

from costate._base.errors import ConfigError
from costate._base.rounding import at_least
from costate.learners.base import Setup
from costate.learners.ppo.settings import PPOSettings
from costate.learners.rollout import RolloutConfig
from costate.policies.cores import CORES
from costate.policies.policy import PolicyConfig

# Larger divisors are not worth suggesting.
LARGEST_DIVISOR = 10_000


def check_ppo(setup: Setup, ppo: PPOSettings) -> None:
    """Raise unless the settings fit the policy and the rollout."""
    _check_hypotheses(setup.policy, ppo)
    check_divisible(setup.rollout, ppo)
    _check_bootstrap(setup, ppo)
    if ppo.learning_rate_decay == "adaptive" and setup.diverged == "slow-down":
        raise ConfigError(
            "diverged is slow-down, but learning_rate_decay is adaptive, which would soon undo the halving "
            "of the learning rate. Leave one out."
        )


def streams_per_minibatch(rollout: RolloutConfig, ppo: PPOSettings) -> int:
    """Return the number of sequences in a minibatch: environments × pieces per rollout / minibatches."""
    pieces = rollout.rollout_length // (ppo.bptt_length or rollout.rollout_length)
    return rollout.environments * pieces // ppo.minibatches


def check_divisible(rollout: RolloutConfig, ppo: PPOSettings) -> None:
    """Raise unless the streams of one iteration split evenly into minibatches."""
    length = ppo.bptt_length or rollout.rollout_length
    if rollout.rollout_length % length:
        divisors = _divisors(rollout.rollout_length)
        raise ConfigError(
            f"bptt_length {length} does not divide rollout_length {rollout.rollout_length}, so the rollout "
            f"cannot be cut into equal pieces. Use one of {', '.join(map(str, divisors))}."
        )
    streams = rollout.environments * (rollout.rollout_length // length)
    if streams % ppo.minibatches:
        allowed = _divisors(streams)
        below = rollout.environments // ppo.minibatches * ppo.minibatches
        sizes = " or ".join(str(size) for size in (below, below + ppo.minibatches) if size > 0)
        raise ConfigError(
            f"{streams} streams ({rollout.environments} environments) cannot be split evenly into "
            f"{ppo.minibatches} minibatches. Use {', '.join(map(str, allowed))}; or keep {ppo.minibatches} "
            f"minibatches and use {sizes} environments."
        )


def _divisors(number: int) -> list[int]:
    """Return the divisors of a number up to ``LARGEST_DIVISOR``."""
    return [divisor for divisor in range(1, min(number, LARGEST_DIVISOR) + 1) if number % divisor == 0]


def _check_hypotheses(policy: PolicyConfig, ppo: PPOSettings) -> None:
    for_ensembles = {
        "bootstrap": ppo.bootstrap != PPOSettings.bootstrap,
        "spread_bonus": ppo.spread_bonus > 0.0,
        "costate_average ensemble": ppo.costate_average == "ensemble",
    }
    for name, given in for_ensembles.items():
        if given and policy.ensemble == 1:
            raise ConfigError(
                f"{name} was given, but it needs several hypotheses, and ensemble is 1. Give --ensemble 5, "
                "or leave it out."
            )
    if ppo.costate_gradient == "both" and not policy.core.shows_all:
        core = CORES.name_of(type(policy.core))
        fitting = ", ".join(name for name in CORES.names() if CORES[name].shows_all)
        raise ConfigError(
            f"costate_gradient is both, but the core {core} carries more than its hidden state. "
            f"Use one of {fitting}."
        )


def _check_bootstrap(setup: Setup, ppo: PPOSettings) -> None:
    """Raise if a critic of an ensemble would learn nothing from most minibatches.

    Each critic learns from each stream with the probability ``bootstrap``.
    """
    streams = streams_per_minibatch(setup.rollout, ppo)
    nothing = (1.0 - ppo.bootstrap) ** streams
    if setup.policy.ensemble > 1 and nothing > 0.5:
        raise ConfigError(
            f"bootstrap is {ppo.bootstrap}, but a minibatch has {streams} "
            f"stream{'s' if streams > 1 else ''}, so a critic would learn nothing from {nothing:.0%} of the "
            f"minibatches. Use at least {at_least(1.0 - 0.5 ** (1.0 / streams), 2)}, fewer minibatches, or "
            "more environments."
        )
