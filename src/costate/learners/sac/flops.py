"""Matrix products of soft actor-critic, for each environment step and for each update."""

from costate.learners.base import Setup
from costate.learners.sac.config import SACConfig
from costate.learners.sac.update import critics_parts
from costate.policies.flops import core_flops, readout_flops


def flops_per_env_step(setup: Setup, sac: SACConfig) -> float:
    """The rollout reads every observation once; an update is shared by the steps that go with it."""
    policy = setup.policy
    acting = _encoder(setup) + core_flops(policy).forward + _outputs(setup)
    if sac.replay.start == "stored":
        # The critic's memory is stored too.
        acting += _encoder(setup) + core_flops(critics_parts(sac, policy)).forward
    return acting + flops_per_update(setup, sac) / sac.steps_per_update


def flops_per_update(setup: Setup, sac: SACConfig) -> float:
    """One gradient step.

    Actor, critic and target read the whole window (a critic without memory has no use for the burn-in). A reverse
    pass goes through the rows after the burn-in, for actor and critic, and takes twice as much, except that nothing
    is differentiated by the inputs. The heads are asked three times: about what was done, with a reverse pass to
    weights and inputs; about what the actor would do, with one to the inputs alone; and by the target.
    """
    task, policy = setup.task_record, setup.policy
    width = policy.hidden_size
    encoder, actor, critic = _encoder(setup), core_flops(policy), core_flops(critics_parts(sac, policy))
    inputs, outputs = width + task.action_size, sac.critic_head.outputs
    one_head = 2.0 * sac.head_width * (inputs + sac.head_width + outputs)
    heads = sac.critic_head.count * one_head
    learning = sac.replay.window - sac.replay.burn_in
    judged = learning if sac.sighted else sac.replay.window
    reading = sac.replay.window * (encoder + actor.forward) + learning * (encoder + 2.0 * actor.forward)
    reading += 2.0 * judged * (encoder + critic.forward) + learning * (encoder + 2.0 * critic.forward)
    judging = learning * (3.0 * _outputs(setup) + heads * (3.0 + 2.0 + 1.0))
    needed = learning * critic.target if sac.costate_coef > 0.0 else 0.0
    return sac.replay.batch * (reading + judging + needed)


def _outputs(setup: Setup) -> float:
    """Mean and width of the control."""
    actions = setup.task_record.action_size
    return readout_flops(setup.policy, actions) + 2.0 * setup.policy.hidden_size * actions


def _encoder(setup: Setup) -> float:
    """The encoder, which also reads whether there was an observation, and the control before it."""
    inputs = setup.observation_size + 1 + setup.task_record.action_size
    return 2.0 * inputs * setup.policy.hidden_size
