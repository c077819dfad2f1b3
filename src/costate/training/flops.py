"""Floating-point operations in the matrix products of training, counted as few as the mathematics allows."""

from typing import NamedTuple

from costate._base.errors import ConfigError
from costate.config.run_config import RunConfig
from costate.learners.sac.update import critics_parts
from costate.policies.cores import CORES
from costate.policies.cores.cornn import CoRNNConfig
from costate.policies.cores.costate_cell import CostateCellConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.frame_stack import FrameStackConfig
from costate.policies.cores.gru import GRUConfig, ResetAfterGRUConfig
from costate.policies.cores.lstm import LSTMConfig
from costate.policies.cores.memoryless import MemorylessConfig
from costate.policies.cores.rnn import RNNConfig
from costate.policies.cores.ssm import SSMConfig
from costate.policies.policy import PolicyConfig


class CoreFlops(NamedTuple):
    """Of one step of a core with as many features as hidden units."""

    forward: float
    target: float
    """The co-state's target: one more product with the transposed input weights, and for the GRU of the paper one with those of the candidate."""


def core_flops(policy: PolicyConfig) -> CoreFlops:
    if policy.features != policy.hidden_size:
        raise ConfigError(
            f"The matrix products are counted for features as wide as the hidden state, but feature_size is {policy.feature_size}."
        )
    one = _one_core(policy)
    return CoreFlops(policy.ensemble * one.forward, policy.ensemble * one.target)


def _one_core(policy: PolicyConfig) -> CoreFlops:
    core, width = policy.core, policy.hidden_size
    square = 2.0 * width**2
    match core:
        case GRUConfig():
            return CoreFlops(6.0 * square, 4.0 * square)
        case ResetAfterGRUConfig():
            return CoreFlops(6.0 * square, 3.0 * square)
        case CTRNNConfig() | RNNConfig():
            return CoreFlops(2.0 * square, square)
        case FrameStackConfig():
            return CoreFlops(core.frames * square, square)
        case LSTMConfig():
            return CoreFlops(8.0 * square, 4.0 * square)
        case CoRNNConfig():
            return CoreFlops(3.0 * square, square)
        case SSMConfig():
            # Into the modes and out of them; the recurrence between is elementwise.
            both = 2.0 * 2.0 * width * core.state_size(width)
            return CoreFlops(both, both)
        case MemorylessConfig():
            return CoreFlops(square, square)
        case CostateCellConfig():
            # B, D and S from the observation, of which the target needs the transposes; D and S from a control that is a product of the memory.
            observed = 2.0 * width * (3 * width - 1)
            return CoreFlops(observed + 2.0 * core.controls * (3 * width - 1), observed)
    raise ConfigError(
        f"The matrix products of the core {CORES.name_of(type(core))} were never counted. Add them to costate/training/flops.py to benchmark it."
    )


def readout_flops(config: RunConfig) -> float:
    """The control from the memory, and the modulation of an influence that depends on the observation."""
    width = config.policy.hidden_size
    observed = getattr(config.policy.readout, "influence", "constant") == "observed"
    return 2.0 * width * config.task_record.action_size + (2.0 * width**2 if observed else 0.0)


def flops_per_env_step(config: RunConfig) -> float:
    """Rollout and learner together."""
    return off_policy_flops(config) if config.algorithm == "sac" else on_policy_flops(config)


def on_policy_flops(config: RunConfig) -> float:
    """The rollout reads every observation once. An epoch reads it again, and its reverse pass takes twice as much, except that nothing is
    differentiated by the observation itself.
    """
    width = config.policy.hidden_size
    members = config.policy.ensemble
    encoder, heads = (
        2.0 * config.observation_size * config.policy.features,
        readout_flops(config) + 2.0 * width * members,
    )
    core = core_flops(config.policy)
    forward = encoder + core.forward + heads
    reverse = encoder + 2.0 * (core.forward + heads)
    # The baselines measure the co-state loss too, to be compared, but do not need it.
    needed = core.target if config.costate_coef > 0.0 else 0.0
    return forward + config.ppo.epochs * (forward + reverse + needed)


def off_policy_flops(config: RunConfig) -> float:
    """The rollout reads every observation once; an update is shared by the steps that go with it."""
    task, width = config.task_record, config.policy.hidden_size
    acting = (
        _encoder(config)
        + core_flops(config.policy).forward
        + readout_flops(config)
        + 2.0 * width * task.action_size
    )
    if config.sac.replay.start == "stored":
        # What the critic remembers is stored too.
        acting += _encoder(config) + core_flops(critics_parts(config.sac, config.policy)).forward
    return acting + flops_per_update(config) / config.sac.steps_per_update


def flops_per_update(config: RunConfig) -> float:
    """One gradient step of soft actor-critic.

    Actor, critic and target read the whole window (a critic without memory has no use for the burn-in); a reverse pass goes through the rows after
    the burn-in, for actor and critic, and takes twice as much, except that nothing is differentiated by the inputs. The heads are asked three times:
    about what was done, with a reverse pass to weights and inputs; about what the actor would do, with one to the inputs alone; and by the target.
    """
    task, width, sac = config.task_record, config.policy.hidden_size, config.sac
    encoder, actor, critic = (
        _encoder(config),
        core_flops(config.policy),
        core_flops(critics_parts(sac, config.policy)),
    )
    outputs = readout_flops(config) + 2.0 * width * task.action_size
    heads = 2 * 2.0 * ((width + task.action_size) * sac.head_width + sac.head_width**2 + sac.head_width)
    learning = sac.replay.window - sac.replay.burn_in
    judged = learning if sac.sighted else sac.replay.window
    reading = sac.replay.window * (encoder + actor.forward) + learning * (encoder + 2.0 * actor.forward)
    reading += 2.0 * judged * (encoder + critic.forward) + learning * (encoder + 2.0 * critic.forward)
    judging = learning * (3.0 * outputs + heads * (3.0 + 2.0 + 1.0))
    needed = learning * critic.target if sac.costate_coef > 0.0 else 0.0
    return sac.replay.batch * (reading + judging + needed)


def _encoder(config: RunConfig) -> float:
    """Of soft actor-critic, which reads also whether there was an observation, and the control before it."""
    task = config.task_record
    return 2.0 * (config.observation_size + 1 + task.action_size) * config.policy.hidden_size
