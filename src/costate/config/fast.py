"""The preset `fast`: the highest return after a minute or two on two cores."""

import dataclasses
from collections.abc import Callable

from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig

# Twice the environments with the same number of updates, which costs nothing but the physics.
MORE_DATA = RolloutConfig(environments=32)
# Four times the environments with rollouts an eighth as long: minibatches a quarter as large as the paper's,
# and four times as many of them for the same steps. The learning rate adapts to how far each update moves the
# policy, and there is no reward for noise.
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
    """Return the config with the highest return after a minute or two on two cores.

    The trials are in docs/results.md, "The preset fast".
    """
    # The same task in another simulator has a prefix.
    return FASTEST.get(task.rpartition(":")[2], _fast_elsewhere)(task)


def _fast_elsewhere(task: str) -> RunConfig:
    """Return plain soft actor-critic: no trial was faster on the tasks without an entry in ``FASTEST``."""
    return RunConfig(task, learner=SACConfig(costate_coef=0.0))


def _fast_walker(task: str) -> RunConfig:
    sac = SACConfig(costate_coef=0.0, steps_per_update=MORE_DATA.environments)
    return RunConfig(task, learner=sac, rollout=MORE_DATA)


def _fast_fish(task: str) -> RunConfig:
    """Return an on-policy config that looks far ahead.

    One control changes the future so little that a Q critic cannot tell controls apart, while advantages over
    many steps can. The way is long and slow, so the discount is closer to 1.
    """
    return _short_segments(
        task, SensorConfig(mask_input="bit"), dataclasses.replace(BOLD, discount=0.995), deviation=0.5
    )


def _fast_finger(task: str) -> RunConfig:
    """Return an on-policy config with pink noise, which makes strokes where white noise trembles.

    PPO's gradient does not account for the correlation of successive controls. The return was higher in a
    trial nevertheless.
    """
    return _short_segments(task, SensorConfig(), BOLD, deviation=1.0, noise_colour=1.0)


FASTEST: dict[str, Callable[[str], RunConfig]] = {
    "WalkerStand": _fast_walker,
    "WalkerWalk": _fast_walker,
    "WalkerRun": _fast_walker,
    "FishSwim": _fast_fish,
    "FingerTurnHard": _fast_finger,
}
"""Task → config. No single setting is the fastest on every task."""


def _short_segments(
    task: str, sensors: SensorConfig, ppo: PPOConfig, deviation: float, noise_colour: float = 0.0
) -> RunConfig:
    """Return PPO with many environments and short segments, which start from stored memories."""
    policy = PolicyConfig(readout=QuadraticReadoutConfig(initial_deviation=deviation))
    return RunConfig(
        task,
        policy=policy,
        sensors=sensors,
        rollout=dataclasses.replace(SHORT_SEGMENTS, noise_colour=noise_colour),
        learner=ppo,
    )
