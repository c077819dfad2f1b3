"""Floating-point operations of soft actor-critic, per environment step and per update."""

from costate.learners.base import Setup
from costate.learners.sac.settings import SACSettings
from costate.learners.sac.update import critic_config
from costate.policies.flops import core_flops, readout_flops


def flops_per_env_step(setup: Setup, sac: SACSettings) -> float:
    """Return the floating-point operations of rollout and update in matrix products.

    The rollout reads every observation once. An update is divided by its ``steps_per_update``.
    """
    policy = setup.policy
    acting = _encoder(setup) + core_flops(policy).forward + _outputs(setup)
    if sac.replay.start == "stored":
        # The critic's memory is stored too.
        acting += _encoder(setup) + core_flops(critic_config(sac, policy)).forward
    return acting + flops_per_update(setup, sac) / sac.steps_per_update


def flops_per_update(setup: Setup, sac: SACSettings) -> float:
    """Return the floating-point operations of one gradient step in matrix products.

    Actor, critic and target read the whole window; a critic without memory skips the burn-in. For actor and
    critic a reverse pass goes through the rows after the burn-in, and takes twice as many, except that
    nothing is differentiated by the inputs. The heads are evaluated three times: at the replayed controls,
    with a reverse pass to weights and inputs; at the actor's controls, with a reverse pass to the inputs
    only; and by the target.
    """
    task, policy = setup.task_record, setup.policy
    width = policy.hidden_size
    encoder, actor, critic = _encoder(setup), core_flops(policy), core_flops(critic_config(sac, policy))
    inputs, outputs = width + task.action_size, sac.critic_head.outputs
    one_head = 2.0 * sac.head_width * (inputs + sac.head_width + outputs)
    heads = sac.critic_head.count * one_head
    learning = sac.replay.window - sac.replay.burn_in
    read_by_critic = learning if sac.sighted else sac.replay.window
    reading = sac.replay.window * (encoder + actor.forward) + learning * (encoder + 2.0 * actor.forward)
    reading += 2.0 * read_by_critic * (encoder + critic.forward) + learning * (encoder + 2.0 * critic.forward)
    outputs_and_heads = learning * (3.0 * _outputs(setup) + heads * (3.0 + 2.0 + 1.0))
    needed = learning * critic.target if sac.costate_coef > 0.0 else 0.0
    return sac.replay.batch * (reading + outputs_and_heads + needed)


def _outputs(setup: Setup) -> float:
    """Return the operations for the mean and the width of the control."""
    actions = setup.task_record.action_size
    return readout_flops(setup.policy, actions) + 2.0 * setup.policy.hidden_size * actions


def _encoder(setup: Setup) -> float:
    """Return the operations of the encoder, which also reads the mask and the last control."""
    inputs = setup.observation_size + 1 + setup.task_record.action_size
    return 2.0 * inputs * setup.policy.hidden_size
