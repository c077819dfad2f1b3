"""Checks of soft actor-critic's settings against the rest of a run's config."""

from costate._base.counted import counted
from costate._base.errors import ConfigError
from costate.learners.base import Setup
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.settings import SACSettings
from costate.policies.readouts import READOUTS
from costate.policies.readouts.gaussian import GaussianReadoutConfig


def warmup_iterations(config: SACSettings, rollout: RolloutConfig) -> int:
    """Return the iterations of random controls before learning: ``warmup_steps``, and until a window fits."""
    return max(
        -(-config.warmup_steps // rollout.steps_per_iteration),
        -(-config.replay.window // rollout.rollout_length),
    )


def check_sac(setup: Setup, config: SACSettings) -> None:
    """Raise unless the settings fit the policy, the rollout, the task and the length of the run."""
    if setup.policy.ensemble > 1 or setup.policy.features != setup.policy.hidden_size:
        raise ConfigError(
            "An ensemble, or features of another width than the hidden state, need PPO. Leave --ensemble and "
            "--feature-size out."
        )
    check_rollout(setup.rollout, config, setup.iterations)
    if config.critic == "sighted" and not setup.task_record.observes_state:
        raise ConfigError(
            f"The critic is sighted, so it judges by one full observation, but what {setup.task_record.name} "
            f"shows without blackouts does not determine its state either. Use --critic recurrent."
        )
    _check_readout(setup)


def check_rollout(rollout: RolloutConfig, config: SACSettings, iterations: int) -> None:
    """Raise unless the settings fit the rollout and the length of the run."""
    steps = rollout.steps_per_iteration
    if steps % config.steps_per_update:
        raise ConfigError(
            f"steps_per_update is {config.steps_per_update}, which does not divide an iteration of {steps} "
            f"steps ({rollout.environments} environments × {rollout.rollout_length}). Use a divisor of "
            f"{steps}."
        )
    if config.explorers >= rollout.environments:
        raise ConfigError(
            f"explorers is {config.explorers}, but there are {rollout.environments} environments, and at "
            f"least one of them must follow the policy. Use at most {rollout.environments - 1} explorers, or "
            "more environments."
        )
    warming = warmup_iterations(config, rollout)
    if warming >= iterations:
        raise ConfigError(
            f"warmup_steps is {config.warmup_steps}, so learning would start after {warming * steps:,} "
            f"environment steps of random controls, but the run ends after {iterations * steps:,} "
            f"({counted(iterations, 'iteration')} of {steps:,} steps). Use at least --steps "
            f"{(warming + 1) * steps}, or fewer --warmup-steps."
        )
    rows = config.replay.rows(rollout.environments)
    if rows < rollout.rollout_length:
        raise ConfigError(
            f"A replay of {config.replay.capacity} steps keeps {rows} rows of each environment, fewer than "
            f"the {rollout.rollout_length} of one iteration. Use a capacity of at least "
            f"{rollout.rollout_length * rollout.environments}."
        )


def _check_readout(setup: Setup) -> None:
    readout = setup.policy.readout
    if readout.off_policy_obstacle:
        fitting = " or ".join(name for name in READOUTS.names() if not READOUTS[name].off_policy_obstacle)
        name = READOUTS.name_of(type(readout))
        raise ConfigError(
            f"The readout {name} {readout.off_policy_obstacle}. Use --readout {fitting}, or --algorithm ppo."
        )
    if (
        isinstance(readout, GaussianReadoutConfig)
        and readout.initial_deviation != GaussianReadoutConfig.initial_deviation
    ):
        raise ConfigError(
            f"initial_deviation is {readout.initial_deviation}, but it would have no effect, because soft "
            "actor-critic learns how widely to explore. Leave it out, or use --algorithm ppo."
        )
