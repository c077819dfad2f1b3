"""Configs with a name: the paper's variants, the authors' code, the explicit policy of Definition 3.2, the variants off-policy, and what is fast."""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

from costate._base.errors import ConfigError
from costate._base.registry import nearest
from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.cores.costate_cell import CostateCellConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.gru import ResetAfterGRUConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig, TanhReadoutConfig

PresetName = Literal[
    "gru",
    "nc-gru",
    "ctrnn",
    "nc-ctrnn",
    "authors-code",
    "ncp",
    "sac-gru",
    "nc-sac-gru",
    "sac-ctrnn",
    "nc-sac-ctrnn",
    "fast",
]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)


def usual_preset(algorithm: str | None) -> PresetName:
    """The preset that is meant where only the algorithm is named."""
    return "nc-sac-gru" if algorithm == "sac" else "nc-gru"


def check_preset(name: str, task: str, algorithm: str) -> None:
    """Raise unless a preset is one of an algorithm on a task."""
    found = preset(name, task).algorithm
    if found != algorithm:
        fitting = ", ".join(other for other in PRESETS if preset(other, task).algorithm == algorithm)
        raise ConfigError(
            f"The preset {name} is one of {found}, but --algorithm is {algorithm}. Presets of {algorithm} on {task}: {fitting}."
        )


# Twice the environments at as many updates, which costs nothing but the physics.
MORE_DATA = RolloutConfig(environments=32)
# Four times the environments for an eighth of the time: minibatches a quarter as large as the paper's, four times as many of them for the same steps,
# each as large a step as the policy bears; and no reward for noise.
SHORT_SEGMENTS = RolloutConfig(environments=128, rollout_length=125)
BOLD = PPOConfig(
    costate_coef=0.0,
    minibatches=8,
    learning_rate=5e-4,
    learning_rate_decay="adaptive",
    entropy_coef=0.0,
    value_loss="plain",
)


def _fast(task: str) -> RunConfig:
    """What returns most after a minute or two on two cores, as far as that was tried (docs/results.md, "The preset fast")."""
    # The same task in another simulator has a prefix.
    return FASTEST.get(task.rpartition(":")[2], _fast_elsewhere)(task)


def _fast_elsewhere(task: str) -> RunConfig:
    """Soft actor-critic as it is: nothing was found that is faster on the tasks that have no entry of their own."""
    return preset("sac-gru", task)


def _fast_walker(task: str) -> RunConfig:
    usual = preset("sac-gru", task)
    return dataclasses.replace(
        usual, rollout=MORE_DATA, sac=dataclasses.replace(usual.sac, steps_per_update=MORE_DATA.environments)
    )


def _fast_fish(task: str) -> RunConfig:
    """On-policy: one control changes so little of what comes that a critic of controls cannot tell them apart, and advantages that are measured over
    many steps still can. It is a long way at a low speed, so they look further ahead.
    """
    return _short_segments(
        task, SensorConfig(mask_input="bit"), dataclasses.replace(BOLD, discount=0.995), deviation=0.5
    )


def _fast_finger(task: str) -> RunConfig:
    """On-policy for the same reason, with noise that makes strokes where white noise trembles. That successive controls then depend on each other is
    more than PPO's gradient knows of; it was accepted because the return was higher in a trial.
    """
    return _short_segments(task, SensorConfig(), BOLD, deviation=1.0, noise_colour=1.0)


FASTEST: dict[str, Callable[[str], RunConfig]] = {
    "WalkerStand": _fast_walker,
    "WalkerWalk": _fast_walker,
    "WalkerRun": _fast_walker,
    "FishSwim": _fast_fish,
    "FingerTurnHard": _fast_finger,
}
"""By the task, because no one setting is the fastest everywhere."""


def _short_segments(
    task: str, sensors: SensorConfig, ppo: PPOConfig, deviation: float, noise_colour: float = 0.0
) -> RunConfig:
    """PPO with many environments and short segments, which start from stored memories."""
    policy = PolicyConfig(readout=QuadraticReadoutConfig(initial_deviation=deviation))
    return RunConfig(
        task,
        policy=policy,
        sensors=sensors,
        rollout=dataclasses.replace(SHORT_SEGMENTS, noise_colour=noise_colour),
        ppo=ppo,
    )


def preset(name: str, task: str) -> RunConfig:
    """The paper's four variants, the choices in which the authors' released code departs from its text, the policy class of Definition 3.2 written
    out, the four variants off-policy, and what learns fastest on a small machine.
    """
    plain, plain_sac = PPOConfig(costate_coef=0.0), SACConfig(costate_coef=0.0)
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
                policy=PolicyConfig(
                    core=ResetAfterGRUConfig(initialisation="uniform"), readout=TanhReadoutConfig()
                ),
                rollout=RolloutConfig(observation_clip=None, random_keys="shared"),
                ppo=PPOConfig(costate_hidden="before", reward_clip=None),
            )
        case "ncp":
            return RunConfig(
                task,
                policy=PolicyConfig(
                    core=CostateCellConfig(), readout=QuadraticReadoutConfig(influence="observed")
                ),
            )
        case "sac-gru":
            return RunConfig(task, algorithm="sac", sac=plain_sac)
        case "nc-sac-gru":
            return RunConfig(task, algorithm="sac")
        case "sac-ctrnn":
            return RunConfig(task, policy=leaky, algorithm="sac", sac=plain_sac)
        case "nc-sac-ctrnn":
            return RunConfig(task, policy=leaky, algorithm="sac")
        case "fast":
            return _fast(task)
    raise ConfigError(f"Unknown preset {name!r}. {nearest(name, PRESETS)}")
