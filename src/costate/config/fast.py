"""The preset `fast`: what returns most after a minute or two on two cores."""

import dataclasses
from collections.abc import Callable

from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig

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


def fast(task: str) -> RunConfig:
    """What returns most after a minute or two on two cores, as far as that was tried (docs/results.md, "The preset fast")."""
    # The same task in another simulator has a prefix.
    return FASTEST.get(task.rpartition(":")[2], _fast_elsewhere)(task)


def _fast_elsewhere(task: str) -> RunConfig:
    """Soft actor-critic as it is: nothing was found that is faster on the tasks that have no entry of their own."""
    return RunConfig(task, learner=SACConfig(costate_coef=0.0))


def _fast_walker(task: str) -> RunConfig:
    sac = SACConfig(costate_coef=0.0, steps_per_update=MORE_DATA.environments)
    return RunConfig(task, learner=sac, rollout=MORE_DATA)


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
        learner=ppo,
    )
