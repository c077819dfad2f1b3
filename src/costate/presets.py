"""Configs with a name: the paper's variants, the authors' code, the explicit policy of Definition 3.2, the variants off-policy, and what is fast."""

import dataclasses
from typing import Literal, get_args

from costate._errors import ConfigError
from costate._registry import nearest
from costate.config import RunConfig, config_hash
from costate.cores import CORES
from costate.cores.costate_cell import CostateCellConfig
from costate.cores.ctrnn import CTRNNConfig
from costate.cores.gru import ResetAfterGRUConfig
from costate.envs.tasks import TASKS
from costate.policy import PolicyConfig
from costate.ppo_config import PPOConfig
from costate.readouts.linear import QuadraticReadoutConfig, TanhReadoutConfig
from costate.replay import ReplayConfig
from costate.rollout import RolloutConfig
from costate.sac import SACConfig

PresetName = Literal["gru", "nc-gru", "ctrnn", "nc-ctrnn", "authors-code", "ncp", "sac-gru", "nc-sac-gru", "sac-ctrnn", "nc-sac-ctrnn", "fast"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)


def usual_preset(algorithm: str | None) -> PresetName:
    """The preset that is meant where only the algorithm is named."""
    return "nc-sac-gru" if algorithm == "sac" else "nc-gru"


def check_preset(name: str, task: str, algorithm: str) -> None:
    """Raise unless a preset is one of an algorithm on a task."""
    found = preset(name, task).algorithm
    if found != algorithm:
        fitting = ", ".join(other for other in PRESETS if preset(other, task).algorithm == algorithm)
        raise ConfigError(f"The preset {name} is one of {found}, but --algorithm is {algorithm}. Presets of it on {task}: {fitting}.")


def variant_name(config: RunConfig) -> str:
    """The preset that a config is, whatever its task, seed and budget; else a name of its own."""
    # Compared at the task's budget: a short one need not be possible with the environments of the preset.
    usual = dataclasses.replace(config, seed=0, steps=None, checkpoint_every=RunConfig.checkpoint_every)
    for name in PRESETS:
        if preset(name, config.task) == usual:
            return name
    plain = dataclasses.replace(config, seed=0, steps=None, checkpoint_every=1)
    prefix = ("nc-" if config.costate_coef > 0.0 else "") + ("sac-" if config.algorithm == "sac" else "")
    members = f"-ensemble-{config.policy.ensemble}" if config.policy.ensemble > 1 else ""
    return f"{prefix}{CORES.name_of(type(config.policy.core))}{members}-{config_hash(plain)[:6]}"


# Few environments, so that the replay is filled no faster than it is learnt from; and 11 × 91 = 1001 rows, a whole episode with its last observation.
# Noise that stays on one side for a while moves a body, where white noise makes it tremble; a replay does not mind how its rows were explored.
OFF_POLICY_ROLLOUT = RolloutConfig(environments=16, rollout_length=91, noise_colour=1.0)
# Not the defaults of their fields, which say what a run did that was stored before there were such settings. Many short windows hold more different
# states than a few long ones; and a body that learns to move leaves the range of the warm-up.
OFF_POLICY_SAC = SACConfig(observation_statistics="running", replay=ReplayConfig(window=24, burn_in=4, batch=32))


def _off_policy(task: str, policy: PolicyConfig, costate_coef: float = SACConfig.costate_coef) -> RunConfig:
    """Soft actor-critic; with a critic that remembers where what it would see is not the state."""
    sac = dataclasses.replace(OFF_POLICY_SAC, costate_coef=costate_coef, critic="sighted" if TASKS[task].observes_state else "recurrent")
    return RunConfig(task, policy=policy, rollout=OFF_POLICY_ROLLOUT, algorithm="sac", sac=sac)


# Where one control changes so little of what comes that a critic of controls cannot tell them apart (docs/results.md, "What is hardly learnt").
# Advantages that are measured over many steps still can, so these are learnt on-policy.
HARDLY_CONTROLLED = ("FingerTurnHard", "FishSwim")
# Still shorter windows: what is won is the start (docs/results.md, "The preset fast").
FAST_WINDOWS = ReplayConfig(window=16, burn_in=4, batch=54)
# Four times the environments for an eighth of the time: as large minibatches as the paper's, updated twice as often for the same steps, by steps that
# are as large as they may be; and noise that does not drown what is tried.
FAST_ROLLOUT = RolloutConfig(environments=128, rollout_length=125)
FAST_PPO = PPOConfig(costate_coef=0.0, minibatches=8, learning_rate=5e-4, learning_rate_decay="adaptive", entropy_coef=0.0, value_loss="plain")
FAST_READOUT = QuadraticReadoutConfig(initial_deviation=0.5)


def _fast(task: str) -> RunConfig:
    """What returns most after a minute or two on two cores."""
    if task.rpartition(":")[2] in HARDLY_CONTROLLED:
        return RunConfig(task, policy=PolicyConfig(readout=FAST_READOUT), rollout=FAST_ROLLOUT, ppo=FAST_PPO)
    usual = _off_policy(task, PolicyConfig(), costate_coef=0.0)
    return dataclasses.replace(usual, sac=dataclasses.replace(usual.sac, replay=FAST_WINDOWS))


def preset(name: str, task: str) -> RunConfig:
    """The paper's four variants, the choices in which the authors' released code departs from its text, the policy class of Definition 3.2 written
    out, the four variants off-policy, and what learns fastest on a small machine.
    """
    plain = PPOConfig(costate_coef=0.0)
    leaky = PolicyConfig(core=CTRNNConfig())
    match name:
        case "gru":
            return RunConfig(task, ppo=plain)
        case "nc-gru":
            return RunConfig(task)
        case "ctrnn":
            return RunConfig(task, policy=leaky, ppo=plain)
        case "nc-ctrnn":
            return RunConfig(task, policy=leaky)
        case "authors-code":
            return RunConfig(
                task,
                policy=PolicyConfig(core=ResetAfterGRUConfig(initialisation="uniform"), readout=TanhReadoutConfig()),
                rollout=RolloutConfig(observation_clip=None, random_keys="shared"),
                ppo=PPOConfig(costate_hidden="before", reward_clip=None),
            )
        case "ncp":
            return RunConfig(task, policy=PolicyConfig(core=CostateCellConfig(), readout=QuadraticReadoutConfig(influence="observed")))
        case "sac-gru":
            return _off_policy(task, PolicyConfig(), costate_coef=0.0)
        case "nc-sac-gru":
            return _off_policy(task, PolicyConfig())
        case "sac-ctrnn":
            return _off_policy(task, leaky, costate_coef=0.0)
        case "nc-sac-ctrnn":
            return _off_policy(task, leaky)
        case "fast":
            return _fast(task)
    raise ConfigError(f"Unknown preset {name!r}. {nearest(name, PRESETS)}")
