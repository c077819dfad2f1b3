"""Named configs: the presets of each learner, and `fast` for small machines."""

from costate._base.errors import ConfigError
from costate._base.registry import nearest
from costate.config.fast import fast
from costate.config.run_config import RunConfig
from costate.learners import LEARNERS, LearnerConfig

FAST = "fast"
PRESETS: tuple[str, ...] = (*(name for kind in LEARNERS for name in kind.presets()), FAST)


def usual_preset(algorithm: str | None) -> str:
    """Return the default preset of a learner, or of the first learner if none is named."""
    learner: type[LearnerConfig] = LEARNERS[algorithm] if algorithm in LEARNERS else next(iter(LEARNERS))
    return learner.usual_preset()


def check_preset(name: str, task: str, algorithm: str) -> None:
    """Raise unless a preset uses the given learner on a task."""
    found = preset(name, task).learner_name
    if found != algorithm:
        fitting = ", ".join(other for other in PRESETS if preset(other, task).learner_name == algorithm)
        raise ConfigError(
            f"The preset {name} is one of {found}, but --algorithm is {algorithm}. Presets of {algorithm} on "
            f"{task}: {fitting}."
        )


def preset(name: str, task: str) -> RunConfig:
    """Return the config of a preset on a task."""
    if name == FAST:
        return fast(task)
    for kind in LEARNERS:
        if name in kind.presets():
            variant = kind.presets()[name]
            return RunConfig(
                task,
                learner=variant.learner,
                policy=variant.policy,
                sensors=variant.sensors,
                rollout=variant.rollout,
            )
    raise ConfigError(f"Unknown preset {name!r}. {nearest(name, PRESETS)}")
