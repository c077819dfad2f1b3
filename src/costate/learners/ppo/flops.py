"""Floating-point operations of PPO per environment step."""

from costate.learners.base import Setup
from costate.learners.ppo.settings import PPOSettings
from costate.policies.flops import core_flops, readout_flops


def flops_per_env_step(setup: Setup, ppo: PPOSettings) -> float:
    """Return the floating-point operations of rollout and update in matrix products.

    The rollout reads every observation once. Each epoch reads it again, and its reverse pass takes twice as
    many, except that nothing is differentiated by the observation itself.
    """
    policy = setup.policy
    encoder = 2.0 * setup.observation_size * policy.features
    heads = readout_flops(policy, setup.task_record.action_size) + 2.0 * policy.hidden_size * policy.ensemble
    core = core_flops(policy)
    forward = encoder + core.forward + heads
    reverse = encoder + 2.0 * (core.forward + heads)
    # The baselines also measure the co-state loss for comparison, but do not need it.
    needed = core.target if ppo.costate_coef > 0.0 else 0.0
    return forward + ppo.epochs * (forward + reverse + needed)
